#include "check/problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "check/element.h"
#include "check/random.h"
#include "forge/error.h"
#include "program/entry_point.h"
#include "support/checked.h"

namespace forge::check {
namespace {

using ir::Role;

constexpr std::int64_t kGap = 3;           ///< unused elements after each row of a strided tensor
constexpr std::int64_t kDefaultSize = 64;  ///< of a symbol that nothing gives a size

/// Every dimension of the definition with its place: head axes are told apart from the rest.
template <class Fn>
void each_dim(const ir::Definition& def, Fn&& visit) {
    const auto walk = [&](const Shape& shape, std::size_t head_axis) {
        for (std::size_t i = 0; i < shape.size(); ++i)
            if (!shape[i].is_constant() && shape[i].symbol != ir::kTokenSymbol) visit(shape[i].symbol, i == head_axis);
    };
    constexpr std::size_t kNone = 99;
    for (const auto& in : def.inputs)
        walk(in.type.shape, in.role == Role::Input ? 1 : in.role == Role::Head ? 0 : kNone);
    for (const auto& out : def.outputs) walk(out.type.shape, 1);
    for (const auto& state : def.states) walk(state.type.shape, kNone);
}

std::set<std::string> head_symbols(const ir::Definition& def) {
    std::set<std::string> symbols;
    each_dim(def, [&](const std::string& symbol, bool head) {
        if (head) symbols.insert(symbol);
    });
    return symbols;
}

/// Of this machine. More is never allocated, less may not be there either.
std::int64_t memory_bytes() { return (support::Checked(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)).saturated(); }

/// Rounding happens on the way in; outputs start as NaN, so that an element that nobody writes is seen.
void fill(OwnedTensor& x, double value) {
    for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, value);
}

}  // namespace

std::int64_t Problem::sequences() const { return lengths.empty() ? B : static_cast<std::int64_t>(lengths.size()); }

std::int64_t Problem::tokens() const {
    return lengths.empty() ? B * T : std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

bool has_grouped_heads(const ir::Definition& def) { return head_symbols(def).size() > 1; }

std::map<std::string, std::int64_t> sizes_for(const ir::Definition& def, const Problem& problem) {
    const auto v = problem.sizes.find("V");
    const std::int64_t fallback = v != problem.sizes.end() ? v->second : kDefaultSize;
    std::map<std::string, std::int64_t> result;
    each_dim(def, [&](const std::string& symbol, bool head) {
        if (head) return;
        const auto given = problem.sizes.find(symbol);
        result[symbol] = given != problem.sizes.end() ? given->second : fallback;
    });
    return result;
}

OwnedTensor::OwnedTensor(DType type, std::vector<std::int64_t> sizes, std::int64_t head_axis, bool strided)
    : dtype(type), shape(std::move(sizes)), strides(shape.size(), 1), dense(!strided) {
    // Dense: the axes in order. Strided: heads outermost, and a gap after each row.
    std::vector<std::size_t> order(shape.size());
    std::iota(order.begin(), order.end(), 0);
    if (strided && head_axis >= 0) std::rotate(order.begin(), order.begin() + head_axis, order.begin() + head_axis + 1);
    support::Checked step = 1;
    for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
        strides[*axis] = step.saturated();
        step = step * shape[*axis];
        if (strided && axis == order.rbegin()) step = step + kGap;
    }
    const auto bytes = (step * static_cast<std::int64_t>(size_in_bytes(dtype))).at_most(memory_bytes());
    if (!bytes)
        throw RuntimeError(fmt::format("a tensor {}[{}] is larger than this machine's memory of {} bytes",
                                       to_string(dtype), fmt::join(shape, ", "), memory_bytes()));
    storage.resize(static_cast<std::size_t>(*bytes));
}

TensorView OwnedTensor::view() const {
    return {const_cast<std::byte*>(storage.data()), dtype, shape, strides};  // NOLINT: a Call's views are all writable
}

std::int64_t OwnedTensor::count() const { return interp::element_count(shape); }

std::int64_t OwnedTensor::offset(std::int64_t flat) const {
    if (dense) return flat;
    std::int64_t result = 0;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        result += flat % shape[axis] * strides[axis];
        flat /= shape[axis];
    }
    return result;
}

double OwnedTensor::at(std::int64_t flat) const {
    return load(storage.data() + offset(flat) * static_cast<std::int64_t>(size_in_bytes(dtype)), dtype);
}

