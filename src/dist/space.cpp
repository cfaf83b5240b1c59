#include "dist/space.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <thread>

#include "dist/gpu.h"

namespace forge::dist::detail {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kOps = 64, kMailWords = 8, kLine = 64;
constexpr auto kPatience = std::chrono::milliseconds(2);  ///< of a rank that waits without sleeping
constexpr auto kNap = std::chrono::microseconds(50);
constexpr int kNapsPerLook = 200;  ///< at whether processes live

/// Whether a process is there and has not ended: nobody may have asked yet how one did.
bool lives(long process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    std::string text;
    if (!std::getline(file, text)) return false;
    const std::size_t name = text.rfind(')');
    return name == std::string::npos || name + 2 >= text.size() || (text[name + 2] != 'Z' && text[name + 2] != 'X');
}

}  // namespace

/// A rank's part of what all see. It begins as zeros.
struct Control {
    std::atomic<std::uint64_t> reserved;  ///< where Region leaves a token while ranks find each other
    std::atomic<std::uint64_t> done;      ///< the latest epoch whose data this rank has read
    std::atomic<std::uint64_t> failed;    ///< Failure and rank, written by who found it
    struct Operation {
        std::atomic<std::uint64_t> epoch, plan;
    };
    std::array<Operation, kOps> operations;  ///< what this rank calls
    struct Mail {
        std::atomic<std::uint64_t> number;
        std::array<std::uint64_t, kMailWords> words;
    };
    std::array<Mail, 2> mails;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "ranks of several processes share these");

Space::Space(const Bootstrap& bootstrap, const Options& options) : bootstrap_(bootstrap), options_(options) {
    if (bootstrap.size < 1 || bootstrap.rank < 0 || bootstrap.rank >= bootstrap.size)
        throw RuntimeError(
            fmt::format("group: expected a rank from 0 to {}, got {}", bootstrap.size - 1, bootstrap.rank));
    if (bootstrap.size == 1) return;
    if (!bootstrap.allgather) throw RuntimeError("group: expected an all-gather of the launcher's, got none");
    // What all must agree on, once.
    struct Settings {
        std::int64_t scheme, shared, process;
    } mine{static_cast<std::int64_t>(options.scheme), options.shared_memory, getpid()};
    std::vector<Settings> all(static_cast<std::size_t>(bootstrap.size));
    bootstrap.allgather(&mine, all.data(), sizeof mine);
    for (std::size_t r = 0; r < all.size(); ++r) {
        if (all[r].scheme != mine.scheme || all[r].shared != mine.shared)
            throw PlanMismatch(fmt::format("group: rank {} was given other options than rank {}", r, rank()),
                               static_cast<int>(r), 0);
        processes_.push_back(static_cast<long>(all[r].process));
    }
    shared_ = options.shared_memory && controls_.share(sizeof(Control), bootstrap_);
}

Space::~Space() = default;

Control& Space::control(int rank) const { return *reinterpret_cast<Control*>(controls_.at(rank)); }

// ---------------------------------------------------------------------------------------------- waiting

/// Waits for `ready`, and looks from time to time whether it can still come.
template <class Ready>
void Space::until(int from, const Ready& ready) {
    for (int spin = 0; spin < 64; ++spin)
        if (ready()) return;
    const auto since = Clock::now();
    for (int round = 0;; ++round) {
        if (ready()) return;
        if (control(rank()).failed.load(std::memory_order_acquire)) raise(control(rank()).failed.load());
        const auto waited = Clock::now() - since;
        if (waited > kPatience) std::this_thread::sleep_for(kNap);
        else std::this_thread::yield();
        if (round % kNapsPerLook == 0) {
            if (ready()) return;
            watch(from, since);
        }
    }
}

void Space::watch(int from, Clock::time_point since) {
    for (int r = 0; r < size(); ++r) compare_plan(r);
    if (!lives(processes_[static_cast<std::size_t>(from)])) fail(Failure::Died, from);
    if (options_.timeout.count() > 0 && Clock::now() - since > options_.timeout) fail(Failure::Late, from);
}

/// Whether the rank, if it has come so far, makes the same call.
void Space::compare_plan(int of) {
    const Control::Operation& theirs = control(of).operations[epoch_ % kOps];
    const std::uint64_t epoch = theirs.epoch.load(std::memory_order_acquire), plan = theirs.plan.load();
    if (epoch == epoch_ && theirs.epoch.load() == epoch && plan != plan_) fail(Failure::Mismatch, of);
}

