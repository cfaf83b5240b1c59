#include "runtime/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runtime/arguments.h"
#include "runtime/blocks.h"
#include "runtime/state_slots.h"

namespace forge::runtime {
namespace {

using device::CallTensor;
static_assert(std::size(CallTensor{}.dim) == ir::kMostAxes);
using plan::Plan;
using plan::TensorSlot;
using Kind = TensorSlot::Kind;

class Binder {
  public:
    Binder(const Plan& plan, const Call& call, Lengths lengths) : plan_(plan), call_(call), lengths_(lengths) {}

    Bound run() {
        refuse_unknown(plan_, call_);
        refuse_extremes(plan_, call_);
        for (const TensorSlot& slot : plan_.tensors) find_sizes(slot);
        find_heads();
        find_sequences();
        check_magnitude(plan_, {bound_.sequences, bound_.length, bound_.heads, call_.cu_seqlens.has_value()});
        for (const TensorSlot& slot : plan_.tensors) bound_.tensors.push_back(bind(slot));
        bind_slots(plan_, call_, lengths_, bound_);
        for (const std::string& name : plan_.scalars) bind_scalar(name);
        bound_.packed = call_.cu_seqlens.has_value() && lengths_ == Lengths::OnDevice;
        if (lengths_ == Lengths::OnHost) count_blocks(plan_, bound_);
        else bound_blocks(plan_, bound_);
        return std::move(bound_);
    }

  private:
    [[noreturn]] void fail(const std::string& argument, const std::string& expected, const std::string& got) const {
        refuse_argument(plan_, argument, expected, got);
    }
    [[nodiscard]] const TensorView* find(const TensorSlot& slot) const { return find_argument(plan_, call_, slot); }

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
    /// are tasks, and inputs as many or a divisor, which neighbouring tasks then read together. Without outputs (a
    /// backward pass that is asked for gradients of states alone), tasks are as many as the most heads of an input.
    void find_heads() {
        const TensorSlot* most = nullptr;
        for (const TensorSlot& slot : plan_.tensors) {
            if (slot.kind != Kind::Output) continue;
            const std::int64_t n = heads_in(slot, *find(slot));
            if (most && n != bound_.heads)
                fail(slot.name, fmt::format("{} heads, as '{}' has", bound_.heads, most->name), std::to_string(n));
            if (n <= 0) fail(slot.name, "at least one head", std::to_string(n));
            most = &slot, bound_.heads = n;
        }
        const bool has_outputs = most != nullptr;
        for (const TensorSlot& slot : plan_.tensors) {
            if (is_state(slot) || has_outputs) continue;
            const std::int64_t n = heads_in(slot, *find(slot));
            if (!most || n > bound_.heads) most = &slot, bound_.heads = n;
        }
        for (const TensorSlot& slot : plan_.tensors) {
            if (is_state(slot)) continue;
            const std::int64_t n = heads_in(slot, *find(slot));
            if (n <= 0 || bound_.heads % n != 0)
                fail(slot.name,
                     fmt::format("heads ({}) that divide the {} of '{}'",
                                 to_string(slot.type.shape[has_tokens(slot) ? 1 : 0]), bound_.heads, most->name),
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
        std::int64_t before = element_of(cu, 0);
        if (before != 0) fail("cu_seqlens", "0 as the first offset", std::to_string(before));
        for (std::int64_t n = 0; n < bound_.sequences; ++n) {
            const std::int64_t after = element_of(cu, n + 1);
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
            wanted = {slots_for(call_, slot) && !view.shape.empty() ? view.shape[0] : bound_.sequences,
                      slot.heads ? size_of(*slot.heads) : bound_.heads};
        else if (view.shape.size() > static_cast<std::size_t>(slot.type.rank())) wanted = {batch_};
        for (const Dim& d : slot.type.shape) wanted.push_back(size_of(d));
        if (view.shape.size() == wanted.size() && view.shape == wanted) return;
        fail(argument_name(slot), "shape " + shown(wanted), shown(view.shape));
    }

    void bind_scalar(const std::string& name) {
        const auto it = call_.scalars.find(name);
        if (it == call_.scalars.end()) fail(name, "a number", "nothing");
        bound_.scalars.push_back(static_cast<float>(it->second));
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
