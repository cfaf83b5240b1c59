#include "interp/semantics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/random_numbers.h"
#include "ir/sizes.h"
#include "support/checked.h"

namespace forge::interp {
namespace {

using graph::InputValues;
using ir::Role;
using support::Random;

constexpr std::int64_t kChunk = 8;   ///< tokens in the chunk of both checks
constexpr std::int64_t kRagged = 5;  ///< tokens of the padded chunk
constexpr double kTolerance = 1e-9;  ///< relative; float64 rounds at 1e-16, a wrong term shows at 1e-2
constexpr std::uint64_t kSeed = 20240521;
constexpr double kRounding = 1e-7;            ///< relative; float64 in other orders differs by 1e-12
constexpr std::int64_t kLonger[] = {16, 64};  ///< chunks, beside which those of one token are held

bool finite(const Bindings& values) {
    return std::all_of(values.begin(), values.end(), [](const auto& named) {
        const auto& data = named.second.data;
        return std::all_of(data.begin(), data.end(), [](double x) { return std::isfinite(x); });
    });
}

bool finite(const Outcome& outcome) { return finite(outcome.outputs) && finite(outcome.states); }

double scale_of(const Value& x) {
    double largest = 1;
    for (const double element : x.data) largest = std::max(largest, std::fabs(element));
    return largest;
}

/// The first row before `rows` in which the values differ.
std::optional<std::int64_t> first_changed_row(const Value& a, const Value& b, std::int64_t rows) {
    const std::size_t width = a.data.size() / static_cast<std::size_t>(a.shape[0]);
    const double bound = kTolerance * scale_of(a);
    for (std::size_t i = 0; i < width * static_cast<std::size_t>(rows); ++i)
        if (!(std::fabs(a.data[i] - b.data[i]) <= bound)) return static_cast<std::int64_t>(i / width);
    return std::nullopt;
}

Location last_location(const ir::Function& fn) {
    for (auto op = fn.ops.rbegin(); op != fn.ops.rend(); ++op)
        if (op->where.known()) return op->where;
    return {};
}

/// One definition, its sizes, and arguments on which it stays finite.
struct Experiment {
    const ir::Definition& def;
    Sizes sizes;
    Sequence sequence;
    Outcome expected;

    static std::optional<Experiment> find(const ir::Definition& def) {
        const Sizes sizes = small_sizes(def, kChunk);
        Experiment e{def, sizes, random_sequence(def, sizes, kChunk, kSeed), {}};
        e.expected = run_phases(def, e.sequence, sizes);
        return finite(e.expected) ? std::optional(e) : std::nullopt;
    }

    /// The arguments with the rows of one token of the given inputs (all if empty) moved.
    [[nodiscard]] Sequence changed_at(std::int64_t token, const std::string& only) const {
        Sequence changed = sequence;
        for (const ir::InputDecl& in : def.inputs) {
            if (in.role != Role::Input || (!only.empty() && in.name != only)) continue;
            Value& x = changed.inputs.at(in.name);
            const std::size_t width = x.data.size() / static_cast<std::size_t>(kChunk);
            for (std::size_t i = 0; i < width; ++i) x.data[static_cast<std::size_t>(token) * width + i] *= 0.75;
        }
        return changed;
    }

