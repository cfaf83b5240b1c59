/// What the ranks of a group share: a control block and two windows of memory on each rank, and the primitives that the
/// exchanges are made of: put a tile into another rank's window, signal that it is there, wait for a signal, and the
/// address of one's own window. A rank that waits watches the others: whether they live, make the same calls, and have
/// not given up. Where ranks share no memory there is the launcher's all-gather only.
///
/// Every exchange has a number, its epoch. Flags hold epochs and are never reset; data lie in the half of the window
/// that the epoch's parity says, and a rank writes into another's only when that has read what was there before.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <vector>

#include "forge/dist.h"
#include "runtime/cuda_driver.h"

namespace forge::dist::detail {

struct Control;
class Gpu;

/// What tells processes apart whose numbers may be the same, as in containers.
std::uint64_t process_token();

/// Memory of all ranks: one's own, and the others' as they appear here.
class Region {
  public:
    /// Collective; `allgather` moves the few bytes that are needed to find each other's memory. Returns false on all
    /// ranks if some cannot reach others'.
    bool share(std::size_t bytes, const Bootstrap& ranks);
    [[nodiscard]] std::byte* at(int rank) const { return bases_[static_cast<std::size_t>(rank)].get(); }

  private:
    std::vector<std::shared_ptr<std::byte>> bases_;
};

class Space {
  public:
    Space(const Bootstrap& bootstrap, const Options& options);
    ~Space();
    Space(const Space&) = delete;
    Space& operator=(const Space&) = delete;

    [[nodiscard]] int rank() const { return bootstrap_.rank; }
    [[nodiscard]] int size() const { return bootstrap_.size; }
    [[nodiscard]] bool shares_memory() const { return shared_; }
    [[nodiscard]] const Options& options() const { return options_; }
    [[nodiscard]] const Link& link() const { return link_named(shared_ ? "shared-memory" : "messages"); }

    /// The next exchange, of a plan that must be the same on all ranks, with so much memory. Returns its epoch.
    std::uint64_t begin(std::uint64_t plan, std::size_t floats, std::size_t flags);
    /// All that came has been read.
    void end();

    /// The place of `offset` in this epoch's half of a rank's window.
    [[nodiscard]] float* ptr(int rank, std::size_t offset) const;
    /// Waits until the rank has read what was in that half before.
    void wait_credit(int to);
    void put(int to, std::size_t offset, const float* data, std::size_t count);
    void signal(int to, std::size_t flag);
    /// Until `from` has signalled.
    void wait(std::size_t flag, int from);
    /// The same of an exchange that is done elsewhere: nobody waits here, but where the plan is a new one.
    void begin_elsewhere(std::uint64_t plan);

    /// This rank's GPU, collective the first time. It sees the group's failures, and may tell of one, in `failed`.
    Gpu& gpu(const runtime::CudaDevice& device);
    [[nodiscard]] std::atomic<std::uint64_t>& failed();
    [[nodiscard]] static std::uint64_t late();  ///< what is left there by a rank that waited too long: with whom added
    /// An all-gather of a few words among ranks that share memory. None goes on before all have come.
    void mail(const void* in, void* out, std::size_t bytes);
    [[nodiscard]] Bootstrap by_mail();

    /// By the launcher; all ranks with as many bytes.
    void gather(const void* in, void* out, std::size_t bytes);

    void check();
    void abort();
    /// After an error that is not the group's: the other ranks shall not wait for this one.
    void give_up();
    void note(Scheme scheme) { latest_ = scheme; }
    [[nodiscard]] std::string describe() const;

  private:
    enum class Failure : std::uint8_t { None, Died, Late, Mismatch, Aborted };
    template <class Ready>
    void until(int from, const Ready& ready);
    void watch(int from, std::chrono::steady_clock::time_point since);
    void compare_plan(int of);
    [[nodiscard]] std::atomic<std::uint64_t>& flag(int to, int from, std::size_t number) const;
    [[noreturn]] void fail(Failure failure, int peer);
    [[noreturn]] void raise(std::uint64_t word) const;
    void tell(std::uint64_t word);
    [[nodiscard]] Control& control(int rank) const;
    void post();
    void reserve(std::size_t floats, std::size_t flags);

    Bootstrap bootstrap_;
    Options options_;
    bool shared_ = false;
    Region controls_, data_, flags_;
    std::size_t floats_ = 0, flag_count_ = 0;  ///< of a half of a window; of a sender
    std::uint64_t epoch_ = 0, plan_ = 0, mails_ = 0;
    std::vector<long> processes_;
    std::atomic<std::uint64_t> failed_{0};  ///< a failure and its rank; 0: none
    Scheme latest_ = Scheme::Auto;
    std::set<std::uint64_t> known_plans_;
    std::unique_ptr<Gpu> gpu_;  ///< which is gone before what ranks share is
};

}  // namespace forge::dist::detail
