/// The arguments of one call in the order of its tensors, and what can be checked of them before any size is known.
/// Nothing here owns or allocates memory; runtime/named_arguments.h makes them of a call by names.
#pragma once

#include <optional>
#include <string>

#include "forge/error.h"
#include "runtime/callable.h"
#include "runtime/threads.h"

namespace forge::runtime {

/// A tensor as the caller describes it.
struct View {
    void* data = nullptr;
    const std::int64_t* shape = nullptr;
    const std::int64_t* strides = nullptr;  ///< in elements; null: dense, row-major
    int rank = -1;                          ///< -1: it is not given
    DType dtype = DType::F32;

    [[nodiscard]] bool is_given() const { return rank >= 0; }
    [[nodiscard]] std::int64_t stride(int axis) const;
    [[nodiscard]] bool is_empty() const;  ///< has an axis of no elements
};

struct Arguments {
    const View* tensors = nullptr;    ///< as many as the callable has
    const double* scalars = nullptr;  ///< likewise
    View cu_seqlens = {}, initial_slots = {}, final_slots = {}, has_initial_state = {}, chunk_slots = {};
    void* workspace = nullptr;
    std::optional<std::size_t> workspace_bytes = {};  ///< if that is to be checked
    void* stream = nullptr;
    Threads threads = {};  ///< that a call on the CPU runs on; none: the library's own

    /// The slots that the sequences have in a pool of such states, if the call has any.
    [[nodiscard]] const View& slots_for(const TensorOfCall& tensor) const {
        return tensor.kind == TensorKind::InitialState ? initial_slots : final_slots;
    }
};

/// "NAME: argument 'ARGUMENT': expected …, got …" as a RuntimeError.
[[noreturn]] void refuse_argument(const Callable& callable, const std::string& argument, const std::string& expected,
                                  const std::string& got);

/// "[2, 5]".
std::string shown(const std::int64_t* numbers, int count);
std::string shown(const View& view);  ///< its shape

/// Element n of a dense or strided vector of i32 or i64 on the host.
std::int64_t element_of(const View& integers, std::int64_t n);

/// Refuses a tensor that must be there and is not; states may be absent.
void refuse_missing(const Callable& callable, const Arguments& call);
/// Refuses what no tensor in memory is: sizes below 0, elements that do not lie within 2^63 bytes, an address that is
/// no multiple of an element's size. All arithmetic on shapes and strides relies on it.
void refuse_extremes(const Callable& callable, const Arguments& call);

}  // namespace forge::runtime
