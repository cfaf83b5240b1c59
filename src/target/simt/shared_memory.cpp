#include "target/simt/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "emit/coming.h"
#include "forge/error.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "target/gpu_target.h"
#include "tile/held.h"

namespace forge::target {
namespace {

using plan::Schedule;
using plan::Strategy;

constexpr std::int64_t kVector = 4;  ///< floats that a thread handles at a time
/// Floats of states that a thread holds: so many that other blocks have loads under way too, and warps enough to hide
/// what each waits for.
constexpr std::int64_t kMostHeld = 64;
constexpr std::int64_t kReserved = 1024;  ///< bytes of shared memory, of each block
constexpr std::int64_t kGoodTile = 32;    ///< columns below which products no longer keep the warps of a block busy

/// How many parts an axis may be cut into, few first: parts are whole vectors, so that parts of spills stay aligned.
std::vector<std::int64_t> splits(std::int64_t size) {
    std::vector<std::int64_t> counts = {1};
    for (std::int64_t n = 2; n <= size / kVector; ++n)
        if (size % n == 0 && size / n % kVector == 0) counts.push_back(n);
    return counts;
}

/// Of the kernel that needs most, in bytes.
std::int64_t need_of(const plan::Plan& plan) {
    std::int64_t most = 0;
    for (const plan::Kernel& kernel : plan.kernels) most = std::max(most, kernel.tiles.scratch_floats);
    return most * static_cast<std::int64_t>(sizeof(float));
}

double far_floats(const plan::Plan& plan) {
    std::int64_t floats = 0;
    for (const plan::Kernel& kernel : plan.kernels) floats += kernel.tiles.far_floats;
    return static_cast<double>(floats);
}

class Fitting {
  public:
    Fitting(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
            const SharedMemory& memory, const FitWishes& wishes)
        : definition_(definition), program_(program), sizes_(sizes), memory_(memory), wishes_(wishes) {
        // Scans that could not be cut with their outputs are cut alone.
        const bool apart = graph::has_saved_states(program) && graph::parallel_axes(program).empty();
        strategy_ = wishes.strategy.value_or(apart ? Strategy::Fused : Strategy::OnePass);
        for (const std::string& axis : plan::cut_axes(program, strategy_))
            if (axis_.empty() && sizes.contains(axis)) axis_ = axis;
        check_tiles();
    }

    Schedule run() {
        std::vector<Refusal> refused;
        if (goes_by_token()) {
            if (const std::optional<Schedule> s = holding(refused)) return *s;
        }
        Schedule s = in_memory();
        s.refused = std::move(refused);
        return s;
    }

  private:
    [[nodiscard]] Schedule in_memory() const {
        for (const std::int64_t chunk : chunks_of(wishes_))
            for (const std::int64_t tiles : tile_counts()) {
                const Schedule s = schedule(chunk, tiles);
                const plan::Plan plan = plan::make_plan(definition_, program_, sizes_, s);
                if (need_of(plan) <= memory_.bytes && far_floats(plan) == 0) return s;
            }
        return with_far_tiles();
    }

    /// Whether states can stay with the threads from the first token to the last.
    [[nodiscard]] bool goes_by_token() const {
        const bool states = std::any_of(definition_.states.begin(), definition_.states.end(),
                                        [](const auto& s) { return s.type.rank() > 1; });
        return wishes_.hold && wishes_.chunk == 1 && strategy_ == Strategy::OnePass && states &&
               !graph::has_saved_states(program_);
    }

    /// Threads of a block, and tiles.
    using Shape = std::pair<int, std::int64_t>;

