#include "kernel/hazards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>
#include <map>
#include <set>

#include "forge/error.h"
#include "kernel/rounds.h"
#include "kernel/unroll.h"

namespace forge::kernel {
namespace {

std::string described(const Statement& s) {
    std::string text = to_string(s.kind);
    if (!s.channel.empty()) text += fmt::format(" {}.{}", s.channel, s.side == Side::Filled ? "filled" : "empty");
    return s.what.empty() ? text : fmt::format("{} '{}'", text, s.what);
}

/// Sequences may be short, or empty; longer ones are alike.
constexpr int kFewChunks = 3;

/// One way in which chunks are copied, from the first statement to the last.
class Run {
  public:
    Run(const Kernel& kernel, int chunks, Copied copied, std::set<std::string>& hazards)
        : kernel_(kernel), threads_(unroll(kernel, chunks, copied)), hazards_(hazards), states_(threads_.size()) {
        kernel_before_ = static_cast<int>(threads_.size());
        asynchronous_.push_back({});
    }

    void run() {
        for (bool going = true; going;) {
            going = false;
            for (int t = 0; t < count(); ++t)
                while (state(t).at < thread(t).events.size() && step(t)) ++state(t).at, going = true;
        }
        for (int t = 0; t < count(); ++t)
            if (state(t).at < thread(t).events.size()) {
                const Event& e = thread(t).events[state(t).at];
                report(fmt::format("{} waits for what never comes: {}", name(t), described(*e.statement)));
            }
        for (const auto& [id, barrier] : barriers_)
            if (const auto* r = barrier.left_behind())
                report(fmt::format("{} may be left behind by two phases", r->what));
        expect_none_under_way();
    }

  private:
    struct State {
        std::size_t at = 0;
        bool arrived = false;  ///< at the barrier that it waits for
        int steps = 0;
        Clock clock;
        std::vector<int> fences;              ///< steps
        std::vector<int> open;                ///< asynchronous actors: copies not committed
        std::deque<int> stores;               ///< … and stores, or kNone of those by threads
        std::deque<std::vector<int>> copies;  ///< groups
        std::deque<int> products;
        std::size_t group_barriers = 0, block_barriers = 0;  ///< that it has passed
    };
    static constexpr int kNone = -1;
    /// An asynchronous actor.
    struct Asynchronous {
        int thread = 0;
        int waited_at = 0;  ///< the step of that thread
        const Statement* statement = nullptr;
    };
    /// Who touched something, and when.
    struct Touch {
        int actor, step, thread;
        std::int64_t begin, end;
        int chunk;                   ///< whose buffer it is, of several by turns
        bool write, unlike_threads;  ///< … by the path of products and bulk copies
        Event event;
    };

    [[nodiscard]] int count() const { return static_cast<int>(threads_.size()); }
    [[nodiscard]] const Thread& thread(int t) const { return threads_[static_cast<std::size_t>(t)]; }
    State& state(int t) { return states_[static_cast<std::size_t>(t)]; }
    [[nodiscard]] Asynchronous& asynchronous(int actor) {
        return asynchronous_[static_cast<std::size_t>(actor - count())];
    }
    [[nodiscard]] std::string name(int t) const { return thread(t).role.empty() ? "a thread" : thread(t).role; }
    void report(const std::string& hazard) { hazards_.insert(hazard); }

    int start(int t, const Event& e) {
        asynchronous_.push_back({t, 0, e.statement});
        return count() + static_cast<int>(asynchronous_.size()) - 1;
    }

    /// One statement; false if the thread must wait.
    bool step(int t) {
        State& self = state(t);
        const Event e = thread(t).events[self.at];
        const Statement& s = *e.statement;
        if (!self.arrived) self.clock.set(t, ++self.steps);
        switch (s.kind) {
            case Kind::Compute:
            case Kind::Move:
            case Kind::Keep:
                touch_all(t, t, e, false);
                return true;
            case Kind::Store:
                if (e.by_hardware) self.stores.push_back(start(t, e)), touch_all(t, self.stores.back(), e, true);
                else self.stores.push_back(kNone), touch_all(t, t, e, false);
                return true;
            case Kind::Copy:
                self.open.push_back(start(t, e)), touch_all(t, self.open.back(), e, false);
                return true;
            case Kind::Issue:
                self.products.push_back(start(t, e)), touch_all(t, self.products.back(), e, true);
                if (s.over) finish(t, 0);
                return true;
            case Kind::BulkCopy:
                bulk_copy(t, e);
                return true;
            case Kind::Commit:
                self.copies.push_back(std::move(self.open)), self.open.clear();
                return true;
            case Kind::CopyWait:
                for (; self.copies.size() > static_cast<std::size_t>(s.pending); self.copies.pop_front())
                    for (const int actor : self.copies.front()) has_ended(t, actor);
                return true;
            case Kind::Finish:
                finish(t, static_cast<std::size_t>(s.pending));
                return true;
            case Kind::StoresRead:
                for (; self.stores.size() > static_cast<std::size_t>(s.pending); self.stores.pop_front())
                    if (self.stores.front() != kNone) has_ended(t, self.stores.front());
                return true;
            case Kind::Fence:
                self.fences.push_back(self.steps);
                return true;
            case Kind::Barrier:
                return meet_at(t, fmt::format("group {}", thread(t).group), thread(t).parts, self.group_barriers);
            case Kind::BlockBarrier:
                return meet_at(t, "block", count(), self.block_barriers);
            case Kind::Begin:
                for (const Channel& c : kernel_.channels) touch(t, t, e, c.barriers, true, false);
                begun_ = true;
                return true;
            case Kind::Arrive:
                arrive(t, e);
                return true;
            case Kind::Wait:
                return wait(t, e);
            case Kind::WaitKernel:
                self.clock.set(kernel_before_, 1);
                return true;
            case Kind::Code:
            case Kind::Registers:
            case Kind::Rest:
            case Kind::Line:
            case Kind::Operation:
            case Kind::Later:
            case Kind::Body:
            case Kind::Loop:
            case Kind::Role:
            case Kind::Function:
            case Kind::Use:
            case Kind::Kernel:
                return true;
        }
        return true;
    }

