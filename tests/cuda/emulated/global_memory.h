/// What copies may read of global memory: a call's tensors and its workspace, to the byte.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "forge/runtime.h"

namespace forge::emulated {

class GlobalMemory {
  public:
    void add(const void* begin, std::size_t bytes) {
        const auto first = reinterpret_cast<std::uintptr_t>(begin);
        parts_.push_back({first, first + bytes});
    }

    /// From its first element to its last; strides are not negative.
    void add(const TensorView& x) {
        std::int64_t last = 0;
        for (std::size_t axis = 0; axis < x.shape.size(); ++axis) {
            if (x.shape[axis] == 0) return;
            last += (x.shape[axis] - 1) * x.strides[axis];
        }
        add(x.data, static_cast<std::size_t>(last + 1) * size_in_bytes(x.dtype));
    }

    void expect(const void* begin, std::size_t bytes) const {
        const auto first = reinterpret_cast<std::uintptr_t>(begin);
        for (const Part& part : parts_)
            if (first >= part.begin && first + bytes <= part.end) return;
        throw std::runtime_error("a copy from beyond a tensor");
    }

  private:
    struct Part {
        std::uintptr_t begin, end;
    };
    std::vector<Part> parts_;
};

}  // namespace forge::emulated
