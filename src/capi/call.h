/// A call of the C ABI in the terms of forge/runtime.h.
#pragma once

#include "capi/handle.h"
#include "forge_c.h"

namespace forge::capi {

inline constexpr std::int32_t kMaxRank = 8;  ///< of a tensor

TensorView view_of(const forge_tensor& tensor, const std::string& name);
/// All of a call but its tensors: scalars, workspace, stream, threads.
Call call_without_tensors(const forge_attention& attention, const forge_args& args);
/// Puts a tensor where its slot says.
void place(Call& call, const Slot& slot, TensorView view);
/// All of a call.
Call call_of(const forge_attention& attention, const forge_args& args);
/// The slots of states, once the tensors are placed.
void place_slots(Call& call, const forge_attention& attention, const forge_args& args);

}  // namespace forge::capi