void OwnedTensor::set(std::int64_t flat, double value) {
    store(storage.data() + offset(flat) * static_cast<std::int64_t>(size_in_bytes(dtype)), dtype, value);
}

ir::Definition tensors_of(const std::string& entry, const ir::Definition& declared) {
    if (program::is_from_states(entry))
        throw RuntimeError(
            fmt::format("{}: entry: expected one whose calls need nothing of another's, got '{}', which begins with "
                        "the states that a "
                        "forward pass leaves; take backward, which makes them again",
                        declared.name, entry));
    return program::tensors_of(entry, declared);
}

Buffers::Buffers(const ir::Definition& declared, const Problem& problem)
    : def_(declared),
      problem_(problem),
      values_(values_of(declared)),
      sizes_(sizes_for(declared, problem)),
      offsets_{0} {
    for (const std::string& symbol : head_symbols(def_))
        sizes_[symbol] = symbol == "H" || problem.HV == 0 ? problem.H : problem.HV;
    refuse_extremes();
    for (std::int64_t i = 0; i < problem_.sequences(); ++i)
        offsets_.push_back(offsets_.back() +
                           (problem_.lengths.empty() ? problem_.T : problem_.lengths[static_cast<std::size_t>(i)]));
    for (const auto& in : def_.inputs)
        if (in.role != Role::Scalar) heads_ = std::max(heads_, dim(in.type.shape[in.role == Role::Input ? 1 : 0]));
    for (const auto& out : def_.outputs) heads_ = std::max(heads_, dim(out.type.shape[1]));
    add_inputs();
    add_outputs_and_states();
    if (problem_.lengths.empty()) return;
    const DType type = problem_.int64_offsets ? DType::I64 : DType::I32;
    cu_seqlens_ = OwnedTensor(type, {static_cast<std::int64_t>(offsets_.size())}, -1, false);
    for (std::size_t i = 0; i < offsets_.size(); ++i)
        cu_seqlens_.set(static_cast<std::int64_t>(i), static_cast<double>(offsets_[i]));
}

/// Of what is drawn for an input there are eight bytes for each number; sequences and tokens are counted beside them.
void Buffers::refuse_extremes() const {
    const support::Checked tokens =
        support::Checked(std::max<std::int64_t>(1, problem_.B)) *
        std::max<std::int64_t>(1, problem_.lengths.empty() ? problem_.T : problem_.tokens());
    support::Checked bytes = tokens;
    for (const auto& in : def_.inputs) {
        support::Checked numbers = sizeof(double);
        for (const Dim& d : in.type.shape)
            numbers = numbers * d.factor *
                      (d.is_constant()                ? support::Checked(1)
                       : d.symbol == ir::kTokenSymbol ? tokens
                                                      : support::Checked(sizes_.at(d.symbol)));
        bytes = bytes + numbers;
    }
    if (bytes.at_most(memory_bytes())) return;
    throw RuntimeError(
        fmt::format("{}: a call of {} sequences of {} tokens, with {}, does not fit into this machine's "
                    "memory of {} bytes",
                    def_.name, problem_.sequences(), problem_.T, sizes_text(), memory_bytes()));
}

std::string Buffers::sizes_text() const {
    std::vector<std::string> parts;
    for (const auto& [symbol, size] : sizes_) parts.push_back(fmt::format("{} = {}", symbol, size));
    return fmt::format("{}", fmt::join(parts, ", "));
}

std::int64_t Buffers::dim(const Dim& d) const { return d.is_constant() ? d.factor : d.factor * sizes_.at(d.symbol); }

/// [B, T, heads, …], or [T, heads, …] when packed.
std::vector<std::int64_t> Buffers::token_shape(const Shape& shape) const {
    std::vector<std::int64_t> result;
    if (problem_.lengths.empty()) result.push_back(problem_.B);
    result.push_back(shape[0].factor * (problem_.lengths.empty() ? problem_.T : problem_.tokens()));
    for (std::size_t i = 1; i < shape.size(); ++i) result.push_back(dim(shape[i]));
    return result;
}

