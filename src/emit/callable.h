/// What the runtime needs of a plan to call its kernels (runtime/callable.h).
#pragma once

#include "plan/plan.h"
#include "runtime/callable.h"

namespace forge::emit {

runtime::Callable callable_of(const plan::Plan& plan);

}  // namespace forge::emit
