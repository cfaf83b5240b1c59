/// Runs a function for 0 … count - 1 on all cores, in no particular order. The first exception is thrown again when all
/// threads are done. For references and compilations, which take milliseconds or more each; kernels have a pool of
/// their own.
#pragma once

#include <cstdint>
#include <functional>

namespace forge::check {

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& body);

}  // namespace forge::check
