// Facts of GPUs: those that travel with Forge, and what is wrong with a file of facts.
#include "target/gpu_facts.h"

#include <gtest/gtest.h>

#include "forge/error.h"
#include "support/embedded.h"

namespace forge::target {
namespace {

const char* const kWhole = R"(# a comment
name = A GPU   # another
compute_capability = 8.6
multiprocessors = 7
shared_bytes_per_block = 101376
memory_bandwidth = 1.5e11
)";

TEST(GpuFacts, OfAFile) {
    const GpuFacts facts = parse_facts(kWhole, "mine");
    EXPECT_EQ(to_string(facts),
              "A GPU: compute capability 8.6, 7 multiprocessors, 101376 bytes of shared memory per block, 150 GB/s of "
              "memory");
    EXPECT_EQ(facts.arch(), "sm_86");
    EXPECT_EQ(facts.tuning_class(), "A GPU x 7");
}

TEST(GpuFacts, ThatTravelWithForge) {
    EXPECT_GE(fact_files().size(), 3U);
    for (const EmbeddedFile& file : fact_files()) EXPECT_GE(facts_of(file.path).major, 8) << file.path;
    EXPECT_EQ(facts_of("h200").arch(), "sm_90a");
    EXPECT_EQ(facts_of("h200").shared_bytes, 227 * 1024);
}

std::string error_of(const std::string& text) {
    try {
        parse_facts(text, "mine");
    } catch (const RuntimeError& error) {
        return error.what();
    }
    return "none";
}

TEST(GpuFacts, MistakesAreNamed) {
    EXPECT_EQ(error_of("name = x\n"),
              "mine: facts of a GPU: expected compute_capability, memory_bandwidth, multiprocessors, "
              "shared_bytes_per_block too");
    EXPECT_EQ(error_of("name = x\n\nwarps = 4\n"),
              "mine:3: expected key = value with one of compute_capability, memory_bandwidth, multiprocessors, "
              "name, shared_bytes_per_block; got 'warps = 4'");
    EXPECT_EQ(error_of("multiprocessors = 7.5"),
              "mine:1: multiprocessors: expected a whole number from 1 to 65536, got '7.5'");
    EXPECT_EQ(error_of("multiprocessors = -7"),
              "mine:1: multiprocessors: expected a whole number from 1 to 65536, got '-7'");
    EXPECT_EQ(error_of("multiprocessors = 0"),
              "mine:1: multiprocessors: expected a whole number from 1 to 65536, got '0'");
    EXPECT_EQ(error_of("multiprocessors = 2000000000"),
              "mine:1: multiprocessors: expected a whole number from 1 to 65536, got '2000000000'");
    EXPECT_EQ(error_of("compute_capability = 9"), "mine:1: compute_capability: expected such as 9.0, got '9'");
    EXPECT_EQ(error_of("name ="), "mine:1: name: expected a text, got ''");
    EXPECT_EQ(error_of("name"),
              "mine:1: expected key = value with one of compute_capability, memory_bandwidth, "
              "multiprocessors, name, shared_bytes_per_block; got 'name'");
    EXPECT_THROW(facts_of("/nowhere"), RuntimeError);
}

}  // namespace
}  // namespace forge::target