void Buffers::add_inputs() {
    const std::int64_t token_head_axis = problem_.lengths.empty() ? 2 : 1;
    for (std::size_t i = 0; i < def_.inputs.size(); ++i) {
        const ir::InputDecl& in = def_.inputs[i];
        const auto numbers = [&](const std::vector<std::int64_t>& shape) {
            Problem drawn = problem_;
            // A head that forgets all at once leaves 0 * inf to its padding; a token that does is a reset.
            if (in.role != Role::Input && std::isinf(drawn.gate)) drawn.gate = std::nan("");
            return random_values(values_.at(in.name), i, shape, drawn);
        };
        if (in.role == Role::Scalar) {
            scalars[in.name] = static_cast<float>(numbers({})[0]);
            continue;
        }
        std::vector<std::int64_t> shape;
        if (in.role == Role::Input) shape = token_shape(in.type.shape);
        else
            for (const Dim& d : in.type.shape) shape.push_back(dim(d));
        const DType type = is_half(in.type.dtype) ? problem_.dtype : in.type.dtype;
        OwnedTensor x(type, shape, in.role == Role::Input ? token_head_axis : -1, problem_.strided);
        const std::vector<double> values = numbers(shape);
        for (std::size_t n = 0; n < values.size(); ++n) x.set(static_cast<std::int64_t>(n), values[n]);
        inputs.emplace(in.name, std::move(x));
    }
}

void Buffers::add_outputs_and_states() {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const ir::OutputDecl& out : def_.outputs) {
        const DType type = is_half(out.type.dtype) ? problem_.dtype : out.type.dtype;
        OwnedTensor x(type, token_shape(out.type.shape), problem_.lengths.empty() ? 2 : 1, problem_.strided);
        fill(x, nan);
        outputs.emplace(out.name, std::move(x));
    }
    std::size_t index = 0;
    const auto add_state = [&](const std::string& name, const ir::Type& type, std::int64_t heads, DType stored,
                               DType values) {
        std::vector<std::int64_t> shape{problem_.sequences(), heads};
        for (const Dim& d : type.shape) shape.push_back(dim(d));
        OwnedTensor last(stored, shape, 1, problem_.strided);
        fill(last, nan);
        final_states.emplace(name, std::move(last));
        ++index;
        if (!problem_.initial_state) return;
        OwnedTensor first(stored, shape, 1, problem_.strided);
        Random random(mix(mix(problem_.seed, "state") ^ mix(index)));
        OwnedTensor rounded(values, {1}, -1, false);
        for (std::int64_t i = 0; i < first.count(); ++i)
            rounded.set(0, 0.5 * random.normal()), first.set(i, rounded.at(0));
        initial_states.emplace(name, std::move(first));
    };
    for (const ir::StateDecl& s : def_.states)
        if (!s.inner) add_state(s.name, s.type, heads_, problem_.state_dtype, DType::F32);
    for (const ir::LastRows& last : ir::last_rows(def_))  // what an earlier call has seen: numbers of the input's type
        add_state(last.name, last.type, dim(last.heads), DType::F32, inputs.at(last.input).dtype);
}

namespace {

/// Copies rows of tokens between tensors [B, T, …] of which one has a part of the other's.
void copy_tokens(const OwnedTensor& from, std::int64_t from_row, OwnedTensor& to, std::int64_t to_row,
                 std::int64_t rows) {
    const std::int64_t B = from.shape[0];
    std::int64_t width = 1;
    for (std::size_t axis = 2; axis < from.shape.size(); ++axis) width *= from.shape[axis];
    for (std::int64_t b = 0; b < B; ++b)
        for (std::int64_t i = 0; i < rows * width; ++i)
            to.set((b * to.shape[1] + to_row) * width + i, from.at((b * from.shape[1] + from_row) * width + i));
}

}  // namespace

Buffers Buffers::part(std::int64_t first, std::int64_t count) const {
    Problem problem = problem_;
    problem.T = count, problem.cut = 0;
    Buffers result(def_, problem);
    for (const ir::InputDecl& in : def_.inputs) {
        if (in.role == Role::Scalar) continue;
        OwnedTensor& x = result.inputs.at(in.name);
        const std::int64_t factor = in.type.shape[0].factor;
        if (in.role == Role::Input) copy_tokens(inputs.at(in.name), first * factor, x, 0, count * factor);
        else x = inputs.at(in.name);
    }
    result.initial_states = initial_states;
    return result;
}

void Buffers::take(const Buffers& part, std::int64_t first) {
    for (auto& [name, x] : outputs) {
        const std::int64_t factor = def_.output(name)->type.shape[0].factor;
        copy_tokens(part.outputs.at(name), 0, x, first * factor, part.problem().T * factor);
    }
    final_states = part.final_states;
}

