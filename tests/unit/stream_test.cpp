/// Row loops: which ops share one, in IR text, and what becomes of their tiles.
#include "tile/stream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "interp/semantics.h"
#include "ir/text.h"
#include "tile/join_scans.h"
#include "tile/lower.h"

namespace forge::tile {
namespace {

using ir::Layout;

std::vector<std::vector<std::string>> loops(const Streamed& streamed) {
    const auto names = ir::value_names(streamed.fn);
    std::vector<std::vector<std::string>> found;
    for (const Stream& s : streamed.streams) {
        found.emplace_back();
        for (const ir::ValueId v : s.members) found.back().push_back(names[static_cast<std::size_t>(v)]);
    }
    return found;
}

using Names = std::vector<std::vector<std::string>>;

constexpr const char* kGatedScan = R"(
func @f {
  %g: f32[64, 32] = param() {name="g", role=input}
  %x: f32[64, 32] = param() {name="x", role=input}
  %h0: f32[32] = param() {name="h", role=state}
  %a: f32[64, 32] = sigmoid(%g)
  %h: f32[64, 32] = linear_scan(%a, %x)
  %G: f32[64, 32] = cumsum(%g) {dim=0}
  %d: f32[64, 32] = exp(%G)
  %c: f32[64, 32] = mul(%d, %h0)
  %o: f32[64, 32] = add(%h, %c)
  %last: f32[32] = select(%h) {dim=0, start=-1}
  %t: f32[32] = sum(%g) {dim=0}
  %e: f32[32] = exp(%t)
  %k: f32[32] = mul(%h0, %e)
  %h1: f32[32] = add(%k, %last)
  return input "o" = %o, state "h" = %h1
}
)";

TEST(Streams, JoinScansWithTheirNeighbours) {
    const Streamed streamed = find_streams(ir::parse_function(kGatedScan));
    EXPECT_EQ(loops(streamed), (Names{{"a", "h", "G", "d", "c", "o", "t"}}));
    EXPECT_EQ(streamed.streams[0].inputs.size(), 2U);
    EXPECT_EQ(streamed.streams[0].outputs.size(), 1U);
}

TEST(Streams, HoldOneRowOfAScanAndNoTilesBetween) {
    const TileKernel kernel = lower(ir::parse_function(kGatedScan), {}, {}, 16);
    const auto layout = [&](const char* name) {
        const auto names = ir::value_names(kernel.fn);
        const auto at = std::find(names.begin(), names.end(), name) - names.begin();
        return *kernel.fn.op(static_cast<ir::ValueId>(at)).layout;
    };
    for (const char* name : {"a", "d", "c"}) EXPECT_EQ(layout(name).space, Layout::Space::Reg) << name;
    for (const char* name : {"h", "G"}) EXPECT_EQ(layout(name).strides, (std::vector<std::int64_t>{0, 1})) << name;
    EXPECT_EQ(layout("last").offset, layout("h").offset) << "the last row is the one that is held";
    EXPECT_EQ(layout("h1"), layout("h0")) << "the state is updated where it lies";
}

TEST(Streams, EndWhereAWholeSumIsRead) {
    const Streamed streamed = find_streams(ir::parse_function(R"(
func @f {
  %g: f32[64, 32] = param() {name="g", role=input}
  %G: f32[64, 32] = cumsum(%g) {dim=0}
  %t: f32[32] = sum(%g) {dim=0}
  %r: f32[64, 32] = sub(%t, %G)
  return input "o" = %r
}
)"));
    EXPECT_EQ(loops(streamed), (Names{{"G", "t"}}));
}

TEST(Streams, KeepTheRowsThatOthersRead) {
    const TileKernel kernel = lower(ir::parse_function(R"(
func @f {
  %g: f32[64, 64] = param() {name="g", role=input}
  %G: f32[64, 64] = cumsum(%g) {dim=0}
  %d: f32[64, 64] = exp(%G)
  %p: f32[64, 64] = matmul(%G, %d)
  return input "o" = %p
}
)"),
                                    {}, {}, 16);
    ASSERT_EQ(kernel.streams.size(), 1U);
    for (const ir::ValueId v : kernel.streams[0].members) {
        EXPECT_EQ(kernel.fn.op(v).layout->space, Layout::Space::Tile);
        EXPECT_EQ(kernel.fn.op(v).layout->strides, (std::vector<std::int64_t>{64, 1}));
    }
}

TEST(Streams, LeaveWhatGoesBackwardsAndWhatScansNothing) {
    EXPECT_EQ(loops(find_streams(ir::parse_function(R"(
func @f {
  %g: f32[64, 32] = param() {name="g", role=input}
  %R: f32[64, 32] = cumsum(%g) {dim=0, reverse=true}
  %E: f32[64, 32] = cumsum(%g) {dim=0, exclusive=true}
  %x: f32[64, 32] = mul(%R, %E)
  return input "o" = %x
}
)"))),
              Names{});
}

constexpr const char* kFromState = R"(
func @f {
  %g: f32[4, 3] = param() {name="g", role=input}
  %x: f32[4, 3] = param() {name="x", role=input}
  %h0: f32[3] = param() {name="h", role=state}
  %a: f32[4, 3] = exp(%g)
  %h: f32[4, 3] = linear_scan(%a, %x)
  %G: f32[4, 3] = cumsum(%g) {dim=0}
  %d: f32[4, 3] = exp(%G)
  %c: f32[4, 3] = mul(%h0, %d)
  %o: f32[4, 3] = add(%c, %h)
  %last: f32[3] = select(%h) {dim=0, start=-1}
  %t: f32[3] = sum(%g) {dim=0}
  %e: f32[3] = exp(%t)
  %k: f32[3] = mul(%h0, %e)
  %h1: f32[3] = add(%k, %last)
  return input "o" = %o, state "h" = %h1
}
)";

int count(const ir::Function& fn, ir::Opcode code) {
    return static_cast<int>(
        std::count_if(fn.ops.begin(), fn.ops.end(), [&](const ir::Op& op) { return op.code == code; }));
}

TEST(JoinScans, BeginsAtTheState) {
    const ir::Function apart = ir::parse_function(kFromState), joined = join_scans(apart);
    EXPECT_EQ(count(joined, ir::Opcode::LinearScanFrom), 1) << ir::print(joined);
    for (const auto code : {ir::Opcode::LinearScan, ir::Opcode::Cumsum, ir::Opcode::Sum, ir::Opcode::Add})
        EXPECT_EQ(count(joined, code), 0) << ir::print(joined);
    interp::Bindings inputs;
    inputs["g"] = {{4, 3}, {-1, -0.5, 0, -2, -0.1, -0.3, 0, 0, -4, -0.2, -0.6, -1}};
    inputs["x"] = {{4, 3}, {1, 2, 3, -1, 0.5, 2, 7, 1, 0, 0.25, -3, 1}};
    inputs["h"] = {{3}, {0.5, -2, 4}};
    const auto want = interp::evaluate(apart, inputs, {}), got = interp::evaluate(joined, inputs, {});
    for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_LE(interp::relative_difference(want[i], got[i]), 1e-14) << apart.results[i].name;
}

TEST(JoinScans, WantsOneGate) {
    std::string other = kFromState;  // the state decays by another gate than the scan
    other.replace(other.find("exp(%g)"), 7, "exp(%x)");
    EXPECT_EQ(count(join_scans(ir::parse_function(other)), ir::Opcode::LinearScanFrom), 0);
    std::string exclusive = kFromState;
    exclusive.replace(exclusive.find("cumsum(%g) {dim=0}"), 18, "cumsum(%g) {dim=0, exclusive=true}");
    EXPECT_EQ(count(join_scans(ir::parse_function(exclusive)), ir::Opcode::Cumsum), 1);
}

TEST(Streams, AreNotForSharedMemory) {
    EXPECT_TRUE(lower(ir::parse_function(kGatedScan), {}, {}, Rules(4, true)).streams.empty());
}

}  // namespace
}  // namespace forge::tile
