#include "runtime/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>

namespace forge::runtime {
namespace {

using device::CallTensor;
static_assert(std::size(CallTensor{}.dim) == ir::kMostAxes);
using ir::Type;
using plan::Plan;
using plan::TensorSlot;
using Kind = TensorSlot::Kind;

std::string shown(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// That there are so few tokens and heads that blocks of them can be counted, in parts too, and that sequences can be
/// numbered with int.
void check_magnitude(const Plan& plan, const Bounds& of) {
    constexpr std::int64_t kMostSequences = std::numeric_limits<std::int32_t>::max(), kLargestChunk = 128;
    if (of.sequences > kMostSequences)
        throw RuntimeError(fmt::format("{}: expected at most {} sequences, got {}", plan.definition.name,
                                       kMostSequences, of.sequences));
    const support::Checked tokens = of.tokens, sequences = std::max<std::int64_t>(1, of.sequences);
    const support::Checked rows = of.packed ? tokens + sequences * kLargestChunk : sequences * (tokens + kLargestChunk);
    const std::int64_t parts = std::max<std::int64_t>(1, plan.schedule.tiles);
    if (!(rows * std::max<std::int64_t>(1, of.heads) * parts).at_most())
        throw RuntimeError(fmt::format("{}: more tasks than 64 bits count: {} sequences, {} tokens{}, {} heads",
                                       plan.definition.name, of.sequences, of.tokens, of.packed ? " in all" : "",
                                       of.heads));
}

class Binder {
  public:
    Binder(const Plan& plan, const Call& call, Lengths lengths) : plan_(plan), call_(call), lengths_(lengths) {}

    Bound run() {
        refuse_unknown();
        refuse_extremes();
        for (const TensorSlot& slot : plan_.tensors) find_sizes(slot);
        find_heads();
        find_sequences();
        check_magnitude(plan_, {bound_.sequences, bound_.length, bound_.heads, call_.cu_seqlens.has_value()});
        for (const TensorSlot& slot : plan_.tensors) bound_.tensors.push_back(bind(slot));
        find_slots();
        for (const std::string& name : plan_.scalars) bind_scalar(name);
        if (lengths_ == Lengths::OnHost) {
            find_chunks();
            find_segments();
        } else {
            bound_chunks_and_segments();
        }
        return std::move(bound_);
    }

  private:
    [[noreturn]] void fail(const std::string& argument, const std::string& expected, const std::string& got) const {
        throw RuntimeError(
            fmt::format("{}: argument '{}': expected {}, got {}", plan_.definition.name, argument, expected, got));
    }

    static bool is_state(const TensorSlot& slot) {
        return slot.kind == Kind::InitialState || slot.kind == Kind::FinalState || slot.kind == Kind::ChunkState;
    }
    static bool has_tokens(const TensorSlot& slot) { return slot.kind == Kind::Input || slot.kind == Kind::Output; }

    [[nodiscard]] std::string argument_name(const TensorSlot& slot) const {
        if (slot.kind == Kind::InitialState) return "initial_states." + slot.name;
        if (slot.kind == Kind::FinalState) return "final_states." + slot.name;
        if (slot.kind == Kind::ChunkState) return "chunk_states." + slot.name;
        return slot.name;
    }

    [[nodiscard]] const TensorView* find(const TensorSlot& slot) const {
        const auto& from = slot.kind == Kind::InitialState ? call_.initial_states
                           : slot.kind == Kind::FinalState ? call_.final_states
                           : slot.kind == Kind::ChunkState ? call_.chunk_states
                                                           : call_.tensors;
        const auto it = from.find(slot.name);
        if (it != from.end()) return &it->second;
        if (!is_state(slot)) fail(slot.name, fmt::format("a tensor {}", to_string(slot.type)), "nothing");
        return nullptr;
    }

    void refuse_unknown() const {
        const auto check = [&](const std::map<std::string, TensorView>& given, const char* prefix, auto wanted) {
            for (const auto& [name, view] : given) {
                std::vector<std::string> known;
                for (const TensorSlot& s : plan_.tensors)
                    if (wanted(s)) known.push_back(s.name);
                if (std::find(known.begin(), known.end(), name) == known.end())
                    fail(prefix + name, fmt::format("one of {}", fmt::join(known, ", ")), "an unknown name");
            }
        };
        check(call_.tensors, "", [](const TensorSlot& s) { return !is_state(s); });
        check(call_.initial_states, "initial_states.",
              [](const TensorSlot& s) { return s.kind == Kind::InitialState; });
        check(call_.final_states, "final_states.", [](const TensorSlot& s) { return s.kind == Kind::FinalState; });
        const auto has_chunk_state = [](const TensorSlot& s) { return s.kind == Kind::ChunkState; };
        if (!call_.chunk_states.empty() && std::none_of(plan_.tensors.begin(), plan_.tensors.end(), has_chunk_state))
            fail("chunk_states", "a variant that was compiled with chunk_states", "one without");
        check(call_.chunk_states, "chunk_states.", has_chunk_state);
        for (const auto& [name, value] : call_.scalars)
            if (std::find(plan_.scalars.begin(), plan_.scalars.end(), name) == plan_.scalars.end())
                fail(name, fmt::format("one of the scalars {}", fmt::join(plan_.scalars, ", ")), "an unknown name");
    }

    /// What no tensor in memory is: sizes below 0, elements that do not lie within 2^63 bytes, an address that is no
    /// multiple of an element's size. All arithmetic on shapes and strides relies on it.
    void refuse_extremes() const {
        const auto check = [&](const std::string& name, const TensorView& view) {
            if (std::any_of(view.shape.begin(), view.shape.end(), [](auto n) { return n < 0; }))
                fail(name, "sizes of at least 0", shown(view.shape));
            const auto bytes = static_cast<std::int64_t>(size_in_bytes(view.dtype));
            support::Checked elements = bytes, extent = bytes;
            for (std::size_t axis = 0; axis < view.shape.size(); ++axis) {
                elements = elements * std::max<std::int64_t>(1, view.shape[axis]);
                if (axis < view.strides.size() && view.shape[axis] > 1)
                    extent = extent + support::Checked(view.shape[axis] - 1) * magnitude(view.strides[axis]) * bytes;
            }
            if (!elements.at_most()) fail(name, "fewer than 2^63 bytes", shown(view.shape));
            if (!extent.at_most())
                fail(name, "strides within 2^63 bytes",
                     fmt::format("{} of {}", shown(view.strides), shown(view.shape)));
            if (reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(bytes) != 0)  // NOLINT
                fail(name, fmt::format("an address that is a multiple of {} bytes", bytes),
                     fmt::format("{}", static_cast<const void*>(view.data)));
        };
        const auto check_all = [&](const std::map<std::string, TensorView>& group, const char* prefix) {
            for (const auto& [name, view] : group) check(prefix + name, view);
        };
        check_all(call_.tensors, ""), check_all(call_.initial_states, "initial_states."),
            check_all(call_.final_states, "final_states."), check_all(call_.chunk_states, "chunk_states.");
        if (call_.cu_seqlens) check("cu_seqlens", *call_.cu_seqlens);
        if (call_.initial_slots) check("initial_slots", *call_.initial_slots);
        if (call_.final_slots) check("final_slots", *call_.final_slots);
        if (call_.has_initial_state) check("has_initial_state", *call_.has_initial_state);
    }

    static std::int64_t magnitude(std::int64_t stride) {
        return stride == std::numeric_limits<std::int64_t>::min() ? support::Checked::kMost : std::abs(stride);
    }

    /// Reads B, T and the head counts off the first tensors that have them; later ones must agree.
    void find_sizes(const TensorSlot& slot) {
        const TensorView* view = find(slot);
        if (!view || is_state(slot)) return;
        const auto rank = static_cast<std::size_t>(slot.type.rank());
        if (has_tokens(slot) && view->shape.size() == rank + 1)
            agree(batch_, view->shape[0], argument_name(slot), "sequences (the batch)");
        else if (view->shape.size() != rank) fail(argument_name(slot), expected_shape(slot), shown(view->shape));
        const std::size_t lead = view->shape.size() - rank;
        if (has_tokens(slot)) {
            const std::int64_t factor = slot.type.shape[0].factor;
            if (view->shape[lead] % factor != 0)
                fail(argument_name(slot), fmt::format("a multiple of {} rows", factor), shown(view->shape));
            agree(tokens_, view->shape[lead] / factor, argument_name(slot), "tokens");
        }
        const std::size_t head_axis = has_tokens(slot) ? lead + 1 : lead;
        const Dim& head = slot.type.shape[has_tokens(slot) ? 1 : 0];
        if (!head.is_constant())
            agree(heads_of_[head.symbol], view->shape[head_axis], argument_name(slot), "heads (" + head.symbol + ")");
    }

    void agree(std::int64_t& known, std::int64_t got, const std::string& argument, const std::string& what) const {
        if (known > -1 && known != got)
            fail(argument, fmt::format("{} {}, as in the arguments before", known, what), std::to_string(got));
        known = got;
    }

    struct Unset {
        std::int64_t value = -1;
        operator std::int64_t&() { return value; }  // NOLINT(google-explicit-constructor)
    };

    [[nodiscard]] static std::int64_t heads_in(const TensorSlot& slot, const TensorView& view) {
        const std::size_t from_the_end = static_cast<std::size_t>(slot.type.rank()) - (has_tokens(slot) ? 1 : 0);
        return view.shape[view.shape.size() - from_the_end];
    }

    /// A task makes one head of every output, which no other task may write: all outputs have as many heads as there
    /// are tasks, and inputs as many or a divisor, which neighbouring tasks then read together.
    void find_heads() {
        const TensorSlot* result = nullptr;
        for (const TensorSlot& slot : plan_.tensors) {
            if (slot.kind != Kind::Output) continue;
            const std::int64_t n = heads_in(slot, *find(slot));
            if (result && n != bound_.heads)
                fail(slot.name, fmt::format("{} heads, as '{}' has", bound_.heads, result->name), std::to_string(n));
            if (n <= 0) fail(slot.name, "at least one head", std::to_string(n));
            if (!result) result = &slot, bound_.heads = n;
        }
        for (const TensorSlot& slot : plan_.tensors) {
            if (is_state(slot)) continue;
            const std::int64_t n = heads_in(slot, *find(slot));
            if (n <= 0 || bound_.heads % n != 0)
                fail(slot.name,
                     fmt::format("heads ({}) that divide the {} of '{}'",
                                 to_string(slot.type.shape[has_tokens(slot) ? 1 : 0]), bound_.heads, result->name),
                     std::to_string(n));
        }
    }

    void find_sequences() {
        if (tokens_ < 0) tokens_ = 0;
        const std::int64_t batch = batch_ < 0 ? 1 : batch_;
        bound_.length = tokens_;
        if (!call_.cu_seqlens) {
            bound_.sequences = batch;
            if (lengths_ == Lengths::OnDevice) return;
            bound_.start.assign(static_cast<std::size_t>(batch), 0);
            bound_.tokens.assign(static_cast<std::size_t>(batch), tokens_);
            return;
        }
        const TensorView& cu = *call_.cu_seqlens;
        if (batch != 1) fail("cu_seqlens", "a batch of 1 with packed sequences", fmt::format("a batch of {}", batch));
        if (cu.shape.size() != 1 || cu.shape[0] < 1) fail("cu_seqlens", "shape [sequences + 1]", shown(cu.shape));
        if (cu.dtype != DType::I32 && cu.dtype != DType::I64) fail("cu_seqlens", "i32 or i64", to_string(cu.dtype));
        if (!cu.strides.empty() && cu.strides.size() != 1)
            fail("cu_seqlens", "one stride per axis", fmt::format("{} strides", cu.strides.size()));
        if (!cu.data) fail("cu_seqlens", "a pointer", "null");
        bound_.sequences = cu.shape[0] - 1;
        if (lengths_ == Lengths::OnDevice) return;
        std::int64_t before = offset(cu, 0);
        if (before != 0) fail("cu_seqlens", "0 as the first offset", std::to_string(before));
        for (std::int64_t n = 0; n < bound_.sequences; ++n) {
            const std::int64_t after = offset(cu, n + 1);
            if (after < before)
                fail("cu_seqlens", "offsets that do not fall", fmt::format("{} after {}", after, before));
            if (after > tokens_ && n + 1 < bound_.sequences)
                fail("cu_seqlens", fmt::format("offsets of at most {} tokens", tokens_), std::to_string(after));
            bound_.start.push_back(before);
            bound_.tokens.push_back(after - before);
            before = after;
        }
        if (before != tokens_)
            fail("cu_seqlens", fmt::format("the number of tokens, {}, as the last offset", tokens_),
                 std::to_string(before));
    }

    static std::int64_t offset(const TensorView& cu, std::int64_t n) {
        const std::int64_t at = n * (cu.strides.empty() ? 1 : cu.strides[0]);
        return cu.dtype == DType::I32 ? static_cast<const std::int32_t*>(cu.data)[at]
                                      : static_cast<const std::int64_t*>(cu.data)[at];
    }

    [[nodiscard]] std::int64_t size_of(const Dim& d) const {
        if (d.is_constant()) return d.factor;
        if (d.symbol == ir::kTokenSymbol) return d.factor * tokens_;
        const auto head = heads_of_.find(d.symbol);
        if (head != heads_of_.end()) return head->second.value;
        return d.factor * plan_.sizes.at(d.symbol);
    }

    [[nodiscard]] std::string expected_shape(const TensorSlot& slot) const {
        std::string text = has_tokens(slot) ? "[B, "
                           : is_state(slot) ? fmt::format("[{}, {}, ", bound_.sequences, bound_.heads)
                                            : "[";
        for (const Dim& d : slot.type.shape) {
            const bool known = d.is_constant() || plan_.sizes.contains(d.symbol);
            text += known ? std::to_string(size_of(d)) : to_string(d);
            text += ", ";
        }
        return "shape " + text.substr(0, text.size() - 2) + "]";
    }

    [[nodiscard]] CallTensor bind(const TensorSlot& slot) const {
        const TensorView* view = find(slot);
        CallTensor t{};
        if (!view) return t;
        const DType wanted = is_state(slot) ? DType::F32 : slot.type.dtype;
        if (view->dtype != wanted)
            fail(argument_name(slot), "element type " + to_string(wanted), to_string(view->dtype));
        if (view->strides.size() != view->shape.size())
            fail(argument_name(slot), "one stride per axis", fmt::format("{} strides", view->strides.size()));
        if (slot.kind != Kind::Input && slot.kind != Kind::Head && slot.kind != Kind::InitialState)
            check_written(slot, *view);
        const std::int64_t chunks = slot.kind == Kind::ChunkState ? check_chunks(slot, *view) : 0;
        if (slot.kind != Kind::ChunkState) check_shape(slot, *view);
        if (!view->data && std::none_of(view->shape.begin(), view->shape.end(), [](auto n) { return n == 0; }))
            fail(argument_name(slot), "a pointer", "null");
        t.data = view->data;
        t.group = 1;
        std::size_t axis = 0;
        // Of an axis of one element callers may say anything, which should not look unaligned to a kernel.
        const auto stride = [&] { return view->shape[axis] == 1 ? (++axis, 0) : view->strides[axis++]; };
        if (slot.kind == Kind::ChunkState) {
            if (view->shape.size() == static_cast<std::size_t>(slot.type.rank()) + 3)
                t.sequence = call_.cu_seqlens ? (++axis, 0) : stride();
            t.token = stride();
            t.head = stride();
            t.group = chunks;
        } else if (is_state(slot)) {
            t.sequence = stride();
            if (slot.heads) t.group = bound_.heads / std::max<std::int64_t>(1, view->shape[axis]);
            t.head = stride();
        } else {
            if (view->shape.size() > static_cast<std::size_t>(slot.type.rank()))
                t.sequence = call_.cu_seqlens ? (++axis, 0) : stride();
            if (has_tokens(slot)) t.token = stride();
            t.group = bound_.heads / std::max<std::int64_t>(1, view->shape[axis]);
            t.head = stride();
        }
        for (std::size_t d = 0; axis < view->shape.size(); ++d) t.dim[d] = view->strides[axis++];
        return t;
    }

    void check_written(const TensorSlot& slot, const TensorView& view) const {
        if (std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end()) return;
        for (std::size_t axis = 0; axis < view.shape.size(); ++axis)
            if (view.shape[axis] > 1 && view.strides[axis] == 0)
                fail(argument_name(slot), "an element of its own for every result",
                     fmt::format("stride 0 of {} elements", view.shape[axis]));
    }

    /// How many states before chunks there are, of each sequence or of all packed ones. Where only the device knows the
    /// lengths of packed ones, as many as the caller says: the kernels write no more.
    [[nodiscard]] std::int64_t check_chunks(const TensorSlot& slot, const TensorView& view) const {
        const std::int64_t chunk = plan_.schedule.chunk;
        const auto rank = static_cast<std::size_t>(slot.type.rank());
        const bool has_batch = view.shape.size() == rank + 3 || (!call_.cu_seqlens && bound_.sequences != 1);
        std::int64_t chunks = (tokens_ + chunk - 1) / chunk;
        if (call_.cu_seqlens && lengths_ == Lengths::OnHost) {
            chunks = 0;
            for (const device::Size tokens : bound_.tokens) chunks += (tokens + chunk - 1) / chunk;
        } else if (call_.cu_seqlens && view.shape.size() > (has_batch ? 1U : 0U)) {
            chunks =
                std::clamp<std::int64_t>(view.shape[has_batch ? 1 : 0], chunks, tokens_ / chunk + bound_.sequences);
        }
        std::vector<std::int64_t> wanted = {chunks, bound_.heads};
        if (has_batch) wanted.insert(wanted.begin(), call_.cu_seqlens ? 1 : bound_.sequences);
        for (const Dim& d : slot.type.shape) wanted.push_back(size_of(d));
        if (view.shape != wanted) fail(argument_name(slot), "shape " + shown(wanted), shown(view.shape));
        return chunks;
    }

    void check_shape(const TensorSlot& slot, const TensorView& view) const {
        std::vector<std::int64_t> wanted;
        if (is_state(slot))
            wanted = {slots_for(slot) && !view.shape.empty() ? view.shape[0] : bound_.sequences,
                      slot.heads ? size_of(*slot.heads) : bound_.heads};
        else if (view.shape.size() > static_cast<std::size_t>(slot.type.rank())) wanted = {batch_};
        for (const Dim& d : slot.type.shape) wanted.push_back(size_of(d));
        if (view.shape.size() == wanted.size() && view.shape == wanted) return;
        fail(argument_name(slot), "shape " + shown(wanted), shown(view.shape));
    }

    [[nodiscard]] const std::optional<TensorView>& slots_for(const TensorSlot& slot) const {
        return slot.kind == Kind::InitialState ? call_.initial_slots : call_.final_slots;
    }

    void check_per_sequence(const std::optional<TensorView>& view, const char* name,
                            std::initializer_list<DType> types) const {
        if (!view) return;
        if (std::find(types.begin(), types.end(), view->dtype) == types.end())
            fail(name, types.size() > 1 ? "i32 or i64" : "bool", to_string(view->dtype));
        if (view->shape != std::vector<std::int64_t>{bound_.sequences})
            fail(name, fmt::format("shape [{}]", bound_.sequences), shown(view->shape));
        if (!view->data && bound_.sequences > 0) fail(name, "a pointer", "null");
        if (view->shape[0] > 1 && view->strides != std::vector<std::int64_t>{1})
            fail(name, "a dense array", fmt::format("stride {}", view->strides[0]));
    }

    void find_slots() {
        check_per_sequence(call_.initial_slots, "initial_slots", {DType::I32, DType::I64});
        check_per_sequence(call_.final_slots, "final_slots", {DType::I32, DType::I64});
        check_per_sequence(call_.has_initial_state, "has_initial_state", {DType::Bool});
        if (call_.initial_slots && call_.final_slots && call_.initial_slots->dtype != call_.final_slots->dtype)
            fail("final_slots", to_string(call_.initial_slots->dtype) + " as initial_slots",
                 to_string(call_.final_slots->dtype));
        const auto data = [](const std::optional<TensorView>& view) { return view ? view->data : nullptr; };
        const std::optional<TensorView>& any = call_.initial_slots ? call_.initial_slots : call_.final_slots;
        bound_.slots = {data(call_.initial_slots), data(call_.final_slots),
                        static_cast<const unsigned char*>(data(call_.has_initial_state)),
                        any && any->dtype == DType::I64};
        if (lengths_ == Lengths::OnHost) skip_sequences();
    }

    /// Sequences with a negative slot have no tokens for the kernels.
    void skip_sequences() {
        for (std::int64_t n = 0; n < bound_.sequences; ++n) {
            bool skipped = false;
            for (const TensorSlot& slot : plan_.tensors) {
                if (!is_state(slot) || slot.kind == Kind::ChunkState || !slots_for(slot)) continue;
                const TensorView* states = find(slot);
                const std::int64_t at = offset(*slots_for(slot), n);
                skipped = skipped || at < 0;
                if (states && at >= states->shape[0])
                    fail(slot.kind == Kind::InitialState ? "initial_slots" : "final_slots",
                         fmt::format("slots below {}", states->shape[0]), std::to_string(at));
            }
            if (!skipped) continue;
            bound_.skipped.push_back(n);
            bound_.skipped_tokens.push_back(std::exchange(bound_.tokens[static_cast<std::size_t>(n)], 0));
        }
    }

    void bind_scalar(const std::string& name) {
        const auto it = call_.scalars.find(name);
        if (it == call_.scalars.end()) fail(name, "a number", "nothing");
        bound_.scalars.push_back(static_cast<float>(it->second));
    }

    void find_chunks() {
        const std::int64_t chunk = plan_.schedule.chunk;
        for (const device::Size tokens : bound_.tokens) bound_.chunks += (tokens + chunk - 1) / chunk;
    }

    /// Segments of equal length, as many in the longest sequence as were planned; every sequence has one at least.
    void find_segments() {
        const std::int64_t chunk = plan_.schedule.chunk, wanted = std::max<std::int64_t>(1, plan_.schedule.segments);
        std::int64_t most = 1;
        for (const device::Size tokens : bound_.tokens)
            most = std::max<std::int64_t>(most, (tokens + chunk - 1) / chunk);
        bound_.segment_rows = (most + wanted - 1) / wanted * chunk;
        for (std::int64_t n = 0; n < bound_.sequences; ++n) {
            const std::int64_t segments = std::max<std::int64_t>(
                1, (bound_.tokens[static_cast<std::size_t>(n)] + bound_.segment_rows - 1) / bound_.segment_rows);
            bound_.first_segment.push_back(bound_.segments);
            bound_.segment_sequence.insert(bound_.segment_sequence.end(), static_cast<std::size_t>(segments),
                                           static_cast<int>(n));
            bound_.segments += segments;
        }
        bound_.first_segment.push_back(bound_.segments);
        bound_.summaries = bound_.segments, bound_.summary_rows = bound_.segment_rows;
    }

    /// As many chunks and segments as there can be, whatever the lengths of packed sequences; each has one at least.
    void bound_chunks_and_segments() {
        const std::int64_t chunk = plan_.schedule.chunk, parts = std::max<std::int64_t>(1, plan_.schedule.summaries);
        const std::int64_t wanted = std::max<std::int64_t>(1, plan_.schedule.segments) * parts;
        const std::int64_t most = std::max<std::int64_t>(1, (bound_.length + chunk - 1) / chunk);
        bound_.summary_rows = (most + wanted - 1) / wanted * chunk;
        bound_.segment_rows = bound_.summary_rows * parts;
        bound_.packed = call_.cu_seqlens.has_value();
        bound_.chunks = bound_.blocks(chunk);
        bound_.segments = bound_.blocks(bound_.segment_rows);
        bound_.summaries = bound_.blocks(bound_.summary_rows);
    }

    const Plan& plan_;
    const Call& call_;
    Lengths lengths_;
    Bound bound_;
    std::int64_t batch_ = -1, tokens_ = -1;
    std::map<std::string, Unset> heads_of_;
};

}  // namespace

Bound bind(const Plan& plan, const Call& call, Lengths lengths) { return Binder(plan, call, lengths).run(); }

Bound bind(const Plan& plan, const Bounds& bounds) {
    const auto not_negative = [&](std::int64_t n, const char* name) {
        if (n < 0)
            throw RuntimeError(
                fmt::format("{}: bounds: expected {} of at least 0, got {}", plan.definition.name, name, n));
    };
    not_negative(bounds.sequences, "sequences"), not_negative(bounds.tokens, "tokens"),
        not_negative(bounds.heads, "heads");
    check_magnitude(plan, bounds);
    Bound bound;
    bound.sequences = bounds.sequences;
    bound.heads = bounds.heads;
    bound.length = bounds.tokens;
    bound.packed = bounds.packed;
    bound.chunks = bound.blocks(plan.schedule.chunk);
    // Parts of whole chunks, `wanted` in the longest sequence; the device counts packed ones from the total length.
    const auto parts = [&](std::int64_t wanted) {
        return std::min(bound.chunks,
                        std::max((support::Checked(bounds.sequences) * wanted).saturated(), bounds.sequences + wanted));
    };
    const std::int64_t segments = std::max<std::int64_t>(1, plan.schedule.segments);
    bound.segments = parts(segments);
    bound.summaries = parts(segments * std::max<std::int64_t>(1, plan.schedule.summaries));
    return bound;
}

std::size_t workspace_size(const Plan& plan, support::Checked bytes) {
    if (const auto size = bytes.at_most()) return static_cast<std::size_t>(*size);
    throw RuntimeError(
        fmt::format("{}: workspace: expected less than 2^63 bytes, got more sequences, tokens and heads than that is "
                    "enough for",
                    plan.definition.name));
}

void check_workspace(const Plan& plan, const Call& call, std::size_t bytes, std::size_t alignment) {
    if (bytes > 0 && !call.workspace)
        throw RuntimeError(fmt::format("{}: argument 'workspace': expected {} bytes (see workspace_bytes), got none",
                                       plan.definition.name, bytes));
    if (reinterpret_cast<std::uintptr_t>(call.workspace) % alignment != 0)  // NOLINT: of an address
        throw RuntimeError(fmt::format("{}: argument 'workspace': expected an address that is a multiple of {}, got {}",
                                       plan.definition.name, alignment, call.workspace));
    if (call.workspace_size && *call.workspace_size < bytes)
        throw RuntimeError(fmt::format("{}: argument 'workspace': expected {} bytes, got {}", plan.definition.name,
                                       bytes, *call.workspace_size));
}

}  // namespace forge::runtime
