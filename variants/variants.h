/// The zoo: every ready-made variant, by name. To add one, write `variants/<name>.cpp` and a line in variants.cpp.
#pragma once

#include <string>
#include <vector>

#include "forge/language.h"

namespace forge::variants {

/// A ready-made variant and what `forge list` says of it.
struct Entry {
    std::string name;
    std::string summary;  ///< the recurrence in one line
    std::string source;   ///< paper
    LinearAttention (*make)();
};

/// All variants, in the README's order.
const std::vector<Entry>& all();
/// Those beyond regression on the token's own value: other objectives, and other ways to descend on one. They lie in
/// `variants/objectives/`, have a list of their own, and are found by name like the others.
const std::vector<Entry>& objectives();
/// all(), then objectives(): what `forge list` prints.
const std::vector<Entry>& listed();
/// Of these; nullptr if there is none of that name.
const Entry* find(const std::string& name);

LinearAttention linear_attention();
LinearAttention retnet();
LinearAttention lightning_attention();
LinearAttention scalar_gla();
LinearAttention gla();
LinearAttention hgrn2();
LinearAttention rwkv6();
LinearAttention hgrn();
LinearAttention hawk();
LinearAttention delta_net();
LinearAttention gated_delta_net();
LinearAttention delta_product();
LinearAttention kda();
LinearAttention mamba3();

LinearAttention preconditioned_delta();
LinearAttention precision_weighted();
LinearAttention temporal_difference();
LinearAttention contrastive();
LinearAttention spectral();
LinearAttention momentum_delta();

}  // namespace forge::variants
