/// The text form. Functions and whole definitions print, and parse back to the same thing: print(parse(print(x))) ==
/// print(x). Layouts (tile level) are part of the text; locations are printed on request.
///
///   linear_attention @decayed {
///     input k: bf16[T, H, K] loc("my_variant.cpp":3:5)
///     state s: f32[K, V]
///     output o: bf16[T, H, V]
///     func @chunk {
///       %k: bf16[C, K] = param() {name="k", role=input}
///       %t: bf16[K, C] = permute(%k) {perm=[1, 0]} loc("my_variant.cpp":12:9)
///       return chunk "s" = %t
///     }
///   }
#pragma once

#include <string>
#include <vector>

#include "ir/definition.h"

namespace forge::ir {

struct PrintOptions {
    bool locations = false;
};

std::string print(const Function& fn, PrintOptions options = {});
std::string print(const Definition& def, PrintOptions options = {});
/// One op as in the text form, e.g. `%p: f32[C, C] = tril(%qk) {diagonal=0}`.
std::string print_op(const Function& fn, ValueId id);
/// Letters, digits and underscores, no digit first: what names of definitions, tensors, states and sizes must be, as
/// they become parts of emitted code.
bool is_identifier(const std::string& name);
/// As it stands between double quotes in a text: with \\, \" and \xNN for what would end or break the line.
std::string escaped(std::string_view text);
/// The name under which each value prints, without the `%`.
std::vector<std::string> value_names(const Function& fn);

/// Parses one definition or function. Mistakes are CompileErrors at file:line:column of the text; every op's type is
/// checked against the type rules.
Definition parse_definition(const std::string& text, const std::string& file = "<text>");
/// Declarations and functions without a frame around them, of any names.
struct Fragment {
    Definition declared;  ///< inputs and states only
    std::vector<Function> functions;
};
Fragment parse_fragment(const std::string& text, const std::string& file = "<text>");
Function parse_function(const std::string& text, const std::string& file = "<text>");
/// The result's type of one operation on types: "matmul(bf16[C, K], bf16[K, V]) {trans_b=true}"; a CompileError if
/// there is none. The result of `identity` and `expand` is what stands after a colon: "expand(f32[C, 1]) : f32[C, V]".
Type infer_text(const std::string& text);
/// Whether the text starts a definition (rather than a function).
bool is_definition(const std::string& text);

}  // namespace forge::ir