void Space::tell(std::uint64_t word) {
    std::uint64_t none = 0;
    failed_.compare_exchange_strong(none, word);
    if (!shared_) return;
    for (int r = 0; r < size(); ++r) {
        none = 0;
        control(r).failed.compare_exchange_strong(none, word);
    }
}

void Space::fail(Failure failure, int peer) {
    tell(static_cast<std::uint64_t>(failure) << 32U | static_cast<std::uint64_t>(peer));
    raise(failed_.load());
}

void Space::raise(std::uint64_t word) const {
    const int peer = static_cast<int>(word & 0xFFFFFFFFU);
    const std::string at = fmt::format("at exchange {} of rank {} of {}; make another group", epoch_, rank(), size());
    switch (static_cast<Failure>(word >> 32U)) {
        case Failure::Died:
            throw PeerTimeout(fmt::format("group: the process of rank {} ended, {}", peer, at), peer, epoch_);
        case Failure::Late:
            throw PeerTimeout(
                fmt::format("group: rank {} did not come within {} ms, {}", peer, options_.timeout.count(), at), peer,
                epoch_);
        case Failure::Mismatch:
            throw PlanMismatch(fmt::format("group: expected the same calls on all ranks, got another one, or other "
                                           "sizes, on rank {}, {}",
                                           peer, at),
                               peer, epoch_);
        case Failure::Aborted:
        case Failure::None:
            break;
    }
    throw GroupAborted(fmt::format("group: rank {} gave up, {}", peer, at), peer, epoch_);
}

void Space::check() {
    if (const std::uint64_t word = failed_.load()) raise(word);
    if (size() == 1) return;
    std::uint64_t word = failed().load();
    if (word == 0) return;
    const auto peer = static_cast<std::size_t>(word & 0xFFFFFFFFU);
    if (word >> 32U == static_cast<std::uint64_t>(Failure::Late) && peer < processes_.size() &&
        !lives(processes_[peer]))
        word = static_cast<std::uint64_t>(Failure::Died) << 32U | peer;
    tell(word);  // it may have been found by a kernel, which tells no other rank
    raise(failed_.load());
}

std::atomic<std::uint64_t>& Space::failed() { return shared_ ? control(rank()).failed : failed_; }
std::uint64_t Space::late() { return static_cast<std::uint64_t>(Failure::Late) << 32U; }

Gpu& Space::gpu(const runtime::CudaDevice& device) {
    if (!gpu_) gpu_ = std::make_unique<Gpu>(*this, device);
    if (gpu_->device().index != device.index)
        throw RuntimeError(fmt::format("group: expected calls on cuda:{}, as before, got one on cuda:{}",
                                       gpu_->device().index, device.index));
    return *gpu_;
}

void Space::abort() { tell(static_cast<std::uint64_t>(Failure::Aborted) << 32U | static_cast<std::uint64_t>(rank())); }

void Space::give_up() {
    if (size() > 1) abort();
}

// ---------------------------------------------------------------------------------------------- exchanges

std::uint64_t Space::begin(std::uint64_t plan, std::size_t floats, std::size_t flags) {
    check();
    ++epoch_, plan_ = plan;
    if (!shared_) {
        std::vector<std::uint64_t> plans(static_cast<std::size_t>(size()));
        bootstrap_.allgather(&plan, plans.data(), sizeof plan);
        for (std::size_t r = 0; r < plans.size(); ++r)
            if (plans[r] != plan) fail(Failure::Mismatch, static_cast<int>(r));
        return epoch_;
    }
    post();
    reserve(floats, flags);
    return epoch_;
}

/// What this rank calls, for others to see.
void Space::post() {
    Control::Operation& mine = control(rank()).operations[epoch_ % kOps];
    mine.epoch.store(0);  // nobody takes the plan of another epoch for this one's
    mine.plan.store(plan_);
    mine.epoch.store(epoch_, std::memory_order_release);
}

/// Who comes last sees all others' plans. All meet once at a new plan, when all that it needs has been loaded: a GPU
/// may not load a rank's kernels while another rank's wait on it.
void Space::begin_elsewhere(std::uint64_t plan) {
    check();
    ++epoch_, plan_ = plan;
    post();
    end();  // of what lies in the host's memory
    for (int r = 0; r < size(); ++r) compare_plan(r);
    if (!known_plans_.insert(plan).second) return;
    std::vector<std::uint64_t> all(static_cast<std::size_t>(size()));
    mail(&plan, all.data(), sizeof plan);
}

