/// How a kernel is started on a GPU: what the emitter promises the runtime. One function answers for every engine;
/// nothing is launched here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace forge::emit {

using runtime::Launch;

/// What the text of a source defines, so that its kernels take no more of a call's tensors than the plan has.
std::string define_of_call(const plan::Plan& plan);

/// Whether inputs of a task of a single chunk arrive in groups that the hardware copies (warpgroup/arrivals.h): of
/// tasks so large that few share a multiprocessor.
bool has_arrivals(const plan::Plan& plan, const plan::Kernel& kernel);
/// Whether the kernel has maps of tensors as an argument: this one, and those whose warp groups have roles.
bool takes_maps(const plan::Plan& plan, const plan::Kernel& kernel);
/// The 16-bit token matrices of such a kernel, as far as there are maps.
std::vector<int> mapped_tensors(const plan::Plan& plan, const plan::Kernel& kernel);

/// Whether the plan's kernels overlap so; `kernel` is one of them.
bool waits_for_kernel_before(const plan::Plan& plan, const plan::Kernel& kernel);

/// Whether it may start before what the stream has ahead of the call has ended: kernels of single tokens, which take
/// little longer than their launch does.
bool starts_early(const plan::Plan& plan, const plan::Kernel& kernel);

/// Whether it reads nothing that the kernel before makes, so that it runs beside that one, and waits for it at its own
/// end: what follows then relies on both. It starts when all blocks of the kernel before have seen the end of what came
/// before them, so that it may read that.
bool runs_beside_kernel_before(const plan::Plan& plan, const plan::Kernel& kernel);
/// The kernel after, if that one runs beside it.
bool has_kernel_beside(const plan::Plan& plan, const plan::Kernel& kernel);

Launch launch_of(const plan::Plan& plan, const plan::Kernel& kernel);

}  // namespace forge::emit
