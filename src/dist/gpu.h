/// A rank's GPU: states in its memory, and the kernels that exchange them with other ranks' by writing into their
/// memory (device/cuda/ranks). What a kernel waits for comes by flags in device memory; the host does not take part,
/// and waits only as windows grow and plans are new.
#pragma once

#include <functional>
#include <map>

#include "device/cuda/ranks/call.h"
#include "dist/peer_memory.h"
#include "dist/store.h"
#include "dist/summary.h"

namespace forge::dist::detail {

class Space;

class Gpu final : public Store {
  public:
    /// Collective, if the ranks share the host's memory.
    Gpu(Space& space, const runtime::CudaDevice& device);
    ~Gpu() override;

    [[nodiscard]] const runtime::CudaDevice& device() const { return device_; }
    /// Whether all ranks can write into each other's GPUs.
    [[nodiscard]] bool reaches() const { return reaches_; }
    /// A call, on this stream: what the one before took is free.
    void begin(runtime::CudaStream stream);

    float* take(std::size_t count) override;
    void fill(float* to, std::size_t count, float value) override;
    const float* neutral(std::size_t count, std::int64_t width) override;
    void copy(const float* from, std::size_t count, float* to) override;
    void read(const TensorView& from, float* to) override;
    std::vector<std::int64_t> integers(const TensorView& view) override;
    void fold(const Fold& fold) override;
    [[nodiscard]] bool folds(const Field& field) const override;
    void* workspace(std::size_t bytes) override;
    void* lasting_workspace(std::size_t bytes) override { return workspace(bytes); }
    /// To the host and from it; these wait.
    void download(const float* from, std::size_t count, float* to) const;
    void upload(const float* from, std::size_t count, float* to) const;

    /// Collective. The states are in this GPU's memory.
    void exchange(const std::vector<Field>& fields, Scheme scheme, bool reverse, std::uint64_t plan,
                  const Summary& summary, const std::vector<float*>& incoming);
    void serial(const std::vector<Field>& fields, bool reverse, std::uint64_t plan, bool receives, bool sends,
                const std::vector<float*>& incoming, const std::vector<float*>& outgoing,
                const std::function<void()>& compute);

  private:
    struct Chunk {
        runtime::CudaPointer address;
        std::size_t bytes;
    };
    struct Launch {
        int scheme;
        bool receives, sends, fresh, ends;
    };
    void meet();
    void load();
    [[nodiscard]] cuda::ranks::Exchange described(const Field* fields, std::size_t count, int scheme, bool reverse);
    void reserve(cuda::ranks::Exchange& x);
    void launch(cuda::ranks::Exchange x, const Launch& how) const;
    void launch(runtime::CudaFunction function, unsigned blocks, unsigned shared_bytes, void* argument) const;

    Space& space_;
    const runtime::CudaDevice& device_;
    bool reaches_ = false;
    runtime::CudaStream stream_ = nullptr;
    bool begun_ = false;
    std::vector<Chunk> chunks_;  ///< memory that calls take, one after the other
    std::size_t chunk_ = 0, used_ = 0;
    std::map<std::pair<std::size_t, std::int64_t>, runtime::CudaPointer> neutrals_;

    runtime::CudaModuleHandle module_ = nullptr;
    runtime::CudaFunction exchange_ = nullptr, gather_ = nullptr, neutral_ = nullptr, fold_ = nullptr;
    std::vector<GpuOffer> offers_;
    int sharing_ = 1;                 ///< ranks that have this same GPU
    std::vector<PeerMemory> shared_;  ///< the control blocks, then windows, of which the last is used
    std::size_t flags_ = 0, half_ = 0;
    void* registered_ = nullptr;
    runtime::CudaPointer failed_ = 0;
};

/// Copies of a GPU's states on the host.
class HostCopies {
  public:
    explicit HostCopies(const Gpu& gpu) : gpu_(gpu) {}
    float* take(std::size_t count) { return copies_.emplace_back(count).data(); }
    float* fetch(const float* from, std::size_t count) {
        float* to = take(count);
        gpu_.download(from, count, to);
        return to;
    }

  private:
    const Gpu& gpu_;
    std::deque<std::vector<float>> copies_;
};

}  // namespace forge::dist::detail
