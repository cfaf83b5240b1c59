/// Where states lie on their way between ranks: in the host's memory, or in a GPU's, where everything is done in the
/// order of the call's stream. What is taken lasts until the next call.
#pragma once

#include <deque>
#include <vector>

#include "dist/fold.h"
#include "forge/runtime.h"

namespace forge::dist::detail {

class Store {
  public:
    Store() = default;
    Store(const Store&) = delete;
    Store& operator=(const Store&) = delete;
    virtual ~Store() = default;

    /// Room for so many numbers, of any value.
    virtual float* take(std::size_t count) = 0;
    virtual void fill(float* to, std::size_t count, float value) = 0;
    /// Ones, or `width` by `width` identities in a row, that stay.
    virtual const float* neutral(std::size_t count, std::int64_t width) = 0;
    virtual void copy(const float* from, std::size_t count, float* to) = 0;
    /// The elements of a view in row-major order.
    virtual void read(const TensorView& from, float* to) = 0;
    /// A vector of i32 or i64, on the host.
    virtual std::vector<std::int64_t> integers(const TensorView& view) = 0;
    /// The summaries of segments as one; and whether it can be had.
    virtual void fold(const Fold& fold) = 0;
    [[nodiscard]] virtual bool folds(const Field& field) const = 0;
    /// Memory for a call that is not as large as it should be; nullptr where calls find their own.
    virtual void* workspace(std::size_t bytes) = 0;
    /// Memory for a call that is made in several steps.
    virtual void* lasting_workspace(std::size_t bytes) = 0;
};

class HostStore final : public Store {
  public:
    float* take(std::size_t count) override { return taken_.emplace_back(count).data(); }
    void fill(float* to, std::size_t count, float value) override;
    const float* neutral(std::size_t count, std::int64_t width) override;
    void copy(const float* from, std::size_t count, float* to) override;
    void read(const TensorView& from, float* to) override;
    std::vector<std::int64_t> integers(const TensorView& view) override;
    void fold(const Fold& fold) override { fold_on_host(fold); }
    [[nodiscard]] bool folds(const Field& field) const override { return field.map != Carried::Map::None; }
    void* workspace(std::size_t) override { return nullptr; }
    void* lasting_workspace(std::size_t bytes) override;

  private:
    std::deque<std::vector<float>> taken_;
};

/// The number of elements of a view; whether they lie one after the other.
std::int64_t count_of(const TensorView& view);
bool is_dense(const TensorView& view);

}  // namespace forge::dist::detail
