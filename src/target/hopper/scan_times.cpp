#include "target/hopper/scan_times.h"

#include <algorithm>
#include <utility>

#include "support/divide.h"
#include "target/hopper/fitted.h"
#include "target/hopper/group_times.h"
#include "tile/fragments.h"
#include "tile/order.h"

namespace forge::target {
namespace {

using ir::Opcode;
using tile::kBlock;

/// With fewer a scan waits for what a chunk reads: its memory is free only when the last group is done with it.
constexpr int kStagesInTime = 3;

/// What a chunk of one head moves between global memory and kernels, in bytes.
double bytes_of_chunk(const ir::Definition& definition, const tile::Sizes& sizes) {
    double bytes = 0;
    const auto add = [&](const ir::Type& type) {
        auto row = static_cast<double>(size_in_bytes(type.dtype));
        for (const Dim& d : type.shape) {  // tokens and heads have no size here
            const auto size = sizes.find(d.symbol);
            row *= static_cast<double>(d.factor * (size == sizes.end() ? 1 : size->second));
        }
        bytes += kBlock * row;
    };
    for (const ir::InputDecl& in : definition.inputs)
        if (in.role == ir::Role::Input) add(in.type);
    for (const ir::OutputDecl& out : definition.outputs) add(out.type);
    return bytes;
}

/// A product beside those of the table, which are of keys of 128 numbers: two blocks of 64 x 64 x 64.
double size_of_product(const ir::Function& fn, const ir::Op& product) {
    constexpr double kUsual = 2;
    const std::int64_t inner = tile::size_of(fn.op(product.args[0]).type, product.attrs.trans_a ? 0 : 1);
    return std::max(1.0, blocks_of(product.type) * static_cast<double>(inner) / kBlock / kUsual);
}

/// Operations of a chunk, and what they take a scan with roles that makes all itself.
void count(const ir::Function& fn, const tile::Sizes& of_chunk, SegmentTimes& times) {
    for (const ir::Op& op : fn.ops) {
        if (ir::is_matmul(op.code)) ++times.products;
        else if (ir::is_elementwise(op.code) && tile::is_block_matrix(tile::with_sizes(op.type, of_chunk)))
            ++times.matrices;
    }
    times.chunk = times.products * kH200.product + times.matrices * kH200.matrix;
}

}  // namespace

double blocks_of(const ir::Type& type) {
    if (!tile::is_block_matrix(type)) return 0;
    return static_cast<double>(tile::size_of(type, 0) * tile::size_of(type, 1)) / (kBlock * kBlock);
}

double further_blocks(const ir::Function& fn, const ir::Op& product) {
    return 2 * (size_of_product(fn, product) * tile::products_of_parts(fn) - 1);
}

double factor_of_sizes(const ir::Function& fn) {
    double products = 0, sum = 0;
    for (const ir::Op& op : fn.ops)
        if (ir::is_matmul(op.code)) products += 1, sum += size_of_product(fn, op);
    return products > 0 ? sum / products : 1;
}

double SegmentTimes::in_segments() const {
    const auto all = static_cast<double>(chunks), n = static_cast<double>(segments),
               parts = static_cast<double>(std::max<std::int64_t>(1, summaries));
    const double scans = all / n * std::max(chunk, n * memory), before = kH200.summary_chunk * all / (n * parts);
    return scans + before + (summaries > 0 ? kH200.join : kH200.kernel);
}

bool SegmentTimes::pay() const { return in_segments() < kH200.worth_it * in_one_pass(); }

double MatrixSegmentTimes::in(std::int64_t segments) const {
    const auto all = static_cast<double>(chunks), n = static_cast<double>(segments);
    if (segments < 2) return all * chunk;
    const auto rounds = static_cast<double>(support::divide_up(heads * (segments - 1) * tiles, multiprocessors));
    const double summaries = rounds * kH200.matrix_summary_chunk * (forgetting ? kH200.forgotten : 1),
                 scans = std::max(chunk, static_cast<double>(heads) * n * bytes / kH200.matrix_bytes);
    return ahead + all / n * (summaries + scans) + n * kH200.matrix_join + kH200.matrix_kernels;
}

std::int64_t MatrixSegmentTimes::best(std::int64_t most) const {
    std::int64_t found = 1;
    for (std::int64_t n = 2; n <= most; ++n)
        if (in(n) < in(found)) found = n;
    return in(found) < kH200.worth_it * in(1) ? found : 1;
}

MatrixSegmentTimes matrix_segment_times(const plan::Plan& one_pass, const FitWishes& wishes, int multiprocessors) {
    MatrixSegmentTimes times;
    times.chunks = wishes.expected_tokens / kBlock, times.heads = wishes.expected_tasks;
    times.multiprocessors = multiprocessors;
    times.chunk = microseconds_of_chunk(one_pass, one_pass.scan());
    times.bytes = bytes_of_chunk(one_pass.definition, one_pass.sizes);
    for (const plan::SpillSlot& spill : one_pass.spills)
        times.bytes += static_cast<double>(spill.floats) * sizeof(float);
    times.ahead = microseconds_ahead(one_pass.kernels.front().tiles.fn) *
                  static_cast<double>(times.heads * times.chunks) / multiprocessors;
    return times;
}

double RelayTimes::in(std::int64_t segments) const {
    const std::int64_t all = tasks * segments, rest = all % at_once;
    const double share = static_cast<double>(support::divide_up(chunks, segments)) / static_cast<double>(chunks);
    const auto round = [&](std::int64_t n) {
        return share * std::max(scan, memory * static_cast<double>(n) / static_cast<double>(tasks)) + task;
    };
    return static_cast<double>(all / at_once) * round(at_once) + (rest > 0 ? round(rest) : 0) +
           (segments > 1 ? kH200.relay_call : 0);
}

std::int64_t RelayTimes::best() const {
    constexpr std::int64_t kLeastOfSegment = 4;  // of a segment
    if (tasks <= at_once) return 1;              // segments of a sequence do not run at the same time
    std::int64_t found = 1;
    for (std::int64_t n = 2; n * kLeastOfSegment <= chunks; ++n)
        if (in(n) < in(found)) found = n;
    return in(found) < kH200.relay_worth_it * in(1) ? found : 1;
}

SegmentTimes segment_times(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                           const tile::Sizes& held, const FitWishes& wishes) {
    tile::Sizes of_chunk = held;
    of_chunk[ir::kChunkSymbol] = kBlock;
    SegmentTimes times;
    count(program, of_chunk, times);
    times.memory =
        static_cast<double>(wishes.expected_tasks) * bytes_of_chunk(definition, sizes) / kH200.bytes_per_microsecond;
    times.chunks = wishes.expected_tokens / kBlock;
    return times;
}

namespace {

/// Of operations alone.
double microseconds_of(const ir::Function& fn, const tile::Roles* roles) {
    constexpr double kOfFurther = 0.5;  // of a product's time, of each further product of parts
    const int of_all = tile::products_of_parts(fn);
    const auto products = [&](const ir::Op& op) {  // more of inverses, which are operands in shared memory
        const auto parts = [&](std::size_t i) {
            const ir::Layout& layout = *fn.op(op.args[i]).layout;
            return layout.space == ir::Layout::Space::Operand ? layout.parts : 1;
        };
        return 1 + kOfFurther * (std::max(of_all, tile::products_of_parts(parts(0), parts(1))) - 1);
    };
    double sum = 0;
    bool decays = false;
    for (ir::ValueId v = 0; v < fn.size(); ++v) {
        const ir::Op& op = fn.op(v);
        if (roles && !roles->does(tile::Roles::kGives, v)) continue;
        if (op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply)
            sum += std::exchange(decays, true) ? kH200.ahead_more_decays : kH200.ahead_decays;
        else if (ir::is_matmul(op.code)) sum += kH200.ahead_product * products(op);
        else if (op.code == Opcode::Inverse) sum += kH200.ahead_inverse;
        else if (op.code == Opcode::DecayMask) sum += kH200.ahead_mask;
    }
    return sum;
}

/// Of 64 x 64 blocks: matrices that are kept as floats, that functions are computed of, and that are summed.
double microseconds_of_numbers(const ir::Function& fn) {
    const auto blocks = [&](ir::ValueId v) { return blocks_of(fn.op(v).type); };
    double sum = 0;
    for (ir::ValueId v = 0; v < fn.size(); ++v) {
        const ir::Op& op = fn.op(v);
        if (op.args.empty() || ir::is_view(op.code) || op.code == Opcode::DecayMask) continue;
        if (op.layout->space == ir::Layout::Space::Tile) sum += kH200.ahead_floats * blocks(v);
        if (ir::is_elementwise(op.code) && tile::costly(op.code)) sum += kH200.ahead_function * blocks(v);
        if (ir::along(op.code) == ir::Along::Reduced && fn.op(op.args[0]).layout->space != ir::Layout::Space::Spill)
            sum += kH200.ahead_sum * blocks(op.args[0]);
    }
    return sum;
}

/// Of a block of tiles that have nothing in common.
double microseconds_of_tiles(const ir::Function& scan) {
    double sum = 0;
    for (const ir::Op& op : scan.ops) {
        if (ir::is_matmul(op.code)) sum += kH200.side_product + kH200.side_block * further_blocks(scan, op);
        else if (ir::is_elementwise(op.code) && op.layout->space != ir::Layout::Space::Reg)
            sum += kH200.side_matrix * blocks_of(op.type);
    }
    return sum;
}

}  // namespace

double microseconds_ahead(const ir::Function& ahead, double size) {
    double sum = size * microseconds_of(ahead, nullptr) + microseconds_of_numbers(ahead);
    for (const ir::Result& r : ahead.results)
        sum += tile::is_block_matrix(ahead.op(r.value).type) ? kH200.ahead_stored : 0;
    return sum;
}

double microseconds_of_block(const plan::Kernel& kernel) {
    const ir::Function& fn = kernel.tiles.fn;
    if (kernel.has_tiles_apart()) return microseconds_of_tiles(fn);
    const tile::Roles& roles = *kernel.tiles.roles;
    double tiles = 0;
    for (ir::ValueId v = 0; v < fn.size(); ++v) {
        const ir::Op& op = fn.op(v);
        if (!roles.does(tile::Roles::kTakes, v) || op.layout->space == ir::Layout::Space::Reg) continue;
        if (ir::is_matmul(op.code)) tiles += kH200.block_product;
        else if (ir::is_elementwise(op.code) && tile::is_block_matrix(op.type)) tiles += kH200.block_matrix;
    }
    const double common = microseconds_of(fn, &roles) + kH200.ahead_stored * static_cast<double>(roles.passed.size());
    return std::max(kH200.block_common * common, tiles);
}

double microseconds_of_chunk(const plan::Plan& plan, const plan::Kernel& scan) {
    if (scan.tiles.roles && scan.tiles.roles->by_tiles) return microseconds_of_block(scan);
    double sum = 0;
    for (const ir::Op& op : scan.tiles.fn.ops) sum += ir::is_matmul(op.code) ? kH200.beside_product : 0;
    for (const plan::SpillSlot& spill : plan.spills)
        sum += kH200.beside_kilobyte * static_cast<double>(spill.floats) * sizeof(float) / 1024;
    return std::max(sum, microseconds_of_roles(scan.tiles));
}

namespace {

/// Of a scan beside its work ahead.
double microseconds_of_chunk_beside(const plan::Plan& plan, const plan::Kernel& scan) {
    return microseconds_of_chunk(plan, scan) * (scan.has_tiles_apart() ? kH200.side_beside : 1);
}

}  // namespace

double steps_of_task_ahead(const plan::Plan& plan, const plan::Kernel& ahead, const plan::Kernel& scan) {
    const double size = scan.has_tiles_apart() ? factor_of_sizes(ahead.tiles.fn) : 1;  // else both are so much larger
    return size * microseconds_ahead(ahead.tiles.fn) / microseconds_of_chunk_beside(plan, scan);
}

double microseconds_beside(const plan::Plan& plan, runtime::WorkBeside work, double task_factor, std::int64_t lanes,
                           int multiprocessors) {
    const plan::Kernel& scan = plan.scan();
    const std::int64_t parts = scan.parts(), blocks = lanes * parts;
    const runtime::BesideBlocks placed = runtime::place_beside(work, blocks, parts, multiprocessors);
    const std::int64_t a_round = std::int64_t{multiprocessors} * work.groups,
                       rounds = support::divide_up(placed.common, a_round),
                       staying = blocks < multiprocessors ? multiprocessors - blocks : multiprocessors;
    work.task_steps *= task_factor;
    return runtime::end_of_scan(work, rounds, lanes, staying, multiprocessors) *
           microseconds_of_chunk_beside(plan, scan);
}

namespace {

/// Of a call in which scan and work ahead are `chain` for each block and `ahead` for all multiprocessors together.
struct ScanAndWork {
    double chain = 0, ahead = 0;
    std::int64_t lanes = 1, tasks = 0, blocks = 1;  ///< heads of sequences, tasks of the work, blocks of the scan
};

ScanAndWork scan_and_work(const plan::Plan& plan, const FitWishes& wishes, int multiprocessors) {
    const plan::Kernel& scan = plan.scan();
    const std::int64_t chunks = wishes.expected_tokens / kBlock;
    ScanAndWork all;
    all.lanes = std::max<std::int64_t>(1, wishes.expected_tasks);
    all.tasks = all.lanes * chunks, all.blocks = all.lanes * scan.parts();
    const bool by_tiles = plan.schedule.block_tiles > 1, waits = plan.schedule.stages < kStagesInTime && !by_tiles;
    const double of_sizes = by_tiles ? 1 : factor_of_sizes(scan.tiles.fn),
                 size = of_sizes > 1 ? of_sizes * kH200.beside_wide : 1,
                 chunk = size * (microseconds_of_chunk(plan, scan) + (waits ? kH200.beside_wait : 0));
    const std::int64_t segments = std::max<std::int64_t>(1, plan.schedule.segments), hops = chunks / segments;
    all.chain = static_cast<double>(hops) * chunk;
    if (plan.schedule.is_relay()) all.blocks *= segments, all.chain += microseconds_of_relay_task(scan);
    for (const plan::Kernel& kernel : plan.kernels)
        if (kernel.graph.loop == plan::Loop::Chunks)
            all.ahead += microseconds_ahead(kernel.tiles.fn, factor_of_sizes(kernel.tiles.fn)) *
                         static_cast<double>(all.tasks) / multiprocessors;
    return all;
}

}  // namespace

double microseconds_of_scan_and_work(const plan::Plan& plan, const FitWishes& wishes, int multiprocessors) {
    const ScanAndWork all = scan_and_work(plan, wishes, multiprocessors);
    if (plan.schedule.strategy == plan::Strategy::Segmented) return all.ahead + all.chain;
    return std::max(all.chain, all.ahead + all.chain * static_cast<double>(all.blocks) / multiprocessors);
}

double microseconds_of_segments_and_work(const plan::Plan& plan, const FitWishes& wishes, int multiprocessors) {
    const Schedule& s = plan.schedule;
    const auto parts = static_cast<double>(s.segments * std::max<std::int64_t>(1, s.summaries)),
               chunks = static_cast<double>(wishes.expected_tokens) / kBlock;
    const ScanAndWork all = scan_and_work(plan, wishes, multiprocessors);
    return all.ahead + kH200.summary_chunk * chunks / parts + (s.summaries > 0 ? kH200.join : kH200.kernel) + all.chain;
}

double microseconds_of_relay_task(const plan::Kernel& scan) {
    double states = 0;
    for (const ir::Result& r : scan.tiles.fn.results)
        if (r.role == ir::Role::State) states += blocks_of(scan.tiles.fn.op(r.value).type);
    return kH200.relay_task + kH200.relay_block * states;
}

RelayTimes relay_times(const plan::Plan& one_pass, const FitWishes& wishes, int multiprocessors) {
    const plan::Kernel& scan = one_pass.scan();
    const ScanAndWork all = scan_and_work(one_pass, wishes, multiprocessors);
    RelayTimes times;
    times.chunks = std::max<std::int64_t>(1, wishes.expected_tokens / kBlock);
    times.tasks = all.blocks;
    times.at_once = (one_pass.is_paired(scan) ? 2 : 1) * multiprocessors;
    const Extent a_round{times.at_once, times.chunks};
    times.scan =
        one_pass.schedule.producer ? microseconds_of_scan(one_pass, scan, a_round, multiprocessors) : all.chain;
    times.task = microseconds_of_relay_task(scan);
    times.memory = static_cast<double>(all.tasks) * bytes_of_chunk(one_pass.definition, one_pass.sizes) /
                   kH200.bytes_per_microsecond;
    return times;
}

double least_of_tiles_apart(const plan::Plan& other, const FitWishes& wishes) {
    const auto& ops = other.scan().tiles.fn.ops;
    const auto products =
        std::count_if(ops.begin(), ops.end(), [](const ir::Op& op) { return ir::is_matmul(op.code); });
    const std::int64_t chunks = wishes.expected_tokens / kBlock;
    return static_cast<double>((products - 1) * chunks) * kH200.side_product;
}

double microseconds_of_call(const plan::Plan& plan, const FitWishes& wishes, int multiprocessors) {
    const ScanAndWork all = scan_and_work(plan, wishes, multiprocessors);
    const runtime::WorkBeside work{all.tasks, plan.schedule.beside_groups, plan.schedule.beside_steps};
    if (work.groups > 0) return microseconds_beside(plan, work, 1, all.lanes, multiprocessors);
    return all.ahead + all.chain * static_cast<double>(support::divide_up(all.blocks, multiprocessors));
}

}  // namespace forge::target
