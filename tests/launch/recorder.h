/// A CUDA driver that does nothing but write down what it is asked to launch and fill: built as libcuda.so.1, which
/// tests find first. With it the whole way of a call, from the C ABI or the forge command to the driver, runs on
/// machines without a GPU.
#pragma once

#include <cstddef>

#include "device/cuda/portable/call.h"

namespace forge::recorder {

struct Launch {
    unsigned blocks, cluster, threads, shared_bytes;
    void* stream;
    cuda::Call arguments;
    cuda::TensorMaps maps;  ///< the first word of each is the tensor's address
};

struct Fill {
    unsigned long long address;
    unsigned char value;
    std::size_t bytes;
    void* stream;
};

constexpr int kMost = 4096;  ///< of each; later ones are counted only

/// What happened since the last clear(), in order.
struct Record {
    int launches, fills;
    Launch launch[kMost];
    Fill fill[kMost];
};

}  // namespace forge::recorder