    [[nodiscard]] Sequence prefix(std::int64_t tokens) const {
        Sequence shorter = sequence;
        shorter.tokens = tokens;
        for (const ir::InputDecl& in : def.inputs) {
            if (in.role != Role::Input) continue;
            Value& x = shorter.inputs.at(in.name);
            x.data.resize(x.data.size() / static_cast<std::size_t>(kChunk) * static_cast<std::size_t>(tokens));
            x.shape[0] = x.shape[0] / kChunk * tokens;
        }
        return shorter;
    }
};

/// All inputs of a token are moved at once; only if that shows a fault is the input to blame looked for.
void check_causality(const Experiment& e, std::vector<Diagnostic>& found) {
    std::vector<std::string> blamed;
    const auto report = [&](const std::string& output, std::int64_t row, const std::string& input, std::int64_t token) {
        if (std::count(blamed.begin(), blamed.end(), output + "/" + input)) return;
        blamed.push_back(output + "/" + input);
        found.push_back(
            {fmt::format("merge reads a later token: output '{}' at token {} changes when input '{}' changes "
                         "at token {}",
                         output, row, input, token),
             "outputs that depend on their own token and earlier ones", "", last_location(e.def.merge),
             "put tril(…) around the products of tokens with tokens"});
    };
    for (std::int64_t token = 1; token < kChunk; ++token) {
        const auto faults = [&](const std::string& only, auto&& each) {
            const Outcome got = run_phases(e.def, e.changed_at(token, only), e.sizes);
            if (!finite(got)) return;
            for (const auto& [name, value] : e.expected.outputs)
                if (const auto row = first_changed_row(value, got.outputs.at(name), token)) each(name, *row);
        };
        bool faulty = false;
        faults("", [&](const std::string&, std::int64_t) { faulty = true; });
        if (!faulty) continue;
        for (const ir::InputDecl& in : e.def.inputs)
            if (in.role == Role::Input)
                faults(in.name,
                       [&](const std::string& output, std::int64_t row) { report(output, row, in.name, token); });
    }
}

void check_padding(const Experiment& e, std::vector<Diagnostic>& found) {
    const Sequence ragged = e.prefix(kRagged);
    const Outcome padded = run_phases(e.def, ragged, e.sizes);
    const Outcome exact = run_phases(e.def, ragged, small_sizes(e.def, kRagged));
    if (!finite(exact)) return;
    const auto compare = [&](const char* kind, const Bindings& wanted, const Bindings& got, const ir::Function& phase) {
        for (const auto& [name, value] : wanted) {
            const double difference = relative_difference(value, got.at(name));
            if (difference <= kTolerance) continue;
            found.push_back({fmt::format("padding changes the {} '{}'", kind, name),
                             fmt::format("the same result from {0} tokens in a chunk of {1} and in a chunk of {0}",
                                         kRagged, kChunk),
                             fmt::format("a relative difference of {:.2g}", difference), last_location(phase),
                             "rows past a sequence's end read as `pad` (default 0): choose a `pad` for which a row "
                             "changes nothing, or multiply by `token_mask`"});
        }
    };
    compare("final state", exact.states, padded.states, e.def.decay);
    compare("output", exact.outputs, padded.outputs, e.def.merge);
}

}  // namespace

bool goes_by_token(const ir::Definition& def, const ir::Function& program) {
    constexpr std::int64_t kTokens = 70;    // more than a chunk has
    if (def.outputs.empty()) return false;  // of a rank: its states are not those of the phases
    Sizes sizes = small_sizes(def, 1);
    if (sizes.at(ir::kChunkSymbol) != 1) return false;  // slices of it
    const Sequence sequence = random_sequence(def, sizes, kTokens, kSeed);
    const Outcome tokens = run_program(program, def, sequence, sizes);
    if (!finite(tokens)) return false;
    return std::all_of(std::begin(kLonger), std::end(kLonger), [&](std::int64_t chunk) {
        sizes[ir::kChunkSymbol] = chunk;
        const Outcome chunks = run_program(program, def, sequence, sizes);
        const auto same = [](const Bindings& a, const Bindings& b) {
            return std::all_of(a.begin(), a.end(), [&](const auto& named) {
                return relative_difference(named.second, b.at(named.first)) <= kRounding;
            });
        };
        return same(tokens.outputs, chunks.outputs) && same(tokens.states, chunks.states);
    });
}

bool goes_by_token(const ir::Definition& def) { return goes_by_token(def, frontend::join(def)); }

double relative_difference(const Value& a, const Value& b) {
    if (a.shape != b.shape) return std::numeric_limits<double>::infinity();
    double largest = 0;
    for (std::size_t i = 0; i < a.data.size(); ++i) {
        const double difference = std::fabs(a.data[i] - b.data[i]);
        if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
        largest = std::max(largest, difference);
    }
    return largest / scale_of(a);
}

Sizes small_sizes(const ir::Definition& def, std::int64_t chunk) {
    Sizes sizes{{ir::kChunkSymbol, chunk}};
    const auto add = [&](const Shape& shape) {
        for (const Dim& dim : shape)
            if (!dim.is_constant() && dim.symbol != ir::kTokenSymbol && !sizes.contains(dim.symbol))
                sizes[dim.symbol] = 0;
    };
    for (const auto& in : def.inputs) add(ir::phase_type(in).shape);
    for (const auto& s : def.states) add(s.type.shape);
    for (const auto& o : def.outputs) add(ir::phase_type(o).shape);
    std::int64_t next = 3;
    for (auto& [symbol, size] : sizes)
        if (symbol != ir::kChunkSymbol) size = next++;
    for (const ir::Function* phase : {&def.chunk, &def.decay, &def.merge, def.step ? &*def.step : &def.merge})
        for (const auto& [symbol, least] : ir::least_sizes(*phase)) sizes[symbol] = std::max(sizes[symbol], least.size);
    return sizes;
}

namespace {

/// Arguments of one head, each made by `make(input, shape)`.
template <class Make>
Sequence sequence_of(const ir::Definition& def, const Sizes& sizes, std::int64_t tokens, Random& random, Make&& make) {
    Sequence result;
    result.tokens = tokens;
    Sizes whole = sizes;
    whole[ir::kChunkSymbol] = tokens;
    for (const ir::InputDecl& in : def.inputs) {
        const std::vector<std::int64_t> shape = concrete(ir::phase_type(in).shape, whole);
        result.inputs[in.name] = {shape, make(in, shape)};
    }
    for (const ir::StateDecl& s : def.states) {
        Value& state = result.initial_states[s.name] = zeros(concrete(s.type.shape, whole));
        for (double& x : state.data) x = 0.5 * random.normal();
    }
    return result;
}

Sequence mild_sequence(const ir::Definition& def, const std::map<std::string, InputValues>& values, const Sizes& sizes,
                       std::int64_t tokens, std::uint64_t seed) {
    Random random(seed);
    return sequence_of(def, sizes, tokens, random, [&](const ir::InputDecl& in, const auto& shape) {
        return random_numbers(values.at(in.name), shape, random, Spread::Mild);
    });
}

}  // namespace

std::map<std::string, InputValues> admitted_values(const ir::Definition& def) {
    const std::map<std::string, InputValues> read = graph::input_values(def);
    const Sizes sizes = small_sizes(def, kChunk);
    const auto admits = [&](const auto& values) {
        return finite(run_phases(def, mild_sequence(def, values, sizes, kChunk, kSeed), sizes));
    };
    if (admits(read)) return read;
    for (const Range guess : {Range{-1, 0}, kZeroToOne}) {
        auto values = read;
        for (auto& [name, v] : values)
            if (v.guessed) v.range = guess;
        if (admits(values)) return values;
    }
    return read;
}

bool admits_gates(const ir::Definition& def, double x) {
    const auto values = graph::input_values(def);
    const Sizes sizes = small_sizes(def, kChunk);
    Sequence sequence = random_sequence(def, sizes, 2 * kChunk + kRagged, kSeed);
    bool declared = true;
    for (const ir::InputDecl& in : def.inputs) {
        const InputValues& v = values.at(in.name);
        if (!v.is_gate() || (in.role != Role::Input && std::isinf(x))) continue;
        if (!v.range.contains(v.gate(x))) return false;
        declared = declared && v.declared;
        std::vector<double>& data = sequence.inputs.at(in.name).data;
        std::fill(data.begin(), data.end(), v.gate(x));
    }
    if (declared) return true;
    if (ir::is_sequential(def)) return finite(run_steps(def, sequence, sizes));
    const ir::Function program = graph::optimize(frontend::join(def));
    return finite(run_program(program, def, sequence, sizes)) && (!def.step || finite(run_steps(def, sequence, sizes)));
}

Sequence random_sequence(const ir::Definition& def, const Sizes& sizes, std::int64_t tokens, std::uint64_t seed) {
    return mild_sequence(def, admitted_values(def), sizes, tokens, seed);
}

Sequence random_sequence(const ir::Definition& def, const Sizes& sizes, std::int64_t tokens, std::uint64_t seed,
                         Range range) {
    Random random(seed);
    return sequence_of(def, sizes, tokens, random, [&](const ir::InputDecl& in, const auto& shape) {
        std::vector<double> numbers(static_cast<std::size_t>(element_count(shape)));
        for (double& x : numbers)
            x = is_half(in.type.dtype) ? 0.5 * random.normal()
                                       : range.low + (range.high - range.low) * random.uniform();
        return numbers;
    });
}

namespace {

/// Values that are too large to be computed here, in spite of small sizes: axes that are numbers, or that slices want
/// so long.
std::vector<Diagnostic> check_extents(const ir::Definition& def) {
    constexpr std::int64_t kMost = 1 << 24;
    const Sizes sizes = small_sizes(def, kChunk);
    std::vector<Diagnostic> found;
    const auto look = [&](const std::string& name, const ir::Type& type, const Location& where) {
        support::Checked elements = 1;
        for (const Dim& d : type.shape) elements = elements * d.factor * (d.is_constant() ? 1 : sizes.at(d.symbol));
        if (elements.at_most(kMost) || !found.empty()) return;
        found.push_back({fmt::format("{}: a value too large", name),
                         fmt::format("at most {} numbers where symbols are small", kMost), to_string(type), where,
                         "write a large axis as a symbol, whose size compilation asks for"});
    };
    for (const auto& in : def.inputs) look(in.name, ir::phase_type(in), in.where);
    for (const auto& state : def.states) look(state.name, state.type, state.where);
    for (const ir::Function* phase : {&def.chunk, &def.decay, &def.merge, def.step ? &*def.step : &def.merge})
        for (const ir::Op& op : phase->ops) look(phase->name, op.type, op.where);
    return found;
}

}  // namespace

std::vector<Diagnostic> check_semantics(const ir::Definition& def) {
    std::vector<Diagnostic> found = check_extents(def);
    if (!found.empty()) return found;
    if (const auto experiment = Experiment::find(def)) {
        check_causality(*experiment, found);
        check_padding(*experiment, found);
    }
    return found;
}

}  // namespace forge::interp