Call Buffers::call() const {
    Call call;
    for (const auto* group : {&inputs, &outputs})
        for (const auto& [name, x] : *group) call.tensors[name] = x.view();
    for (const auto& [name, x] : initial_states) call.initial_states[name] = x.view();
    for (const auto& [name, x] : final_states) call.final_states[name] = x.view();
    call.scalars = scalars;
    if (!problem_.lengths.empty()) call.cu_seqlens = cu_seqlens_.view();
    return call;
}

std::size_t Buffers::bytes() const {
    std::size_t total = 0;
    for (const auto* group : {&inputs, &outputs})
        for (const auto& [name, x] : *group) total += static_cast<std::size_t>(x.count()) * size_in_bytes(x.dtype);
    return total;
}

std::size_t Buffers::state_bytes() const {
    std::size_t total = 0;
    for (const auto& [name, x] : final_states) total += static_cast<std::size_t>(x.count()) * size_in_bytes(x.dtype);
    return total;
}

/// The rows of one sequence and head of a token tensor: [factor * tokens, …].
interp::Value Buffers::rows(const OwnedTensor& x, std::int64_t factor, std::int64_t index, std::int64_t head) const {
    const std::size_t lead = problem_.lengths.empty() ? 3 : 2;  // axes up to the heads
    const std::int64_t own = x.shape[lead - 1], first = offsets_[static_cast<std::size_t>(index)] * factor;
    const std::int64_t count = (offsets_[static_cast<std::size_t>(index) + 1]) * factor - first;
    interp::Value result;
    result.shape = {count};
    result.shape.insert(result.shape.end(), x.shape.begin() + static_cast<std::ptrdiff_t>(lead), x.shape.end());
    std::int64_t width = 1;
    for (std::size_t i = 1; i < result.shape.size(); ++i) width *= result.shape[i];
    result.data.reserve(static_cast<std::size_t>(count * width));
    const std::int64_t group = heads_ / own;
    for (std::int64_t row = first; row < first + count; ++row)  // B and T together count like packed rows
        for (std::int64_t i = 0; i < width; ++i) result.data.push_back(x.at((row * own + head / group) * width + i));
    return result;
}

/// One slice of the first axis: x[index, …].
interp::Value Buffers::slab(const OwnedTensor& x, std::int64_t index) const {
    interp::Value result;
    result.shape.assign(x.shape.begin() + 1, x.shape.end());
    const std::int64_t width = interp::element_count(result.shape);
    for (std::int64_t i = 0; i < width; ++i) result.data.push_back(x.at(index * width + i));
    return result;
}

/// One head's state: last rows of an input are shared by the heads that share the input.
interp::Value Buffers::state_of(const OwnedTensor& x, std::int64_t index, std::int64_t head) const {
    const interp::Value whole = slab(x, index);
    const std::int64_t width = interp::element_count(whole.shape) / x.shape[1], own = head / (heads_ / x.shape[1]);
    interp::Value one;
    one.shape.assign(whole.shape.begin() + 1, whole.shape.end());
    one.data.assign(whole.data.begin() + own * width, whole.data.begin() + (own + 1) * width);
    return one;
}

interp::Sequence Buffers::sequence(std::int64_t index, std::int64_t head) const {
    interp::Sequence result;
    const auto at = static_cast<std::size_t>(index);
    result.tokens = offsets_[at + 1] - offsets_[at];
    for (const ir::InputDecl& in : def_.inputs) {
        if (in.role == Role::Scalar) {
            result.inputs[in.name] = interp::scalar(scalars.at(in.name));
            continue;
        }
        const OwnedTensor& x = inputs.at(in.name);
        result.inputs[in.name] = in.role == Role::Input ? rows(x, in.type.shape[0].factor, index, head)
                                                        : slab(x, head / (heads_ / x.shape[0]));
    }
    for (const auto& [name, x] : initial_states) {
        result.initial_states[name] = state_of(x, index, head);
    }
    return result;
}

interp::Value Buffers::output(const std::string& name, std::int64_t index, std::int64_t head) const {
    return rows(outputs.at(name), def_.output(name)->type.shape[0].factor, index, head);
}

interp::Value Buffers::final_state(const std::string& name, std::int64_t index, std::int64_t head) const {
    return state_of(final_states.at(name), index, head);
}

}  // namespace forge::check
