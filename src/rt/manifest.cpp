#include "rt/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "device/cuda/portable/call.h"
#include "forge/error.h"
#include "rt/json.h"

namespace forge::rt {
namespace {

using runtime::Axis;
using runtime::Callable;
using runtime::KernelOfCall;
using runtime::LastRowSlots;
using runtime::Launch;
using runtime::Loop;
using runtime::Per;
using runtime::Spill;
using runtime::TensorKind;
using runtime::TensorOfCall;

constexpr std::int64_t kMost32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostFloats = std::int64_t{1} << 40;  ///< of a block or of scratch memory: sums of them hold
constexpr int kMostTensors = cuda::kMaxTensors, kMostScalars = cuda::kMaxScalars, kMostSpills = cuda::kMaxSpills;
static_assert(kFormat == 4 && sizeof(cuda::Call) == 7984, "kernels of packages take it: another one is another format");

struct Limits {
    std::int64_t least = 0, most = kMost32;
};

/// The names of an enumeration's values, in order.
template <class Enum>
constexpr std::array<const char*, 0> kNames = {};
template <>
constexpr std::array kNames<DType> = {"bool", "i32", "i64", "f16", "bf16", "f32", "f64"};
template <>
constexpr std::array kNames<TensorKind> = {"input", "head", "output", "initial_state", "final_state", "chunk_state"};
template <>
constexpr std::array kNames<Loop> = {"scan", "chunks", "summaries", "carries", "segments", "relay"};
template <>
constexpr std::array kNames<Per> = {"chunk", "segment", "sequence", "worker"};
template <>
constexpr std::array kNames<Axis::Of> = {"number", "tokens", "heads"};

/// What each struct consists of: said once, for both directions. `fields` is a Writer or a Reader.
template <class Fields, class T>
void visit(Fields& fields, T& x) {
    using Struct = std::remove_const_t<T>;
    if constexpr (std::is_same_v<Struct, Launch>) {
        fields("threads", x.threads, Limits{1, 1024}), fields("shared_bytes", x.shared_bytes);
        fields("parts", x.parts, Limits{1}), fields("unit_rows", x.unit_rows);
        fields.later("head_channels", x.head_channels);
        fields("resident_blocks", x.resident_blocks), fields("most_blocks", x.most_blocks), fields("beside", x.beside);
        fields("cluster_blocks", x.cluster_blocks, Limits{1, 16}), fields("cluster_rows", x.cluster_rows);
        fields("waits", x.waits), fields("waits_late", x.waits_late), fields("early", x.early), fields("maps", x.maps);
        fields("exchange_bytes", x.exchange_bytes), fields("exchange_header_bytes", x.exchange_header_bytes);
    } else if constexpr (std::is_same_v<Struct, TensorOfCall>) {
        fields("name", x.name), fields("kind", x.kind), fields("dtype", x.dtype);
        fields("shape", x.shape), fields("axes", x.axes), fields("heads", x.heads), fields.later("inner", x.inner);
    } else if constexpr (std::is_same_v<Struct, Axis>) {
        fields("of", x.of), fields("number", x.number), fields("heads", x.heads);
    } else if constexpr (std::is_same_v<Struct, Dim>) {
        fields("factor", x.factor), fields("symbol", x.symbol);
    } else if constexpr (std::is_same_v<Struct, Spill>) {
        fields("floats", x.floats, Limits{0, kMostFloats}), fields("per", x.per);
    } else if constexpr (std::is_same_v<Struct, LastRowSlots>) {
        fields("input", x.input), fields("initial", x.initial), fields("final", x.final);
        fields("in_place", x.in_place);
    } else if constexpr (std::is_same_v<Struct, KernelOfCall>) {
        fields("symbol", x.symbol), fields("loop", x.loop), fields("tiles", x.tiles, Limits{1});
        fields("scratch_floats", x.scratch_floats, Limits{0, kMostFloats}), fields("how", x.how);
    } else if constexpr (std::is_same_v<Struct, Callable>) {
        fields("name", x.name), fields("tensors", x.tensors), fields("scalars", x.scalars), fields("spills", x.spills);
        fields("kernels", x.kernels), fields("last_rows", x.last_rows), fields("last_rows_symbol", x.last_rows_symbol);
        fields("heads", x.heads, Limits{0, kMostTensors}), fields("chunk", x.chunk, Limits{1, 1024});
        fields("segments", x.segments, Limits{0, 1 << 20}), fields("summaries", x.summaries, Limits{0, 1 << 20});
        fields("tiles", x.tiles, Limits{1}), fields("in_stretches", x.in_stretches);
        fields("stretch_bytes", x.stretch_bytes, Limits{0, kMostFloats});
        fields("block_threads", x.block_threads, Limits{1, 1024}), fields("beside_groups", x.beside_groups);
        fields("beside_steps", x.beside_steps), fields.later("clears_skipped", x.clears_skipped);
        fields.later("relay_lanes", x.relay_lanes);
    } else if constexpr (std::is_same_v<Struct, Definition>) {
        fields("name", x.name), fields("text", x.text);
    } else if constexpr (std::is_same_v<Struct, Symbol>) {
        fields("name", x.name), fields("tensor", x.tensor, Limits{-1, kMostTensors}), fields("axis", x.axis);
        fields("factor", x.factor, Limits{1});
    } else if constexpr (std::is_same_v<Struct, Entry>) {
        fields("definition", x.definition), fields("name", x.name), fields("symbols", x.symbols);
        fields("dtype_tensor", x.dtype_tensor, Limits{-1, kMostTensors});
    } else if constexpr (std::is_same_v<Struct, Compiled>) {
        fields("entry", x.entry), fields("target", x.target), fields("dtype", x.dtype), fields("sizes", x.sizes);
        fields("schedule", x.schedule), fields("reason", x.reason), fields("file", x.file);
        fields("callable", x.callable);
    } else if constexpr (std::is_same_v<Struct, Node>) {
        fields("feature", x.feature), fields("limit", x.limit, Limits{0, std::numeric_limits<std::int64_t>::max()});
        fields("at_most", x.at_most, Limits{-kMost32}), fields("above", x.above, Limits{-kMost32});
    } else if constexpr (std::is_same_v<Struct, Table>) {
        fields("entry", x.entry), fields("target", x.target), fields("nodes", x.nodes);
        fields("root", x.root, Limits{-kMost32});
    } else if constexpr (std::is_same_v<Struct, Target>) {
        fields("name", x.name), fields("file", x.file);
    } else {
        static_assert(std::is_same_v<Struct, Manifest>);
        fields("name", x.name), fields("build", x.build), fields("targets", x.targets);
        fields("definitions", x.definitions), fields("entries", x.entries), fields("kernels", x.kernels);
        fields("tables", x.tables);
    }
}

class Writer {
  public:
    explicit Writer(Json json = Json::object({})) : json_(std::move(json)) {}

