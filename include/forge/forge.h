/// Forge: write a variant of linear attention once, as three short functions; get fast kernels.
///
///     forge::LinearAttention a("my_variant");                 // forge/language.h
///     ... inputs, state, chunk, decay, merge ...
///     forge::Attention attention = forge::compile(a, {.dtype = forge::BF16, .sizes = {{"K", 128}, {"V", 128}}});
///     attention(call);                                        // forge/runtime.h
#pragma once

#include "forge/compose.h"
#include "forge/error.h"
#include "forge/language.h"
#include "forge/runtime.h"
#include "forge/types.h"
