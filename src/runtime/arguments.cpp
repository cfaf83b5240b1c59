#include "runtime/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "support/checked.h"

namespace forge::runtime {
namespace {

std::int64_t magnitude(std::int64_t stride) {
    return stride == std::numeric_limits<std::int64_t>::min() ? support::Checked::kMost : std::abs(stride);
}

std::string shown_strides(const View& view) { return shown(view.strides, view.strides ? view.rank : 0); }

/// `name` is called where there is something to say: texts are made of what is wrong alone.
template <class Name>
void refuse_extremes(const Callable& callable, const Name& name, const View& view) {
    for (int axis = 0; axis < view.rank; ++axis)
        if (view.shape[axis] < 0) refuse_argument(callable, name(), "sizes of at least 0", shown(view));
    const auto bytes = static_cast<std::int64_t>(size_in_bytes(view.dtype));
    support::Checked elements = bytes, extent = bytes;
    for (int axis = 0; axis < view.rank; ++axis) elements = elements * std::max<std::int64_t>(1, view.shape[axis]);
    if (!elements.at_most()) refuse_argument(callable, name(), "fewer than 2^63 bytes", shown(view));
    for (int axis = 0; axis < view.rank; ++axis)
        if (view.shape[axis] > 1)
            extent = extent + support::Checked(view.shape[axis] - 1) * magnitude(view.stride(axis)) * bytes;
    if (!extent.at_most())
        refuse_argument(callable, name(), "strides within 2^63 bytes",
                        fmt::format("{} of {}", shown_strides(view), shown(view)));
    if (reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(bytes) != 0)  // NOLINT: of an address
        refuse_argument(callable, name(), fmt::format("an address that is a multiple of {} bytes", bytes),
                        fmt::format("{}", view.data));
}

}  // namespace

std::int64_t View::stride(int axis) const {
    if (strides) return strides[axis];
    support::Checked dense = 1;
    for (int later = axis + 1; later < rank; ++later) dense = dense * shape[later];
    return dense.saturated();
}

bool View::is_empty() const { return std::find(shape, shape + rank, 0) != shape + rank; }

void refuse_argument(const Callable& callable, const std::string& argument, const std::string& expected,
                     const std::string& got) {
    throw RuntimeError(fmt::format("{}: argument '{}': expected {}, got {}", callable.name, argument, expected, got));
}

std::string shown(const std::int64_t* numbers, int count) {
    return fmt::format("[{}]", fmt::join(numbers, numbers + count, ", "));
}

std::string shown(const View& view) { return shown(view.shape, view.rank); }

std::int64_t element_of(const View& integers, std::int64_t n) {
    const std::int64_t at = n * integers.stride(0);
    return integers.dtype == DType::I32 ? static_cast<const std::int32_t*>(integers.data)[at]
                                        : static_cast<const std::int64_t*>(integers.data)[at];
}

void refuse_missing(const Callable& callable, const Arguments& call) {
    for (std::size_t i = 0; i < callable.tensors.size(); ++i) {
        const TensorOfCall& tensor = callable.tensors[i];
        if (!call.tensors[i].is_given() && (!tensor.is_state() || tensor.given))
            refuse_argument(callable, tensor.argument(),
                            fmt::format("a tensor {}{}", to_string(tensor.dtype), to_string(tensor.shape)), "nothing");
    }
}

void refuse_extremes(const Callable& callable, const Arguments& call) {
    const auto check = [&](const auto& name, const View& view) {
        if (view.is_given()) refuse_extremes(callable, name, view);
    };
    for (std::size_t i = 0; i < callable.tensors.size(); ++i)
        check([&] { return callable.tensors[i].argument(); }, call.tensors[i]);
    check([] { return "cu_seqlens"; }, call.cu_seqlens);
    check([] { return "initial_slots"; }, call.initial_slots);
    check([] { return "final_slots"; }, call.final_slots);
    check([] { return "has_initial_state"; }, call.has_initial_state);
    check([] { return "chunk_slots"; }, call.chunk_slots);
}

}  // namespace forge::runtime