    /// The fewest threads and tiles with which threads can hold all states: the more each has, the less all that is not
    /// states costs. More tiles only where multiprocessors would have nothing to do, or nothing beside one block.
    [[nodiscard]] std::optional<Schedule> holding(std::vector<Refusal>& refused) const {
        constexpr std::int64_t kNarrow = 16;  // columns
        constexpr int kLeastBlocks = 2;
        std::optional<Schedule> best;
        std::string why;
        for (const auto& [threads, tiles] : shapes()) {
            if (best && tiles <= best->tiles) continue;  // fewer threads hold as much
            Schedule s = schedule(1, tiles);
            s.shared_floats = 0;
            s.block_threads = threads, s.holds_states = true, s.states_ahead = is_half(wishes_.state_dtype);
            plan::Plan plan = plan::make_plan(definition_, program_, sizes_, s);
            plan.state_dtype = wishes_.state_dtype;
            if (const std::string no = why_not(plan); !no.empty()) {
                if (why.empty()) why = no;
                continue;
            }
            set_blocks(s, plan);
            best = s;
            const bool busy = wishes_.expected_tasks * tiles >= memory_.multiprocessors;
            if ((busy && s.resident_blocks >= kLeastBlocks) || s.tile_size <= kNarrow) return best;
        }
        if (!best) refused.push_back(refusal(Reason::NotHeld, why));
        return best;
    }

    /// In the order of preference: few threads first, as many small blocks have loads under way at different times.
    /// Where blocks take tasks in turn, loads are under way anyway, and few tiles come first: whatever is done once per
    /// task is done for more of a state.
    [[nodiscard]] std::vector<Shape> shapes() const {
        std::vector<Shape> found;
        for (const int threads : wishes_.threads ? std::vector<int>{wishes_.threads} : std::vector<int>{128, 256, 512})
            for (const std::int64_t tiles : all_tile_counts()) found.emplace_back(threads, tiles);
        if (is_half(wishes_.state_dtype))
            std::stable_sort(found.begin(), found.end(),
                             [](const Shape& a, const Shape& b) { return a.second < b.second; });
        return found;
    }

    [[nodiscard]] std::vector<std::int64_t> all_tile_counts() const {
        if (axis_.empty()) return {1};
        return wishes_.tiles ? std::vector<std::int64_t>{wishes_.tiles} : splits(sizes_.at(axis_));
    }

    /// Why a plan does not hold its states; empty: it does.
    [[nodiscard]] std::string why_not(const plan::Plan& plan) const {
        const tile::TileKernel& tiles = plan.kernels.front().tiles;
        const std::int64_t floats = held_floats(plan);
        if (floats == 0) return tiles.not_held;
        if (floats > kMostHeld) return fmt::format("a thread would hold {} floats of states", floats);
        return bytes_of_block(plan) > memory_.bytes ? "vectors and states take more than shared memory has" : "";
    }

    /// Blocks of threads per multiprocessor, for which registers must do: as many as what threads hold of states, and
    /// what they need for all else, leave room for, and shared memory. The more there are, the more loads are under
    /// way.
    void set_blocks(Schedule& s, const plan::Plan& plan) const {
        constexpr std::int64_t kRegisters = 65536, kOthers = 48;
        const std::int64_t by_memory = std::max(memory_.bytes, memory_.all_bytes) / (bytes_of_block(plan) + kReserved);
        const std::int64_t by_registers = kRegisters / (s.block_threads * (kOthers + held_floats(plan)));
        s.resident_blocks = static_cast<int>(std::max<std::int64_t>(1, std::min(by_registers, by_memory)));
    }

    /// With what warps leave each other of a sum, and the next task's states.
    static std::int64_t bytes_of_block(const plan::Plan& plan) {
        constexpr std::int64_t kOfWarps = 8 * 1024;
        return need_of(plan) + kOfWarps + emit::coming_floats(plan) * static_cast<std::int64_t>(sizeof(float));
    }

    /// Of all states, per thread.
    static std::int64_t held_floats(const plan::Plan& plan) {
        return tile::held_floats(plan.kernels.front().tiles.fn, plan.schedule.block_threads);
    }

