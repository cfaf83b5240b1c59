/// Compile options as texts, for the C ABI and whatever speaks through it.
#pragma once

#include <cstddef>
#include <string>

#include "forge/runtime.h"
#include "forge_c.h"

namespace forge::capi {

/// InvalidArgument for an option that is unknown, twice there, or no number where one is expected.
CompileOptions parse_options(const forge_option* options, std::size_t count);
/// InvalidArgument, with the option's name, for what is no integer of 64 bits.
std::int64_t parse_number(const std::string& name, const std::string& value);
/// bf16, f16 or f32; InvalidArgument for others.
DType parse_dtype(const std::string& name, const char* option = "dtype");

}  // namespace forge::capi
