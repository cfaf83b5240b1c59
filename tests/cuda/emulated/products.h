/// The matrix units of a warp group (wgmma), warp by warp. Between issue and the wait that covers it a product's result
/// is NaN; it reads shared memory as late as that wait, or as early as its issue, as chance will have it.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "tests/cuda/emulated/hardware.h"
#include "tests/cuda/emulated/shared_memory.h"

namespace forge::emulated {

/// The products of one warp.
class Products {
  public:
    /// `memory`: as matrix units see it. `warp`: its number in the warp group.
    Products(SharedMemory memory, int warp) : memory_(memory), warp_(warp) {}

    void issue(const Product& product, std::mt19937& random);
    void commit();
    void wait(int pending);
    [[nodiscard]] int issued() const { return issued_; }
    [[nodiscard]] bool under_way() const { return !open_.empty() || !groups_.empty(); }

  private:
    /// What several products one after the other make of the same registers.
    struct Sum {
        std::array<float*, kLanes> d;
        int columns, users = 0;
        std::vector<float> x;  ///< [16, columns]
    };
    struct Issued {
        Product product;
        std::shared_ptr<Sum> sum;
        bool done = false;
    };
    using Group = std::vector<Issued>;

    [[nodiscard]] std::shared_ptr<Sum> sum_for(const Product& product) const;
    void carry_out(Group& group) const;
    void multiply(const Product& product, Sum& sum) const;
    [[nodiscard]] float number(unsigned long long descriptor, bool along_rows, int other, int contraction,
                               bool bf16) const;

    SharedMemory memory_;
    int warp_, issued_ = 0;
    Group open_;
    std::deque<Group> groups_;
};

}  // namespace forge::emulated
