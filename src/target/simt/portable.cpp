/// Which of the schedules of portable kernels that fit is taken: the one that is predicted to be fastest.
#include <algorithm>
#include <optional>

#include "emit/cuda/emit_cuda.h"
#include "forge/error.h"
#include "graph/saved_states.h"
#include "graph/slice.h"
#include "target/gpu_cost.h"
#include "target/gpu_target.h"
#include "target/simt/shared_memory.h"

namespace forge::target {
namespace {

using plan::Schedule;
using plan::Strategy;

class Cheapest {
  public:
    Cheapest(const ir::Definition& definition, const ir::Function& program, const Question& question,
             const Wishes& wishes)
        : definition_(definition),
          program_(program),
          question_(question),
          asked_(fit_wishes(question.problem, wishes)) {}

    Schedule run() {
        if (asked_.chunk == 1) return fit(asked_);  // token by token: states stay where threads hold them
        for (const std::optional<Strategy> strategy : strategies()) try_chunks(strategy);
        if (!best_) return fit(asked_);  // which says why there is none
        if (asked_.threads == 0) {
            FitWishes wide = best_->wishes;
            wide.threads = 2 * kDefaultThreads;
            consider(wide);
        }
        return best_->schedule;
    }

  private:
    static constexpr std::int64_t kFewParts = 4;  ///< of states, which are tasks of their own

    struct Found {
        Schedule schedule;
        FitWishes wishes;
        Takes takes = {};
        bool far = false;  ///< some tiles lie in global memory
    };

    [[nodiscard]] std::vector<std::optional<Strategy>> strategies() const {
        if (asked_.strategy) return {asked_.strategy};
        const bool saved = graph::has_saved_states(program_);
        std::vector<std::optional<Strategy>> all = {Strategy::OnePass, Strategy::Fused};
        if (saved && graph::parallel_axes(program_).empty()) all.erase(all.begin());
        if (!saved && kFewParts * asked_.expected_tasks < question_.gpu()->multiprocessors)
            all.emplace_back(Strategy::Segmented);
        return all;
    }

    /// Large chunks first; no smaller ones where they took longer and had all tiles in shared memory.
    void try_chunks(std::optional<Strategy> strategy) {
        std::optional<double> least;
        for (const std::int64_t chunk : chunks_of(asked_)) {
            FitWishes wishes = asked_;
            wishes.strategy = strategy, wishes.chunk = chunk, wishes.tile_chunks = false;
            std::optional<Found> found = consider(wishes);
            const std::int64_t tasks = asked_.expected_tasks * (asked_.expected_tokens / chunk);
            if (!found || found->far || tasks < question_.gpu()->multiprocessors) {
                wishes.tile_chunks = true;
                if (std::optional<Found> tiled = consider(wishes);
                    tiled && (!found || tiled->takes.better_than(found->takes)))
                    found = tiled;
            }
            if (!found) continue;
            if (least && found->takes.time > *least && !found->far) break;
            least = std::min(least.value_or(found->takes.time), found->takes.time);
        }
    }

    std::optional<Found> consider(const FitWishes& wishes) {
        try {
            Found found{fit(wishes), wishes};
            const plan::Plan plan = plan::make_plan(definition_, program_, question_.problem.sizes, found.schedule);
            const CallCost cost = cost_on_gpu(plan, question_.problem, *question_.gpu());
            found.takes = {cost.seconds, cost.workspace_bytes};
            found.far = std::any_of(plan.kernels.begin(), plan.kernels.end(),
                                    [](const plan::Kernel& k) { return k.tiles.far_floats > 0; });
            if (!best_ || found.takes.better_than(best_->takes)) best_ = found;
            return found;
        } catch (const Refused&) {
        } catch (const RuntimeError&) {  // a strategy that the program cannot have
        } catch (const CompileError&) {}
        return std::nullopt;
    }

    [[nodiscard]] Schedule fit(const FitWishes& wishes) const {
        const int threads = wishes.threads ? wishes.threads : kDefaultThreads;
        return fit_shared_memory(definition_, program_, question_.problem.sizes,
                                 shared_memory_of(*question_.gpu(), threads), wishes);
    }

    const ir::Definition& definition_;
    const ir::Function& program_;
    const Question& question_;
    FitWishes asked_;
    std::optional<Found> best_;
};

Schedule fit_portable(const ir::Definition& definition, const ir::Function& program, const Question& question,
                      const Wishes& wishes) {
    return Cheapest(definition, program, question, wishes).run();
}

}  // namespace

const Target& portable_target() {
    static const Target kTarget = {
        "portable",
        "tiles in shared memory, on any GPU from compute capability 8.0 on",
        false,
        [](const Question& q) {
            return q.gpu() && q.wishes.engine.value_or(plan::Engine::Tiles) == plan::Engine::Tiles;
        },
        [](const ir::Definition& definition, const ir::Function& program, const Question& question, Range range) {
            std::vector<Wishes> variations;
            if (range == Range::All) {
                variations = placements(question.wishes);
                for (const int threads : {128, 512}) variations.push_back(with_threads(question.wishes, threads));
                for (const std::int64_t chunk : {32, 128}) variations.push_back(with_chunk(question.wishes, chunk));
            }
            return tried(portable_target(), fit_portable, definition, program, question, variations);
        },
        emit::emit_cuda,
        ".cu"};
    return kTarget;
}

}  // namespace forge::target
