/// Elementwise loops that stand in one, and parts of operands that loops find where they lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "check/check.h"
#include "compile/driver.h"
#include "forge/language.h"
#include "tests/cuda/emulated/program.h"
#include "tests/support/entries.h"
#include "tile/fragments.h"

namespace forge::tests {
namespace {

using ir::Opcode;
using ir::ValueId;
using Space = ir::Layout::Space;

auto emitted_for(const Entry& program, const std::string& entry) {
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = {{"K", 128}, {"V", 128}, {"D", 1024}, {"M", 64}}};
    options.entry = entry, options.on = "h200", options.tuned = false;
    options.expected_tokens = 8192, options.expected_heads = 32;
    return compiler::emitted(program::Module(program.make().define(), BF16), options);
}

Entry named(const std::string& name) {
    for (const Entry& entry : all_programs())
        if (entry.name == name) return entry;
    throw std::runtime_error("no program " + name);
}

const tile::TileKernel& kernel_of(const plan::Plan& plan, const std::string& end) {
    for (const plan::Kernel& kernel : plan.kernels)
        if (kernel.graph.name.ends_with(end)) return kernel.tiles;
    throw std::runtime_error("no kernel " + end);
}

std::ptrdiff_t tiles_of(const tile::TileKernel& kernel, Opcode code) {
    return std::count_if(kernel.fn.ops.begin(), kernel.fn.ops.end(),
                         [&](const ir::Op& op) { return op.code == code && op.layout->space == Space::Tile; });
}

// Eight blocks of turned keys and queries: one loop, whose sines and cosines never leave registers.
TEST(JoinedLoops, OfTurnedKeysHoldNoAngles) {
    const auto made = emitted_for(named("rotary"), "forward");
    const tile::TileKernel& kernel = kernel_of(made->plan, "_shared");
    EXPECT_GE(kernel.joined.size(), 7U);
    EXPECT_EQ(tiles_of(kernel, Opcode::Sin), 0);
    EXPECT_EQ(tiles_of(kernel, Opcode::Cos), 0);
}

// One of two rows per token is read from the keys as they came; no tile has a copy of them.
TEST(PartsInPlace, AreNoTiles) {
    const auto made = emitted_for(named("paired_keys"), "forward");
    const tile::TileKernel& kernel = kernel_of(made->plan, "_shared");
    EXPECT_EQ(tiles_of(kernel, Opcode::Slice), 0);
    EXPECT_EQ(tiles_of(kernel, Opcode::Copy), 0);
    EXPECT_LE(4 * kernel.scratch_floats, 100'000);
}

/// Of four rows per token two are used, elementwise, and their sums.
ir::Definition with_parts_of_parts() {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a("parts_of_parts");
    a.input("q", BF16, {T, H, K}).input("k", BF16, {4 * T, H, K}).input("v", BF16, {T, H, V});
    a.state("s", F32, {K, V}).output("o", BF16, {T, H, V});
    a.chunk({"k", "v"}, [](const Tensor& k, const Tensor& v) {
        const Tensor even = slice(k, 0, 0, 2), sums = sum(even.to(F32), 1);
        const Tensor pair = slice(even, 0, 0, 2).to(F32) * slice(even, 0, 1, 2) * unsqueeze(slice(sums, 0, 0, 2), 1);
        return matmul(transpose(cache_result(pair, "keys")), v.to(F32));
    });
    a.decay({"prev_s", "chunk_state"}, [](const Tensor& prev, const Tensor& chunk) { return prev + chunk; });
    a.merge({"q", "v", "keys", "chunk_state"},
            [](const Tensor& q, const Tensor& v, const Tensor& keys, const Tensor& before) {
                const Tensor wide = q.to(F32);
                return matmul(tril(matmul(wide, transpose(keys))), v.to(F32)) + matmul(wide, before);
            });
    a.step({"q", "k", "v", "prev_s"},
           [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& s) -> Results {
               const Tensor first = select(k, 0, 0), next = s + outer(first * select(k, 0, 2) * sum(first, 0), v);
               return {{"s", next}, {"o", matmul(q, next)}};
           });
    return a.define();
}

// A part of a part that something else needs as a tile is read from that tile.
TEST(PartsInPlace, AreOfWhatIsNoTileItself) {
    const ir::Definition def = with_parts_of_parts();
    check::Problem problem{.H = 1, .sizes = {{"K", 64}, {"V", 64}}, .lengths = {70, 0, 130}, .initial_state = true};
    problem.dtype = BF16;
    CompileOptions options{.device = "cuda", .dtype = BF16, .sizes = problem.sizes};
    options.on = "h200", options.engine = "warp-groups", options.tuned = false;
    const auto made = compiler::emitted(program::Module(def, BF16), options);
    const emulated::Program program("parts_of_parts", made->plan);
    check::Buffers buffers(def, problem);
    const check::Reference reference = check::reference(buffers, made->plan.schedule.chunk);
    program.run(buffers.call(), 1);
    for (const check::Difference& d : check::compare(buffers, reference).differences)
        EXPECT_TRUE(d.ok) << d.name << " " << d.relative_rms;
}

/// What is two matrices by turns stands in a loop over these.
const Shape& shape_of_loop(const ir::Function& fn, ValueId v) {
    const ir::Op& op = fn.op(v);
    return op.code == Opcode::Interleave ? fn.op(op.args[0]).type.shape : op.type.shape;
}

/// What stands in the loop of an operation before it has that loop's shape and reads what the loop makes where the same
/// thread has written it: in tiles of floats and in fragments, but no operands. How many there are.
int expect_right_loops(const plan::Kernel& kernel) {
    const ir::Function& fn = kernel.tiles.fn;
    const std::vector<ValueId>& vectors = kernel.tiles.vectors;
    int joined = 0;
    ValueId first = ir::kNoValue;
    for (ValueId v = 0; v < fn.size(); ++v) {
        const ir::Op& op = fn.op(v);
        if (!kernel.tiles.joined.contains(v)) {
            const bool ahead = std::find(vectors.begin(), vectors.end(), v) != vectors.end();
            if (op.layout->space != Space::Reg && op.code != Opcode::Param && !ir::is_view(op.code) && !ahead)
                first = v;
            continue;
        }
        ++joined;
        EXPECT_EQ(shape_of_loop(fn, v), shape_of_loop(fn, first)) << kernel.graph.name;
        for (const ValueId read : tile::tiles_read_by(fn, v))
            if (read == first || kernel.tiles.joined.contains(read))
                EXPECT_TRUE(read < first || fn.op(read).layout->space != Space::Operand) << kernel.graph.name;
    }
    return joined;
}
int expect_right_loops(const Entry& program, const std::string& entry) {
    const auto made = emitted_for(program, entry);
    int joined = 0;
    for (const plan::Kernel& kernel : made->plan.kernels) joined += expect_right_loops(kernel);
    return joined;
}

// Operands are rounded, and another thread's numbers are not there yet.
TEST(JoinedLoops, ReadNothingThatOtherThreadsMake) {
    int joined = 0;
    for (const Entry& program : all_programs()) joined += expect_right_loops(program, "forward");
    for (const char* program : {"gated_delta_net", "kda", "gla", "rotary", "normalised", "turned_pairs"})
        joined += expect_right_loops(named(program), "backward");
    EXPECT_GE(joined, 30);
}

}  // namespace
}  // namespace forge::tests
