/// Plans for GPUs that are not there: of every zoo and novel program, in every strategy, type and engine that has it.
#pragma once

#include <functional>
#include <string>

#include "plan/plan.h"
#include "tests/support/entries.h"

namespace forge::tests {

/// `name`: program, engine, strategy, type and sizes.
using UsePlan = std::function<void(const std::string& name, const plan::Plan& plan)>;

void each_portable_plan(const Entry& entry, const UsePlan& use);
void each_warp_group_plan(const Entry& entry, const UsePlan& use);
void each_channel_plan(const Entry& entry, const UsePlan& use);

/// The one with this name, made once.
const plan::Plan& plan_named(const std::string& name);

}  // namespace forge::tests
