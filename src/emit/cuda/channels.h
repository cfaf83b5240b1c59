/// CUDA C++ for channel kernels (plan::Engine::Channels): each thread has four adjacent channels of some tokens in its
/// registers, walks over them once for what they do to the states, and, when the states before them have come, once
/// more for the outputs. What both walks need is kept, so that nothing is read or computed twice.
#pragma once

#include "emit/cuda/launch.h"
#include "emit/writer.h"

namespace forge::emit {

Launch launch_of_channels(const plan::Plan& plan, const plan::Kernel& kernel);

/// The lines before the kernels of a source file, and one kernel.
void write_channel_head(Writer& out, const plan::Plan& plan);
void write_channel_kernel(Writer& out, const plan::Plan& plan, const plan::Kernel& kernel);
/// One that adds up what tiles have left, a task of which has a sequence and head and, of matrices, a row.
void write_channel_sums(Writer& out, const plan::Plan& plan, const plan::Kernel& kernel);

}  // namespace forge::emit
