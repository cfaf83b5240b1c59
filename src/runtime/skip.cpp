#include "runtime/skip.h"

#include <fmt/format.h>

#include <cstring>

namespace forge::runtime {
namespace {

/// Sets a block of elements to zero; sizes and strides are in elements.
void clear(char* at, std::size_t element, const std::vector<std::int64_t>& sizes,
           const std::vector<std::int64_t>& strides, std::size_t axis = 0) {
    if (axis == sizes.size()) {
        std::memset(at, 0, element);
        return;
    }
    for (std::int64_t i = 0; i < sizes[axis]; ++i)
        clear(at + i * strides[axis] * static_cast<std::int64_t>(element), element, sizes, strides, axis + 1);
}

}  // namespace

void clear_skipped(const plan::Plan& plan, const Bound& bound) {
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
        const plan::TensorSlot& slot = plan.tensors[i];
        if (slot.kind != plan::TensorSlot::Kind::Output) continue;
        const device::CallTensor& t = bound.tensors[i];
        const auto element = static_cast<std::int64_t>(size_in_bytes(slot.type.dtype));
        const std::int64_t factor = slot.type.shape[0].factor;
        for (std::size_t s = 0; s < bound.skipped.size(); ++s) {
            if (bound.skipped_tokens[s] == 0) continue;  // the tensor may be nowhere
            const std::int64_t n = bound.skipped[s];
            std::vector<std::int64_t> sizes = {bound.skipped_tokens[s] * factor, bound.heads / t.group},
                                      strides = {t.token, t.head};
            for (std::size_t d = 2; d < slot.type.shape.size(); ++d) {
                const Dim& dim = slot.type.shape[d];
                sizes.push_back(dim.is_constant() ? dim.factor : dim.factor * plan.sizes.at(dim.symbol));
                strides.push_back(t.dim[d - 2]);
            }
            const std::int64_t first = n * t.sequence + bound.start[static_cast<std::size_t>(n)] * factor * t.token;
            clear(static_cast<char*>(t.data) + first * element, static_cast<std::size_t>(element), sizes, strides);
        }
    }
}

std::vector<OutputMemory> dense_outputs(const plan::Plan& plan, const Call& call) {
    std::vector<OutputMemory> found;
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
        const plan::TensorSlot& slot = plan.tensors[i];
        if (slot.kind != plan::TensorSlot::Kind::Output) continue;
        const TensorView& view = call.tensors.at(slot.name);
        std::int64_t elements = 1;
        for (std::size_t d = view.shape.size(); d-- > 0; elements *= view.shape[d])
            if (view.shape[d] > 1 && view.strides[d] != elements)
                throw RuntimeError(
                    fmt::format("{}: argument '{}': expected a dense tensor with slots of states, got strides [{}]",
                                plan.definition.name, slot.name, fmt::join(view.strides, ", ")));
        if (elements > 0) found.push_back({i, static_cast<std::size_t>(elements) * size_in_bytes(view.dtype)});
    }
    return found;
}

}  // namespace forge::runtime