    void check_tiles() const {
        const auto refused = [&](const std::string& expected) {
            throw RuntimeError(fmt::format("{}: tiles: expected {}, got {}; leave the option out", definition_.name,
                                           expected, wishes_.tiles));
        };
        if (wishes_.tiles <= 1) return;
        if (axis_.empty()) refused("1, as the states and outputs have no axis that could be cut");
        const std::vector<std::int64_t> counts = splits(sizes_.at(axis_));
        if (std::find(counts.begin(), counts.end(), wishes_.tiles) == counts.end())
            refused(fmt::format("one of {}, which cut the {} of {} into parts of whole vectors of {}",
                                fmt::join(counts, ", "), sizes_.at(axis_), forge::to_string(Dim(axis_)), kVector));
    }

    /// From the number of parts that occupies the multiprocessors upwards, then the smaller numbers.
    [[nodiscard]] std::vector<std::int64_t> tile_counts() const {
        if (axis_.empty()) return {1};
        if (wishes_.tiles) return {wishes_.tiles};
        const std::int64_t size = sizes_.at(axis_);
        std::vector<std::int64_t> counts = splits(size);
        const auto enough = std::find_if(counts.begin(), counts.end(), [&](std::int64_t n) {
            return wishes_.expected_tasks * n >= memory_.multiprocessors || size / n <= kGoodTile;
        });
        counts.erase(counts.begin(), enough == counts.end() ? enough - 1 : enough);
        return counts;
    }

    [[nodiscard]] Schedule schedule(std::int64_t chunk, std::int64_t tiles) const {
        Schedule s;
        s.strategy = strategy_;
        s.block_threads = wishes_.threads ? wishes_.threads : kDefaultThreads;
        s.chunk = chunk;
        s.share = chunk > 1;
        s.vector_width = kVector;
        s.shared_memory = true;
        s.shared_floats = memory_.bytes / static_cast<std::int64_t>(sizeof(float));
        if (!axis_.empty()) s.tile_axis = axis_, s.tiles = tiles, s.tile_size = sizes_.at(axis_) / tiles;
        s.tile_chunks = wishes_.tile_chunks && tiles > 1 && plan::cuts_chunks(program_, axis_);
        if (s.strategy == Strategy::Segmented) {
            const std::int64_t most = std::max<std::int64_t>(1, wishes_.expected_tokens / (4 * chunk));
            const std::int64_t wanted = std::max<std::int64_t>(
                2, memory_.multiprocessors / std::max<std::int64_t>(1, wishes_.expected_tasks * tiles));
            s.segments = wishes_.segments ? wishes_.segments : std::max<std::int64_t>(2, std::min(wanted, most));
        }
        return s;
    }

    /// No chunk and no part is small enough: what does not fit lies in global memory, the less per token the better. A
    /// block per multiprocessor has such memory, as the rest leaves no room for a second one.
    [[nodiscard]] Schedule with_far_tiles() const {
        Schedule best;
        double least = 0;
        for (const std::int64_t chunk : chunks_of(wishes_))
            for (const std::int64_t tiles : {tile_counts().front(), tile_counts().back()}) {
                Schedule s = schedule(chunk, tiles);
                s.far_blocks = memory_.multiprocessors;
                const double floats = far_floats(plan::make_plan(definition_, program_, sizes_, s));
                const double per_token = floats * static_cast<double>(tiles) / static_cast<double>(chunk);
                if (least == 0 || per_token < least) best = s, least = per_token;
            }
        return best;
    }

    const ir::Definition& definition_;
    const ir::Function& program_;
    const tile::Sizes& sizes_;
    const SharedMemory& memory_;
    const FitWishes& wishes_;
    Strategy strategy_ = Strategy::OnePass;
    std::string axis_;
};

}  // namespace

std::vector<std::int64_t> chunks_of(const FitWishes& wishes) {
    if (wishes.chunk) return {wishes.chunk};
    std::vector<std::int64_t> sizes = {64, 32, 16};
    std::erase_if(sizes, [&](std::int64_t c) { return c > 16 && c / 2 >= wishes.expected_tokens; });
    return sizes;
}

Schedule fit_shared_memory(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                           const SharedMemory& memory, const FitWishes& wishes) {
    return Fitting(definition, program, sizes, memory, wishes).run();
}

}  // namespace forge::target
