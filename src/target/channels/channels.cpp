#include "target/channels/channels.h"

#include <algorithm>

#include "device/cuda/channels/sizes.h"
#include "emit/cuda/channel_walks.h"
#include "emit/cuda/emit_cuda.h"
#include "emit/cuda/launch.h"
#include "graph/gradient.h"
#include "graph/saved_states.h"
#include "graph/token_kernels.h"
#include "graph/token_program.h"
#include "interp/semantics.h"
#include "support/divide.h"
#include "target/gpu_target.h"

namespace forge::target {
namespace {

constexpr int kFewestThreads = 64, kThreadsOfMatricesBack = 128, kFewThreads = 256, kManyThreads = 512;
constexpr std::int64_t kManyTokens = 4096;

/// How many channels a head has; none: they are the heads.
std::optional<std::int64_t> channels_of(const ir::Function& token, const tile::Sizes& sizes) {
    for (const ir::Result& r : token.results)
        if (r.role == ir::Role::State) {
            const std::string& axis = token.op(r.value).type.shape.back().symbol;
            if (axis != graph::kHeadChannels) return sizes.at(axis);
        }
    return std::nullopt;
}

/// Sequences × heads × parts of the channels.
std::int64_t tasks_of(std::optional<std::int64_t> channels, const FitWishes& wishes) {
    if (!channels) return support::divide_up(wishes.expected_tasks, cuda::kTileChannels);
    return wishes.expected_tasks * support::divide_up(*channels, cuda::kTileChannels);
}

/// Tokens of a thread, whatever kernel it is of.
std::int64_t rows_of(const ir::Definition& definition, const std::vector<graph::TokenKernel>& kernels,
                     const plan::Schedule& schedule) {
    std::vector<int> rows;
    for (const graph::TokenKernel& k : kernels)
        if (!graph::adds_up(k.token))
            rows.push_back(emit::rows_of(definition, k.token, k.reverse, schedule.clusters, schedule.block_threads));
    return *std::min_element(rows.begin(), rows.end());
}

/// Of the plan's kernels, that which takes the most shared memory, and how much.
std::pair<std::string, std::int64_t> most_shared_memory(const plan::Plan& plan) {
    std::pair<std::string, std::int64_t> most;
    for (const plan::Kernel& kernel : plan.kernels)
        if (const std::int64_t bytes = emit::launch_of(plan, kernel).shared_bytes; bytes > most.second)
            most = {kernel.graph.name, bytes};
    return most;
}

/// Heads that are channels are the same for all tensors.
void check_heads(const ir::Definition& definition) {
    std::optional<Dim> heads;
    const auto look = [&](const Dim& d) {
        if (d.is_constant()) refuse(Reason::NumberedHeads, d.factor);
        if (heads.value_or(d) != d) refuse(Reason::SeveralHeads, to_string(*heads), to_string(d));
        heads = d;
    };
    for (const ir::InputDecl& in : definition.inputs)
        if (in.role != ir::Role::Scalar) look(in.type.shape[in.role == ir::Role::Head ? 0 : 1]);
    for (const ir::OutputDecl& out : definition.outputs) look(out.type.shape[1]);
}

}  // namespace

plan::Schedule fit_channels(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                            const FitWishes& wishes, int threads, int multiprocessors, std::int64_t shared_bytes) {
    const std::vector<graph::TokenKernel> kernels = graph::token_kernels(program);  // it refuses
    const std::optional<std::int64_t> channels = channels_of(kernels[0].token, sizes);
    const bool meet = std::any_of(kernels.begin(), kernels.end(), [](const graph::TokenKernel& k) {
        return !graph::adds_up(k.token) && graph::mixes_channels(k.token);
    });
    if (!channels) check_heads(definition);
    else if (meet && *channels > cuda::kMostTileChannels)
        refuse(Reason::ManyChannels, *channels, cuda::kMostTileChannels);
    if (definition.fixed_chunk > 1) refuse(Reason::FixedChunk, definition.fixed_chunk);
    if (const plan::Strategy asked = wishes.strategy.value_or(plan::Strategy::OnePass);
        asked != plan::Strategy::OnePass)
        refuse(Reason::OtherStrategy, plan::to_string(asked));
    if (wishes.tiles > 1) refuse(Reason::OtherTiles, wishes.tiles);
    const bool back = graph::has_saved_states(program);
    const bool by_token = definition.step || definition.fixed_chunk == 1 ||
                          (back ? interp::goes_by_token(graph::without_gradients(definition))
                                : interp::goes_by_token(definition, program));
    if (!by_token) refuse(Reason::NoStep);
    plan::Schedule s;
    if (wishes.chunk) s.chunk = wishes.chunk;
    s.vector_width = 4;
    s.shared_memory = true;
    s.engine = plan::Engine::Channels;
    // Few tasks of long sequences would leave multiprocessors idle, that share them without end through the workspace.
    s.clusters =
        multiprocessors > 0 && std::int64_t{2} * cuda::kMostBlocks * tasks_of(channels, wishes) >= multiprocessors;
    // The more threads, the fewer rounds of a cluster, as long as there are tokens for all of its blocks.
    s.block_threads = threads                                               ? threads
                      : back && graph::rows_of(kernels[0].token)            ? kThreadsOfMatricesBack
                      : s.clusters && wishes.expected_tokens >= kManyTokens ? kManyThreads
                                                                            : kFewThreads;
    if (back) s.chunk = rows_of(definition, kernels, s);  // states before which are stored
    if (shared_bytes == 0) return s;
    for (;; s.block_threads /= 2) {  // fewer strips leave each other fewer maps
        const auto [kernel, bytes] = most_shared_memory(plan::make_plan(definition, program, sizes, s));
        if (bytes <= shared_bytes) return s;
        if (threads || s.block_threads == kFewestThreads)
            refuse(Reason::SharedMemoryOfChannels, kernel, bytes, shared_bytes);
    }
}

namespace {

/// Held against bench/results/2026-11-22-h200-vs-fla.csv by bench/cost_against_measured.py.
constexpr double kStart = 7e-6;    ///< launch, first loads, exchanges and last stores
constexpr double kReached = 0.87;  ///< of what other kernels reach of the memory's rate
/// Of the arithmetic's time, where states are matrices whose rows each exchange their maps: forwards, and the two ways
/// of gradients; held against bench/results/2026-11-27-h200-rows.csv and the kernels in
/// bench/results/2026-11-27-h200-rows-kernels.txt.
constexpr double kRows = 1.6, kRowsThere = 3.7, kRowsBack = 2.2;

double of_rows(const plan::Plan& plan, const plan::Kernel& kernel) {
    if (emit::state_rows(plan) == 0 || emit::is_sums(kernel)) return 1;
    return kernel.graph.reverse ? kRowsBack : plan.kernels.size() > 1 ? kRowsThere : kRows;
}

}  // namespace

void predict_channels(CallCost& cost, const plan::Plan& plan) {
    cost.seconds = kStart;
    for (std::size_t i = 0; i < cost.kernels.size(); ++i) {
        StageCost& k = cost.kernels[i];
        k.hops = 1;  // tokens are shared out over threads, which exchange their maps
        k.memory_seconds /= kReached;
        k.arithmetic_seconds *= of_rows(plan, plan.kernels[i]);
        k.seconds = std::max({k.memory_seconds, k.arithmetic_seconds});
        cost.seconds += k.seconds;
    }
    cost.basis = "the rate at which kernels of channels pass over memory, measured on an NVIDIA H200";
}

const Target& channels_target() {
    static const Target kTarget = {
        "channels",
        "a few channels of vector states in a thread's registers, token by token",
        false,
        [](const Question& q) {
            return q.gpu() && q.walk != Walk::Tokens &&
                   q.wishes.engine.value_or(plan::Engine::Channels) == plan::Engine::Channels;
        },
        [](const ir::Definition& definition, const ir::Function& program, const Question& question, Range range) {
            const auto fit = [](const ir::Definition& def, const ir::Function& fn, const Question& q,
                                const Wishes& wishes) {
                const int of_clusters = q.gpu()->major >= 9 ? q.gpu()->multiprocessors : 0;
                return fit_channels(def, fn, q.problem.sizes, fit_wishes(q.problem, wishes), wishes.threads,
                                    of_clusters, q.gpu()->shared_bytes);
            };
            std::vector<Wishes> variations;
            if (range == Range::All)
                for (const int threads : {128, 256, 512}) variations.push_back(with_threads(question.wishes, threads));
            return tried(channels_target(), fit, definition, program, question, variations);
        },
        emit::emit_cuda,
        ".cu"};
    return kTarget;
}

}  // namespace forge::target
