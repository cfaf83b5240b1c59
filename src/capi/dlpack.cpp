// Launching with DLPack's tensors.
#include "capi/call.h"
#include "capi/guard.h"
#include "forge_dlpack.h"

namespace forge::capi {
namespace {

DType dtype_of(const DLDataType& dtype, const std::string& name) {
    if (dtype.lanes == 1) {
        if (dtype.code == kDLFloat && dtype.bits == 16) return DType::F16;
        if (dtype.code == kDLFloat && dtype.bits == 32) return DType::F32;
        if (dtype.code == kDLFloat && dtype.bits == 64) return DType::F64;
        if (dtype.code == kDLBfloat && dtype.bits == 16) return DType::BF16;
        if (dtype.code == kDLInt && dtype.bits == 32) return DType::I32;
        if (dtype.code == kDLInt && dtype.bits == 64) return DType::I64;
    }
    throw RuntimeError("argument '" + name + "': expected f16, bf16, f32, f64, i32 or i64, got DLPack's type " +
                       std::to_string(dtype.code) + " of " + std::to_string(dtype.bits) + " bits and " +
                       std::to_string(dtype.lanes) + " lanes");
}

/// Where a variant's tensors must be.
bool is_on(const std::string& device, const DLDevice& given) {
    if (device == "cpu") return given.device_type == kDLCPU || given.device_type == kDLCUDAHost;
    const int index = device == "cuda" ? 0 : std::stoi(device.substr(device.find(':') + 1));
    return given.device_type == kDLCUDAManaged || (given.device_type == kDLCUDA && given.device_id == index);
}

TensorView view_of(const DLTensor& tensor, const std::string& device, const std::string& name) {
    if (!is_on(device, tensor.device))
        throw RuntimeError("argument '" + name + "': expected a tensor on " + device + ", got DLPack's device type " +
                           std::to_string(tensor.device.device_type) + ", number " +
                           std::to_string(tensor.device.device_id));
    if (tensor.ndim < 0 || tensor.ndim > kMaxRank || (tensor.ndim > 0 && !tensor.shape))
        throw InvalidArgument("argument '" + name + "': expected a rank of 0 to " + std::to_string(kMaxRank) +
                              " and a shape, got rank " + std::to_string(tensor.ndim));
    TensorView view = dense(static_cast<char*>(tensor.data) + tensor.byte_offset, dtype_of(tensor.dtype, name),
                            {tensor.shape, tensor.shape + tensor.ndim});
    if (tensor.strides) view.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
    return view;
}

}  // namespace
}  // namespace forge::capi

forge_status forge_launch_dlpack(const forge_attention* attention, const forge_args* given,
                                 const DLTensor* const* tensors, const DLTensor* cu_seqlens) {
    using namespace forge::capi;
    return guarded([&] {
        required(attention, "attention");
        const forge_args args = known_part(given, "args");
        if (args.tensors || args.cu_seqlens) throw InvalidArgument("args: expected no tensors beside DLPack's");
        forge::Call call = call_without_tensors(*attention, args);
        for (std::size_t i = 0; i < args.tensor_count; ++i) {
            const Slot& slot = attention->slots[i];
            if (const DLTensor* tensor = required(tensors, "tensors")[i])
                place(call, slot, view_of(*tensor, attention->options.device, slot.name));
        }
        if (cu_seqlens) call.cu_seqlens = view_of(*cu_seqlens, attention->options.device, "cu_seqlens");
        place_slots(call, *attention, args);
        attention->attention(call);
    });
}
