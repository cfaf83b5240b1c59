/// From compile options to a schedule: the device as it was measured or stored, what the tuning database knows of this
/// program, and choose_schedule on both. The one place that reads scheduling files.
#pragma once

#include "forge/runtime.h"
#include "tune/database.h"

namespace forge::tune {

/// Everything about a choice but the choice.
struct Question {
    schedule::Problem problem;
    schedule::Device device;
    schedule::Wishes wishes;
    Key key;
};
/// What calls are expected to be, within bounds beyond which nothing is decided otherwise and arithmetic would not
/// hold.
schedule::Problem expected_problem(const CompileOptions& options);

/// RuntimeError for options that name no strategy, rule or device.
Question question_of(const ir::Function& program, const CompileOptions& options);

/// `definition` in its final types, `program` optimised from it.
schedule::Choice select(const ir::Definition& definition, const ir::Function& program, const CompileOptions& options);

}  // namespace forge::tune
