#include "runtime/skip.h"

#include <fmt/format.h>

#include <cstring>

namespace forge::runtime {
namespace {

/// A block of elements; sizes and strides are in elements.
struct Block {
    void add(std::int64_t size, std::int64_t stride) { sizes[axes] = size, strides[axes++] = stride; }
    std::int64_t sizes[kMostRank], strides[kMostRank];
    int axes = 0;
};

void clear(char* at, std::size_t element, const Block& block, int axis = 0) {
    if (axis == block.axes) {
        std::memset(at, 0, element);
        return;
    }
    for (std::int64_t i = 0; i < block.sizes[axis]; ++i)
        clear(at + i * block.strides[axis] * static_cast<std::int64_t>(element), element, block, axis + 1);
}

}  // namespace

void clear_skipped(const Callable& callable, const Bound& bound) {
    for (std::size_t i = 0; i < callable.tensors.size(); ++i) {
        const TensorOfCall& tensor = callable.tensors[i];
        if (tensor.kind != TensorKind::Output) continue;
        const device::CallTensor& t = bound.tensors[i];
        const auto element = static_cast<std::int64_t>(size_in_bytes(tensor.dtype));
        const std::int64_t factor = tensor.axes[0].number;
        for (std::size_t s = 0; s < bound.skipped.size(); ++s) {
            if (bound.skipped_tokens[s] == 0) continue;  // the tensor may be nowhere
            const std::int64_t n = bound.skipped[s];
            Block block;
            block.add(bound.skipped_tokens[s] * factor, t.token), block.add(bound.heads / t.group, t.head);
            for (std::size_t d = 2; d < tensor.axes.size(); ++d) block.add(tensor.axes[d].number, t.dim[d - 2]);
            const std::int64_t first = n * t.sequence + bound.start[static_cast<std::size_t>(n)] * factor * t.token;
            clear(static_cast<char*>(t.data) + first * element, static_cast<std::size_t>(element), block);
        }
    }
}

List<OutputMemory> dense_outputs(const Callable& callable, const Arguments& call, Memory* memory) {
    List<OutputMemory> found(memory);
    found.reserve(callable.tensors.size());
    for (std::size_t i = 0; i < callable.tensors.size(); ++i) {
        const TensorOfCall& tensor = callable.tensors[i];
        if (tensor.kind != TensorKind::Output) continue;
        const View& view = call.tensors[i];
        std::int64_t elements = 1;
        for (int d = view.rank; d-- > 0; elements *= view.shape[d])
            if (view.shape[d] > 1 && view.stride(d) != elements)
                throw RuntimeError(
                    fmt::format("{}: argument '{}': expected a dense tensor with slots of states, got strides {}",
                                callable.name, tensor.name, shown(view.strides, view.strides ? view.rank : 0)));
        if (elements > 0) found.push_back({i, static_cast<std::size_t>(elements) * size_in_bytes(view.dtype)});
    }
    return found;
}

}  // namespace forge::runtime
