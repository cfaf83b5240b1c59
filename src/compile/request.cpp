#include "compile/request.h"

#include <fmt/format.h>

#include <algorithm>

#include "compile/question.h"
#include "frontend/axes.h"
#include "frontend/join.h"
#include "graph/derive.h"
#include "interp/semantics.h"
#include "ir/infer.h"
#include "ir/text.h"
#include "support/checked.h"

namespace forge::compiler {
namespace {

/// The symbols that sizes are given for, each once.
std::vector<std::string> symbols_of(const ir::Definition& def) {
    std::vector<std::string> found;
    const auto add = [&](const Shape& shape, std::size_t from) {
        for (std::size_t i = from; i < shape.size(); ++i)
            if (!shape[i].is_constant() && std::find(found.begin(), found.end(), shape[i].symbol) == found.end())
                found.push_back(shape[i].symbol);
    };
    for (const auto& in : def.inputs)
        add(in.type.shape, in.role == ir::Role::Input ? 2 : in.role == ir::Role::Head ? 1 : 0);
    for (const auto& s : def.states) add(s.type.shape, 0);
    return found;
}

void check_count(const char* name, std::int64_t n, std::int64_t most) {
    if (n < 0 || n > most) throw RuntimeError(fmt::format("{}: expected 0 to {}, got {}", name, most, n));
}

}  // namespace

void check_options(const CompileOptions& o) {
    if (!o.on.empty() && o.device != "cuda")
        throw RuntimeError(fmt::format("on: expected device = cuda with it, got '{}'", o.device));
    if (o.chunk != 0 && !ir::is_chunk_size(o.chunk) && !(o.chunk == 1 && o.entry == "decode"))
        throw RuntimeError(fmt::format("chunk: expected 16, 32, 64 or 128, got {}", o.chunk));
    if (o.dtype != F32 && !is_half(o.dtype))
        throw RuntimeError(fmt::format("dtype: expected bf16, f16 or f32, got {}", to_string(o.dtype)));
    if (o.state_dtype != F32 && !is_half(o.state_dtype))
        throw RuntimeError(fmt::format("state_dtype: expected f32, bf16 or f16, got {}", to_string(o.state_dtype)));
    if (o.state_dtype != F32 && o.entry != "decode")
        throw RuntimeError(fmt::format("state_dtype: expected entry = decode with {}, got entry = {}",
                                       to_string(o.state_dtype), o.entry));
    if (o.isa != "auto" && o.isa != "avx512" && o.isa != "avx2" && o.isa != "plain")
        throw RuntimeError(fmt::format("isa: expected auto, avx512, avx2 or plain, got '{}'", o.isa));
    static_cast<void>(wishes_of(o));  // strategy, engine, rule
    if (o.batch_invariant && (o.segments > 1 || o.strategy == "segmented"))
        throw RuntimeError(
            "batch_invariant: expected a strategy without segments, whose length is that of the longest sequence, "
            "got " +
            (o.segments > 1 ? fmt::format("segments = {}", o.segments) : "strategy = segmented"));
    check_count("threads", o.threads, 1 << 16);
    check_count("tiles", o.tiles, 1 << 12);
    check_count("segments", o.segments, 1 << 20);
    check_count("expected_tokens", o.expected_tokens, support::Checked::kMost);
    check_count("expected_sequences", o.expected_sequences, support::Checked::kMost);
    check_count("expected_heads", o.expected_heads, support::Checked::kMost);
}

void check_known(const ir::Definition& def, const std::map<std::string, std::int64_t>& sizes) {
    const std::vector<std::string> known = symbols_of(def);
    for (const auto& [symbol, size] : sizes)
        if (std::find(known.begin(), known.end(), symbol) == known.end())
            throw RuntimeError(fmt::format("{}: sizes: there is no size '{}'; expected {}", def.name, symbol,
                                           known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

void check_sizes(const ir::Definition& def, const std::map<std::string, std::int64_t>& sizes) {
    std::vector<std::string> missing;
    for (const std::string& symbol : symbols_of(def))
        if (!sizes.contains(symbol)) missing.push_back(symbol);
    if (!missing.empty())
        throw RuntimeError(
            fmt::format("{}: sizes: expected a size for {}, got none", def.name, fmt::join(missing, ", ")));
    for (const auto& [symbol, size] : sizes)
        if (size < 1 || size > ir::kMostExtent)
            throw RuntimeError(
                fmt::format("{}: sizes: expected 1 to {} for {}, got {}", def.name, ir::kMostExtent, symbol, size));
}

void check_extents(const ir::Definition& def, const ir::Function& program,
                   const std::map<std::string, std::int64_t>& sizes) {
    constexpr std::int64_t kMost = 1 << 30,  // rows that are padded included
        kLargestChunk = 128;
    for (const ir::Op& op : program.ops) {
        support::Checked elements = 1;
        for (const Dim& d : op.type.shape) {
            const auto size = sizes.find(d.symbol);
            elements = elements * d.factor * (size != sizes.end() ? size->second : d.is_constant() ? 1 : kLargestChunk);
        }
        if (elements.at_most(kMost)) continue;
        std::vector<std::string> given;
        for (const auto& [symbol, size] : sizes) given.push_back(fmt::format("{} = {}", to_string(Dim(symbol)), size));
        throw RuntimeError(fmt::format("{}: sizes: expected values of at most {} numbers, got {} with {}{}", def.name,
                                       kMost, ir::to_string(op.type), fmt::join(given, ", "),
                                       op.where.known() ? ", at " + to_string(op.where) : ""));
    }
}

void check_meaning(const ir::Definition& def) {
    if (auto found = interp::check_semantics(def); !found.empty()) throw CompileError(std::move(found));
}

CompileOptions settled(CompileOptions options, const program::EntryPoint& entry) {
    if (entry.chunk == 0) return options;
    const std::string& name = entry.joined.name;
    if (options.chunk != 0 && options.chunk != entry.chunk)
        throw RuntimeError(fmt::format("{}: chunk: expected {}, which {} fixes, got {}; leave the option out", name,
                                       entry.chunk, entry.name == "decode" ? "decode" : "the definition",
                                       options.chunk));
    options.chunk = entry.chunk;
    if (entry.chunk > 1) return options;
    if (options.strategy != "auto" && options.strategy != "one-pass")
        throw RuntimeError(fmt::format("{}: strategy: expected one-pass, which {} has, got '{}'; leave the option out",
                                       name, entry.name == "decode" ? "decode" : "what runs token by token",
                                       options.strategy));
    options.strategy = "one-pass";
    return options;
}

void verify(const ir::Definition& declared, const CompileOptions& options) {
    check_options(options);
    const ir::Definition def = frontend::with_dtype(graph::with_phases(declared), options.dtype);
    check_known(def, options.sizes);
    check_meaning(def);
    settled(options, program::entry_named(options.entry, frontend::with_own_axes(def)));
}

}  // namespace forge::compiler