void Space::end() {
    if (shared_) control(rank()).done.store(epoch_, std::memory_order_release);
}

/// All ranks have the same plans in the same order, and so grow their windows at the same time.
void Space::reserve(std::size_t floats, std::size_t flags) {
    if (floats <= floats_ && flags <= flag_count_) return;
    const Bootstrap mails = by_mail();
    const auto grow = [&](Region& region, std::size_t bytes) {
        Region larger;  // flags that nobody waits for any more need not be kept: epochs only grow
        if (larger.share(bytes, mails)) {
            region = std::move(larger);
            return;
        }
        const std::string why = fmt::format("group: {} bytes of shared memory per rank cannot be had", bytes);
        give_up();
        throw RuntimeError(why);
    };
    constexpr std::size_t kGrain = 1024;
    if (floats > floats_) {
        floats_ = (floats + kGrain - 1) / kGrain * kGrain;
        grow(data_, 2 * floats_ * sizeof(float));
    }
    if (flags > flag_count_) {
        flag_count_ = (flags + kGrain - 1) / kGrain * kGrain;
        grow(flags_, static_cast<std::size_t>(size()) * flag_count_ * kLine);
    }
}

/// An all-gather of a few words through the control blocks. A mail is overwritten two mails later, by when all have
/// sent the one between, and so read this one.
void Space::mail(const void* in, void* out, std::size_t bytes) {
    if (bytes > kMailWords * sizeof(std::uint64_t)) throw InternalError("group: a mail is too long");
    const std::uint64_t number = ++mails_;
    Control::Mail& mine = control(rank()).mails[number % 2];
    std::memcpy(mine.words.data(), in, bytes);
    mine.number.store(number, std::memory_order_release);
    for (int r = 0; r < size(); ++r) {
        const Control::Mail& theirs = control(r).mails[number % 2];
        until(r, [&] { return theirs.number.load(std::memory_order_acquire) >= number; });
        std::memcpy(static_cast<std::byte*>(out) + static_cast<std::size_t>(r) * bytes, theirs.words.data(), bytes);
    }
}

Bootstrap Space::by_mail() {
    return {rank(), size(), [this](const void* in, void* out, std::size_t bytes) { mail(in, out, bytes); }};
}

float* Space::ptr(int rank, std::size_t offset) const {
    return reinterpret_cast<float*>(data_.at(rank)) + epoch_ % 2 * floats_ + offset;
}

void Space::wait_credit(int to) {
    const std::atomic<std::uint64_t>& done = control(to).done;
    const std::uint64_t least = epoch_ > 2 ? epoch_ - 2 : 0;
    until(to, [&] { return done.load(std::memory_order_acquire) >= least; });
}

void Space::put(int to, std::size_t offset, const float* data, std::size_t count) {
    std::memcpy(ptr(to, offset), data, count * sizeof(float));
}

/// Each rank has flags of its own on every other: between two exchanges the same flag may be another rank's.
std::atomic<std::uint64_t>& Space::flag(int to, int from, std::size_t number) const {
    const std::size_t at = static_cast<std::size_t>(from) * flag_count_ + number;
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(flags_.at(to) + at * kLine);
}

void Space::signal(int to, std::size_t number) { flag(to, rank(), number).store(epoch_, std::memory_order_release); }

void Space::wait(std::size_t number, int from) {
    const std::atomic<std::uint64_t>& mine = flag(rank(), from, number);
    until(from, [&] { return mine.load(std::memory_order_acquire) >= epoch_; });
    compare_plan(from);
}

void Space::gather(const void* in, void* out, std::size_t bytes) { bootstrap_.allgather(in, out, bytes); }

std::string Space::describe() const {
    if (size() == 1) return "1 rank, which exchanges nothing";
    return fmt::format("rank {} of {}, {}, scheme {}{}", rank(), size(),
                       shared_ ? "which share memory" : "which exchange by the launcher's all-gather",
                       to_string(options_.scheme),
                       latest_ == Scheme::Auto ? "" : fmt::format(", latest exchange: {}", to_string(latest_)));
}

}  // namespace forge::dist::detail
