/// The arguments of a call by name: where each of a plan's tensors lies in it, the words for what is wrong with it, and
/// what can be checked before any size is known. Used by binding.h; nothing is computed here.
#pragma once

#include <string>
#include <vector>

#include "forge/runtime.h"
#include "plan/plan.h"

namespace forge::runtime {

/// "NAME: argument 'ARGUMENT': expected …, got …" as a RuntimeError.
[[noreturn]] void refuse_argument(const plan::Plan& plan, const std::string& argument, const std::string& expected,
                                  const std::string& got);

/// "[2, 5]".
std::string shown(const std::vector<std::int64_t>& shape);

bool is_state(const plan::TensorSlot& slot);
bool has_tokens(const plan::TensorSlot& slot);
/// As users write it: "initial_states.s" for a state, else the tensor's name.
std::string argument_name(const plan::TensorSlot& slot);
/// Null for a state that is not given; anything else that is missing is refused.
const TensorView* find_argument(const plan::Plan& plan, const Call& call, const plan::TensorSlot& slot);
/// The slots that the sequences have in a pool of such states, if the call has any.
const std::optional<TensorView>& slots_for(const Call& call, const plan::TensorSlot& slot);

/// Element n of a dense or strided vector of i32 or i64 on the host.
std::int64_t element_of(const TensorView& integers, std::int64_t n);

/// Refuses names that the plan does not know.
void refuse_unknown(const plan::Plan& plan, const Call& call);
/// Refuses what no tensor in memory is: sizes below 0, elements that do not lie within 2^63 bytes, an address that is
/// no multiple of an element's size. All arithmetic on shapes and strides relies on it.
void refuse_extremes(const plan::Plan& plan, const Call& call);

}  // namespace forge::runtime