    template <class T>
    void operator()(const char* name, const T& value, Limits = {}) {
        if constexpr (std::is_same_v<T, std::optional<Axis>>) {
            if (value) json_.add(name, json_of(*value));
        } else {
            json_.add(name, json_of(value));
        }
    }
    template <class T>
    void later(const char* name, const T& value) {
        (*this)(name, value);
    }
    [[nodiscard]] Json take() { return std::move(json_); }

  private:
    template <class T>
    static Json json_of(const T& value) {
        if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double> || std::is_same_v<T, std::string>) {
            return value;
        } else if constexpr (std::is_integral_v<T>) {
            return static_cast<std::int64_t>(value);
        } else if constexpr (std::is_enum_v<T>) {
            return kNames<T>[static_cast<std::size_t>(value)];
        } else {
            Writer fields;
            visit(fields, value);
            return fields.take();
        }
    }
    template <class T>
    static Json json_of(const std::vector<T>& values) {
        Json list = Json::list();
        for (const T& value : values) list.add(json_of(value));
        return list;
    }
    Json json_;
};

class Reader {
  public:
    explicit Reader(const Json& json) : json_(json) {}

    template <class T>
    void operator()(const char* name, T& value, Limits limits = {}) {
        const Json* const found = json_.find(name);
        if (!found && std::is_same_v<T, std::optional<Axis>>) return;
        try {
            read(found ? *found : json_.at(name), value, limits);
        } catch (const RuntimeError& error) {
            throw RuntimeError(fmt::format("{}: {}", name, error.what()));
        }
    }

    /// What packages have not that were built before it was there: it stays as it is.
    template <class T>
    void later(const char* name, T& value) {
        if (json_.find(name)) (*this)(name, value);
    }

