/// Plans for GPUs that are not there.
#pragma once

#include "plan/plan.h"
#include "tests/random/examine.h"

namespace forge::fuzz {

/// A GPU as far as planning for it needs.
struct Target {
    const char* arch;
    std::int64_t shared_bytes;
    int multiprocessors;

    [[nodiscard]] bool is_hopper() const { return std::string(arch) == "sm_90a"; }
};
inline constexpr Target kH200{"sm_90a", 227 * 1024, 132}, kA100{"sm_80", 163 * 1024, 108},
    kAda{"sm_89", 99 * 1024, 128};

struct GpuPlan {
    std::string how;
    plan::Plan plan;
    bool keeps_states = false;  ///< whether calls can have the states before chunks
};

/// What the scheduler makes for an engine; nothing if the engine is not for the program (or a strategy is not).
std::optional<GpuPlan> warp_groups_plan(Subject& s, const std::string& name, Tally& tally);
std::optional<GpuPlan> channels_plan(Subject& s, const std::string& name, const Target& target);
/// … of its gradients.
std::optional<GpuPlan> channels_backward_plan(Subject& s, const std::string& name, const Target& target);
std::optional<GpuPlan> portable_plan(Subject& s, const std::string& name, const Target& target);

/// Gradients for an H200, mostly as warp groups take them: matrices of 16 bits, chunks of 64 tokens, and a strategy
/// that cuts the value axis.
struct BackwardPlan {
    Program program;  ///< the subject's, with the type that it is compiled for
    plan::Plan plan;
    std::string entry = "backward";
};
BackwardPlan backward_plan(Subject& s, const std::string& name, Tally& tally);

}  // namespace forge::fuzz