    void finish(int t, std::size_t pending) {
        for (auto& products = state(t).products; products.size() > pending; products.pop_front())
            has_ended(t, products.front());
    }

    void has_ended(int t, int actor) {
        state(t).clock.set(actor, 1);
        asynchronous(actor).waited_at = state(t).steps;
    }

    // Barriers.

    bool meet_at(int t, const std::string& id, int threads, std::size_t& passed) {
        PhaseBarrier& barrier = barriers_[id];
        barrier.awaited = threads;
        State& self = state(t);
        if (!self.arrived) barrier.arrive(t, self.steps, self.clock, 1);
        self.arrived = !barrier.ended(passed);
        if (self.arrived) return false;
        self.clock.join(barrier.phases[passed++].clock);
        return true;
    }

    PhaseBarrier& barrier_of(const Event& e, Side side) {
        const Channel& channel = *kernel_.channel(e.statement->channel);
        if (!begun_) report(fmt::format("{} has no barriers yet", channel.name));
        PhaseBarrier& barrier = barriers_[fmt::format("{} {} {}", channel.name, e.chunk % channel.depth,
                                                      side == Side::Filled ? "filled" : "empty")];
        barrier.awaited = side == Side::Filled ? channel.filled : channel.empty;
        return barrier;
    }

    void arrive(int t, const Event& e) {
        PhaseBarrier& barrier = barrier_of(e, e.statement->side);
        touch(t, t, e, kernel_.channel(e.statement->channel)->barriers, false, false);
        expect_current(t, e, barrier);
        barrier.arrive(t, state(t).steps, state(t).clock, thread(t).warps);
    }

    void expect_current(int t, const Event& e, const PhaseBarrier& barrier) {
        if (barrier.current() > barrier.known_to(state(t).clock))
            report(fmt::format("{}: {} may come in the phase before", name(t), described(*e.statement)));
    }

    void bulk_copy(int t, const Event& e) {
        const int actor = start(t, e);
        PhaseBarrier& barrier = barrier_of(e, Side::Filled);
        touch(t, t, e, kernel_.channel(e.statement->channel)->barriers, false, false);
        expect_current(t, e, barrier);
        touch_all(t, actor, e, true);
        Clock clock = state(t).clock;
        clock.set(actor, 1);
        barrier.arrive(actor, 1, clock, 0);
    }

    /// By the parity of the phase: a thread that knows n phases to have ended passes at once if the n-th has another
    /// one, else when that has ended.
    bool wait(int t, const Event& e) {
        const Statement& s = *e.statement;
        State& self = state(t);
        PhaseBarrier& barrier = barrier_of(e, s.side);
        if (!self.arrived) touch(t, t, e, kernel_.channel(s.channel)->barriers, false, false);
        const int round = e.chunk / kernel_.channel(s.channel)->depth + s.ahead + (s.side == Side::Empty ? 1 : 0);
        std::size_t phase = barrier.known_to(self.clock);
        if (static_cast<int>(phase % 2) == (round & 1)) {
            self.arrived = !barrier.ended(phase);
            if (self.arrived) return false;
            self.clock.join(barrier.phases[phase++].clock);
        }
        barrier.reliances.push_back({t, self.steps, phase, name(t) + ", which waits: " + described(s)});
        return true;
    }

    // Memory.

    void touch_all(int t, int actor, const Event& e, bool unlike_threads) {
        for (const Access& a : e.statement->reads) touch(t, actor, e, a, false, unlike_threads);
        for (const Access& a : e.statement->writes) touch(t, actor, e, a, true, unlike_threads);
    }