  private:
    template <class T>
    static void read(const Json& json, T& value, Limits limits) {
        if constexpr (std::is_same_v<T, bool>) value = json.as_bool();
        else if constexpr (std::is_same_v<T, double>) value = json.as_number();
        else if constexpr (std::is_same_v<T, std::string>) value = json.as_text();
        else if constexpr (std::is_integral_v<T>) value = static_cast<T>(json.as_integer(limits.least, limits.most));
        else if constexpr (std::is_enum_v<T>) read_enum(json, value);
        else {
            Reader fields(json);
            visit(fields, value);
        }
    }
    template <class T>
    static void read_enum(const Json& json, T& value) {
        const auto found = std::find(kNames<T>.begin(), kNames<T>.end(), json.as_text());
        if (found == kNames<T>.end())
            throw RuntimeError(fmt::format("expected one of {}, got '{}'", fmt::join(kNames<T>, ", "), json.as_text()));
        value = static_cast<T>(found - kNames<T>.begin());
    }
    template <class T>
    static void read(const Json& json, std::optional<T>& value, Limits limits) {
        read(json, value.emplace(), limits);
    }
    template <class T>
    static void read(const Json& json, std::vector<T>& values, Limits limits) {
        values.resize(json.as_list().size());
        for (std::size_t i = 0; i < values.size(); ++i) read(json.as_list()[i], values[i], limits);
    }
    const Json& json_;
};

template <class List>
void expect_index(std::int64_t index, const List& list, const char* what) {
    if (index < 0 || index >= static_cast<std::int64_t>(list.size()))
        throw RuntimeError(
            fmt::format("expected {} from 0 to {}, got {}", what, static_cast<std::int64_t>(list.size()) - 1, index));
}

void check(const TensorOfCall& tensor, int heads) {
    const std::size_t least = tensor.is_state() ? 0 : tensor.has_tokens() ? 2 : 1;
    constexpr std::size_t kMostDims = 4;  // beside tokens and heads: device::CallTensor
    if (tensor.axes.size() < least || tensor.axes.size() > least + kMostDims ||
        tensor.shape.size() != tensor.axes.size())
        throw RuntimeError(fmt::format("{}: expected {} to {} axes with a dimension each, got {} and {}", tensor.name,
                                       least, least + kMostDims, tensor.axes.size(), tensor.shape.size()));
    const auto check_axis = [&](const Axis& axis) {
        if (axis.of == Axis::Of::Heads ? axis.heads < 0 || axis.heads >= heads : axis.number < 1)
            throw RuntimeError(fmt::format("{}: an axis that no call has", tensor.name));
    };
    for (const Axis& axis : tensor.axes) check_axis(axis);
    if (tensor.heads) check_axis(*tensor.heads);
    if (tensor.has_tokens() && tensor.axes[0].of != Axis::Of::Tokens)
        throw RuntimeError(fmt::format("{}: expected tokens on the first axis", tensor.name));
}

void check(const Callable& callable) {
    const auto at_most = [](std::size_t count, int most, const char* what) {
        if (count > static_cast<std::size_t>(most))
            throw RuntimeError(fmt::format("expected at most {} {}, got {}", most, what, count));
    };
    at_most(callable.tensors.size(), kMostTensors, "tensors"),
        at_most(callable.scalars.size(), kMostScalars, "scalars");
    at_most(callable.spills.size(), kMostSpills, "spills");
    if (callable.kernels.empty() || callable.tensors.empty()) throw RuntimeError("expected kernels and tensors");
    for (const TensorOfCall& tensor : callable.tensors) check(tensor, callable.heads);
    for (const KernelOfCall& kernel : callable.kernels)
        for (const int map : kernel.how.maps) expect_index(map, callable.tensors, "a tensor");
    if (callable.kernels.back().how.beside) throw RuntimeError("the last kernel runs beside none");
    if (callable.beside_groups < 1)
        for (const KernelOfCall& kernel : callable.kernels)
            if (kernel.how.beside) throw RuntimeError("expected groups of work beside a scan");
    for (const LastRowSlots& rows : callable.last_rows)
        for (const int tensor : {rows.input, rows.initial, rows.final})
            expect_index(tensor, callable.tensors, "a tensor");
}

void check(const Compiled& kernels, const Manifest& manifest) {
    expect_index(kernels.entry, manifest.entries, "an entry point");
    expect_index(kernels.target, manifest.targets, "a target");
    const Entry& entry = manifest.entries[static_cast<std::size_t>(kernels.entry)];
    if (kernels.sizes.size() != entry.symbols.size())
        throw RuntimeError(fmt::format("expected {} sizes, got {}", entry.symbols.size(), kernels.sizes.size()));
    check(kernels.callable);
    const std::vector<TensorOfCall>& tensors = kernels.callable.tensors;
    if (entry.dtype_tensor >= 0) expect_index(entry.dtype_tensor, tensors, "a tensor");
    for (const Symbol& symbol : entry.symbols) {
        if (symbol.tensor < 0) continue;
        expect_index(symbol.tensor, tensors, "a tensor");
        expect_index(symbol.axis, tensors[static_cast<std::size_t>(symbol.tensor)].axes, "an axis");
    }
}

/// Every path ends at kernels: nodes come before those that they lead to.
void check(const Table& table, const Manifest& manifest) {
    expect_index(table.entry, manifest.entries, "an entry point");
    expect_index(table.target, manifest.targets, "a target");
    const std::size_t features = manifest.entries[static_cast<std::size_t>(table.entry)].symbols.size() + 3;
    const auto check_next = [&](int next, std::int64_t from) {
        if (next >= 0) {
            expect_index(next, table.nodes, "a node");
            if (next <= from) throw RuntimeError("a table whose comparisons do not end");
            return;
        }
        expect_index(-1 - std::int64_t{next}, manifest.kernels, "kernels");
        const Compiled& kernels = manifest.kernels[static_cast<std::size_t>(-1 - next)];
        if (kernels.entry != table.entry || kernels.target != table.target)
            throw RuntimeError("a table that leads to kernels of another entry point or target");
    };
    check_next(table.root, -1);
    for (std::size_t i = 0; i < table.nodes.size(); ++i) {
        if (table.nodes[i].feature < 0 || table.nodes[i].feature >= static_cast<int>(features))
            throw RuntimeError("a comparison of something that calls have not");
        check_next(table.nodes[i].at_most, static_cast<std::int64_t>(i));
        check_next(table.nodes[i].above, static_cast<std::int64_t>(i));
    }
}

void check(const Manifest& manifest) {
    for (const Entry& entry : manifest.entries) {
        expect_index(entry.definition, manifest.definitions, "a definition");
        if (entry.symbols.size() > kMostSymbols)
            throw RuntimeError(fmt::format("expected at most {} sizes, got {}", kMostSymbols, entry.symbols.size()));
    }
    for (const Compiled& kernels : manifest.kernels) check(kernels, manifest);
    for (const Table& table : manifest.tables) check(table, manifest);
}

void check_format(const Json& json, const std::string& file) {
    const Json* const format = json.find("forge_package");
    if (!format) throw RuntimeError(fmt::format("{}: expected the manifest of a Forge package, got other JSON", file));
    const std::int64_t number = format->as_integer(1, kMost32);
    if (number == kFormat) return;
    const Json* const build = json.find("build");
    throw RuntimeError(fmt::format(
        "{}: a package of format {}, built by Forge {}: this library reads format {}; use {} libforge_rt, or build the "
        "package with {} Forge",
        file, number, build && build->kind() == Json::Kind::Text ? build->as_text() : "of another version", kFormat,
        number > kFormat ? "a newer" : "an older", number > kFormat ? "an older" : "a newer"));
}

}  // namespace

bool is_gpu(const Target& target) { return target.name.starts_with("sm_"); }

std::string print(const Manifest& manifest) {
    Writer fields(Json::object({{"forge_package", kFormat}, {"license", "SPDX-License-Identifier: Apache-2.0"}}));
    visit(fields, manifest);
    return print(fields.take());
}

Manifest parse_manifest(const std::string& text, const std::string& file) {
    const Json json = parse_json(text, file);
    if (json.kind() != Json::Kind::Object) throw RuntimeError(fmt::format("{}: expected an object", file));
    check_format(json, file);
    try {
        Manifest manifest;
        Reader fields(json);
        visit(fields, manifest);
        check(manifest);
        return manifest;
    } catch (const RuntimeError& error) {
        throw RuntimeError(fmt::format("{}: {}", file, error.what()));
    }
}

}  // namespace forge::rt
