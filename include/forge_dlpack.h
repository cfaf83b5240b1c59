/// Launching with DLPack tensors: forge_c.h for callers that have <dlpack/dlpack.h> on their include path.
#ifndef FORGE_DLPACK_H
#define FORGE_DLPACK_H

#include <dlpack/dlpack.h>

#include "forge_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/// forge_launch with DLPack's tensors in place of `args->tensors` and `args->cu_seqlens`, which must be NULL: `tensors`
/// has `args->tensor_count` pointers, NULL for an absent state. Tensors must be on the device that the variant was
/// compiled for.
FORGE_API forge_status forge_launch_dlpack(const forge_attention* attention, const forge_args* args,
                                           const DLTensor* const* tensors, const DLTensor* cu_seqlens);

#ifdef __cplusplus
}
#endif

#endif
