#include "rt/border.h"

namespace forge::rt {
namespace {

std::string& message() {
    thread_local std::string message;
    return message;
}

}  // namespace

forge_status failed(forge_status status, const char* text) noexcept {
    try {
        message() = text;
    } catch (const std::bad_alloc&) {
        message().clear();  // the status alone must do
    }
    return status;
}

const char* last_message() { return message().c_str(); }

const char* to_string(forge_status status) {
    switch (status) {
        case FORGE_OK:
            return "FORGE_OK";
        case FORGE_COMPILE_ERROR:
            return "FORGE_COMPILE_ERROR";
        case FORGE_RUNTIME_ERROR:
            return "FORGE_RUNTIME_ERROR";
        case FORGE_INVALID_ARGUMENT:
            return "FORGE_INVALID_ARGUMENT";
        case FORGE_OUT_OF_MEMORY:
            return "FORGE_OUT_OF_MEMORY";
        case FORGE_INTERNAL_ERROR:
            return "FORGE_INTERNAL_ERROR";
        case FORGE_PACKAGE_ERROR:
            return "FORGE_PACKAGE_ERROR";
        case FORGE_PEER_TIMEOUT:
            return "FORGE_PEER_TIMEOUT";
        case FORGE_PLAN_MISMATCH:
            return "FORGE_PLAN_MISMATCH";
        case FORGE_GROUP_ABORTED:
            return "FORGE_GROUP_ABORTED";
    }
    return "an unknown status";
}

DType dtype_of(std::int32_t dtype, const char* name) {
    switch (static_cast<forge_dtype>(dtype)) {
        case FORGE_I32:
            return DType::I32;
        case FORGE_I64:
            return DType::I64;
        case FORGE_F16:
            return DType::F16;
        case FORGE_BF16:
            return DType::BF16;
        case FORGE_F32:
            return DType::F32;
        case FORGE_F64:
            return DType::F64;
    }
    throw InvalidArgument(std::string("argument '") + name + "': dtype " + std::to_string(dtype) +
                          " is none of forge_dtype");
}

runtime::View view_of(const forge_tensor& tensor, const char* name) {
    if (tensor.rank == 0) return {};
    if (tensor.rank < 0 || tensor.rank > runtime::kMostRank)
        throw InvalidArgument(std::string("argument '") + name + "': expected a rank of 0 to " +
                              std::to_string(runtime::kMostRank) + ", got " + std::to_string(tensor.rank));
    return {tensor.data, required(tensor.shape, name), tensor.strides, tensor.rank, dtype_of(tensor.dtype, name)};
}

}  // namespace forge::rt
