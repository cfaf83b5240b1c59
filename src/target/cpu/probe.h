/// Measures what a CPU does: peak of multiply-adds, sustained bytes/s of memory and of the last cache. Takes less than
/// 0.3 s and uses all threads it is asked about; compile() never calls it.
#pragma once

#include "target/cpu/device.h"

namespace forge::target {

/// The stored numbers of the instruction set with what was measured in their place.
Device measure_cpu(const std::string& isa, int threads);

}  // namespace forge::target