    void touch(int t, int actor, const Event& e, const Access& a, bool write, bool unlike_threads) {
        const std::int64_t skip = a.stride * ((e.chunk + a.ahead) % a.depth) + a.of_instance * thread(t).instance;
        const bool registers = a.memory == Memory::Registers;
        const Touch now{actor,          actor == t ? state(t).steps : 1,        t,
                        a.begin + skip, registers ? a.begin + 1 : a.end + skip, a.depth > 1 ? e.chunk + a.ahead : 0,
                        write,          unlike_threads && !registers,           e};
        if (a.memory == Memory::Global && kernel_.overlaps && state(t).clock.of(kernel_before_) == 0)
            report(fmt::format("{}: {} does not wait for the kernel before", name(t), described(*e.statement)));
        std::vector<Touch>& past = past_[registers ? fmt::format("thread {} {}", t, a.buffer)
                                                   : (a.memory == Memory::Global ? "global " : "shared ") + a.buffer];
        bool written = write || a.memory == Memory::Global;
        for (const Touch& before : past) {
            if (before.begin >= now.end || now.begin >= before.end) continue;
            compare(before, now, a.buffer);
            written = written || (before.write && before.chunk == now.chunk);
        }
        if (!written)
            report(fmt::format("{}: {} reads {} before it is written", name(t), described(*e.statement), a.buffer));
        std::erase_if(past, [&](const Touch& before) {
            return now.begin <= before.begin && before.end <= now.end && is_known(before, t) &&
                   (write || (!before.write && before.actor == actor));
        });
        past.push_back(now);
    }

    [[nodiscard]] bool is_known(const Touch& before, int t) { return state(t).clock.of(before.actor) >= before.step; }

    void compare(const Touch& before, const Touch& now, const std::string& buffer) {
        const Statement &first = *before.event.statement, &second = *now.event.statement;
        if (!is_known(before, now.thread)) {
            if (!before.write && !now.write) return;
            const bool together = &first == &second && before.event.occurrence == now.event.occurrence &&
                                  thread(before.thread).group == thread(now.thread).group;
            const bool in_order = first.kind == Kind::Issue && second.kind == Kind::Issue &&
                                  before.thread == now.thread && before.write &&
                                  now.write;  // products into the same registers
            if (!together && !in_order)
                report(fmt::format("{}: {} {} {}, which {} of {} {}", name(now.thread), described(second),
                                   now.write ? "writes" : "reads", buffer, described(first), name(before.thread),
                                   before.write ? "may still write" : "may still read"));
        } else if (now.unlike_threads && !now.write && before.write && !before.unlike_threads) {
            expect_fence(before, now, buffer);
        }
    }

    void expect_fence(const Touch& before, const Touch& now, const std::string& buffer) {
        const int written = before.actor == before.thread ? before.step : asynchronous(before.actor).waited_at;
        const int known = state(now.thread).clock.of(before.thread);
        for (const int fence : state(before.thread).fences)
            if (written <= fence && fence <= known) return;
        report(fmt::format("{}: {} reads {}, which {} of {} wrote, without a fence", name(now.thread),
                           described(*now.event.statement), buffer, described(*before.event.statement),
                           name(before.thread)));
    }

    void expect_none_under_way() {
        Clock all;
        for (const State& s : states_) all.join(s.clock);
        for (std::size_t n = 1; n < asynchronous_.size(); ++n)
            if (asynchronous_[n].statement->kind != Kind::Issue && all.of(count() + static_cast<int>(n)) == 0)
                report(fmt::format("{} may be under way when the kernel ends", described(*asynchronous_[n].statement)));
    }

    const Kernel& kernel_;
    std::vector<Thread> threads_;
    std::set<std::string>& hazards_;
    std::vector<State> states_;
    std::vector<Asynchronous> asynchronous_;  ///< the kernel before, and what threads have begun
    int kernel_before_ = 0;
    bool begun_ = false;  ///< channels
    std::map<std::string, PhaseBarrier> barriers_;
    std::map<std::string, std::vector<Touch>> past_;
};

}  // namespace

std::vector<std::string> find_hazards(const Kernel& kernel) {
    std::set<std::string> hazards;
    const int most = chunks_to_unroll(kernel);
    for (const Copied copied : {Copied::All, Copied::None, Copied::EveryOther}) {
        for (int chunks = fewest_chunks(kernel); chunks <= kFewChunks; ++chunks)
            Run(kernel, chunks, copied, hazards).run();
        Run(kernel, most, copied, hazards).run();
        if (!has_hardware_copies(kernel)) break;
    }
    return {hazards.begin(), hazards.end()};
}

void verify(const Kernel& kernel) {
    const std::vector<std::string> hazards = find_hazards(kernel);
    if (!hazards.empty()) throw InternalError(fmt::format("kernel {}: {}", kernel.name, fmt::join(hazards, "; ")));
}

}  // namespace forge::kernel
