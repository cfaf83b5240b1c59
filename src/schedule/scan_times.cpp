#include "schedule/scan_times.h"

#include <algorithm>
#include <utility>

#include "tile/fragments.h"

namespace forge::schedule {
namespace {

using ir::Opcode;
using tile::kBlock;

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

}  // namespace

double SegmentTimes::in_segments() const {
    constexpr double kSummaryChunk = 1.25, kJoin = 16, kKernel = 30;
    const auto all = static_cast<double>(chunks), n = static_cast<double>(segments),
               parts = static_cast<double>(std::max<std::int64_t>(1, summaries));
    const double scans = all / n * std::max(chunk, n * memory), before = kSummaryChunk * all / (n * parts);
    return scans + before + (summaries > 0 ? kJoin : kKernel);
}

bool SegmentTimes::pay() const {
    constexpr double kWorthIt = 0.97;
    return in_segments() < kWorthIt * in_one_pass();
}

SegmentTimes segment_times(const ir::Definition& definition, const ir::Function& program, const tile::Sizes& sizes,
                           const FitWishes& wishes) {
    constexpr double kProduct = 0.145, kMatrix = 0.083, kBytesPerMicrosecond = 4.2e6;
    tile::Sizes of_chunk = sizes;
    of_chunk[ir::kChunkSymbol] = kBlock;
    SegmentTimes times;
    for (const ir::Op& op : program.ops) {
        if (ir::is_matmul(op.code)) times.chunk += kProduct;
        else if (ir::is_elementwise(op.code) && tile::is_block_matrix(tile::with_sizes(op.type, of_chunk)))
            times.chunk += kMatrix;
    }
    times.memory =
        static_cast<double>(wishes.expected_tasks) * bytes_of_chunk(definition, sizes) / kBytesPerMicrosecond;
    times.chunks = wishes.expected_tokens / kBlock;
    return times;
}

double microseconds_ahead(const ir::Function& ahead) {
    constexpr double kProduct = 0.33, kInverse = 1.1, kDecays = 4, kMoreDecays = 0.6, kMask = 0.45, kStored = 0.25;
    double sum = 0;
    bool decays = false;
    for (const ir::Op& op : ahead.ops) {
        if (op.code == Opcode::DecayMatmul || op.code == Opcode::DecayApply)
            sum += std::exchange(decays, true) ? kMoreDecays : kDecays;
        else if (ir::is_matmul(op.code)) sum += kProduct;
        else if (op.code == Opcode::Inverse) sum += kInverse;
        else if (op.code == Opcode::DecayMask) sum += kMask;
    }
    for (const ir::Result& r : ahead.results) sum += tile::is_block_matrix(ahead.op(r.value).type) ? kStored : 0;
    return sum;
}

double microseconds_of_chunk(const plan::Plan& plan, const ir::Function& scan) {
    constexpr double kProduct = 0.2, kKilobyte = 0.008;  // of what was made ahead
    double sum = 0;
    for (const ir::Op& op : scan.ops) sum += ir::is_matmul(op.code) ? kProduct : 0;
    for (const plan::SpillSlot& spill : plan.spills)
        sum += kKilobyte * static_cast<double>(spill.floats) * sizeof(float) / 1024;
    return sum;
}

}  // namespace forge::schedule
