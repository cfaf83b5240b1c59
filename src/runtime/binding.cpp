#include "runtime/binding.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "runtime/blocks.h"
#include "runtime/state_slots.h"

namespace forge::runtime {
namespace {

using device::CallTensor;
using Kind = TensorKind;

class Binder {
  public:
    Binder(const Callable& callable, const Arguments& call, Lengths lengths, Memory* memory)
        : callable_(callable),
          call_(call),
          lengths_(lengths),
          bound_(memory),
          heads_of_(static_cast<std::size_t>(callable.heads), -1, memory) {}

    Bound run() {
        refuse_missing(callable_, call_);
        refuse_extremes(callable_, call_);
        for (std::size_t i = 0; i < callable_.tensors.size(); ++i) find_sizes(callable_.tensors[i], call_.tensors[i]);
        find_heads();
        find_sequences();
        check_magnitude(callable_, {bound_.sequences, bound_.length, bound_.heads, is_packed()});
        bound_.tensors.reserve(callable_.tensors.size());
        for (std::size_t i = 0; i < callable_.tensors.size(); ++i)
            bound_.tensors.push_back(bind(callable_.tensors[i], call_.tensors[i]));
        list_sequences();
        if (call_.chunk_slots.is_given() &&
            std::none_of(callable_.tensors.begin(), callable_.tensors.end(),
                         [](const TensorOfCall& tensor) { return tensor.kind == Kind::ChunkState && !tensor.given; }))
            fail("chunk_slots", "a forward pass that was compiled with chunk_states", "another program");
        bind_slots(callable_, call_, lengths_, bound_);
        bound_.scalars.reserve(callable_.scalars.size());
        for (std::size_t i = 0; i < callable_.scalars.size(); ++i)
            bound_.scalars.push_back(static_cast<float>(call_.scalars[i]));
        bound_.packed = is_packed() && lengths_ == Lengths::OnDevice;
        if (lengths_ == Lengths::OnHost) count_blocks(callable_, bound_);
        else bound_blocks(callable_, bound_);
        return std::move(bound_);
    }

  private:
    [[noreturn]] void fail(const std::string& argument, const std::string& expected, const std::string& got) const {
        refuse_argument(callable_, argument, expected, got);
    }
    [[nodiscard]] bool is_packed() const { return call_.cu_seqlens.is_given(); }

    /// Reads B, T and the head counts off the first tensors that have them; later ones must agree.
    void find_sizes(const TensorOfCall& tensor, const View& view) {
        if (tensor.is_state()) return;
        const int lead = view.rank - tensor.rank();
        if (tensor.has_tokens() && lead == 1) agree(batch_, view.shape[0], tensor, "sequences (the batch)");
        else if (lead != 0) fail(tensor.name, expected_shape(tensor), shown(view));
        if (tensor.has_tokens()) {
            const std::int64_t factor = tensor.axes[0].number;
            if (view.shape[lead] % factor != 0)
                fail(tensor.name, fmt::format("a multiple of {} rows", factor), shown(view));
            agree(tokens_, view.shape[lead] / factor, tensor, "tokens");
        }
        const int head_axis = tensor.has_tokens() ? 1 : 0;
        const Axis& head = tensor.axes[static_cast<std::size_t>(head_axis)];
        if (head.of != Axis::Of::Heads) return;
        const std::int64_t got = view.shape[lead + head_axis];
        std::int64_t& known = heads_of_[static_cast<std::size_t>(head.heads)];
        if (known > -1 && known != got)
            fail(tensor.name,
                 fmt::format("{} heads ({}), as in the arguments before", known,
                             tensor.shape[static_cast<std::size_t>(head_axis)].symbol),
                 std::to_string(got));
        known = got;
    }

    void agree(std::int64_t& known, std::int64_t got, const TensorOfCall& tensor, const char* what) const {
        if (known > -1 && known != got)
            fail(tensor.name, fmt::format("{} {}, as in the arguments before", known, what), std::to_string(got));
        known = got;
    }

    [[nodiscard]] static std::int64_t heads_in(const TensorOfCall& tensor, const View& view) {
        return view.shape[view.rank - tensor.rank() + (tensor.has_tokens() ? 1 : 0)];
    }

    /// A task makes one head of every output, which no other task may write: all outputs have as many heads as there
    /// are tasks, and inputs as many or a divisor, which neighbouring tasks then read together. Without outputs (a
    /// backward pass that is asked for gradients of states alone), tasks are as many as the most heads of an input.
    void find_heads() {
        const TensorOfCall* most = nullptr;
        const auto each = [&](const auto& visit) {
            for (std::size_t i = 0; i < callable_.tensors.size(); ++i)
                if (const TensorOfCall& tensor = callable_.tensors[i]; !tensor.is_state())
                    visit(tensor, heads_in(tensor, call_.tensors[i]));
        };
        each([&](const TensorOfCall& tensor, std::int64_t n) {
            if (tensor.kind != Kind::Output) return;
            if (most && n != bound_.heads)
                fail(tensor.name, fmt::format("{} heads, as '{}' has", bound_.heads, most->name), std::to_string(n));
            if (n <= 0) fail(tensor.name, "at least one head", std::to_string(n));
            most = &tensor, bound_.heads = n;
        });
        const bool has_outputs = most != nullptr;
        each([&](const TensorOfCall& tensor, std::int64_t n) {
            if (!has_outputs && (!most || n > bound_.heads)) most = &tensor, bound_.heads = n;
        });
        each([&](const TensorOfCall& tensor, std::int64_t n) {
            if (n <= 0 || bound_.heads % n != 0)
                fail(tensor.name,
                     fmt::format("heads ({}) that divide the {} of '{}'",
                                 to_string(tensor.shape[tensor.has_tokens() ? 1 : 0]), bound_.heads, most->name),
                     std::to_string(n));
        });
    }

    void find_sequences() {
        if (tokens_ < 0) tokens_ = 0;
        bound_.length = tokens_;
        bound_.sequences = batch_ < 0 ? 1 : batch_;
        if (is_packed()) find_packed_sequences();
    }

    void find_packed_sequences() {
        const View& cu = call_.cu_seqlens;
        if (bound_.sequences != 1)
            fail("cu_seqlens", "a batch of 1 with packed sequences", fmt::format("a batch of {}", bound_.sequences));
        if (cu.rank != 1 || cu.shape[0] < 1) fail("cu_seqlens", "shape [sequences + 1]", shown(cu));
        if (cu.dtype != DType::I32 && cu.dtype != DType::I64) fail("cu_seqlens", "i32 or i64", to_string(cu.dtype));
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
            before = after;
        }
        if (before != tokens_)
            fail("cu_seqlens", fmt::format("the number of tokens, {}, as the last offset", tokens_),
                 std::to_string(before));
    }

    /// Where each sequence begins and how long it is, as the call has it.
    void list_sequences() {
        if (lengths_ == Lengths::OnDevice) return;
        const auto count = static_cast<std::size_t>(bound_.sequences);
        bound_.start.assign(count, 0), bound_.tokens.assign(count, tokens_);
        for (std::size_t n = 0; n < count && is_packed(); ++n) {
            bound_.start[n] = element_of(call_.cu_seqlens, static_cast<std::int64_t>(n));
            bound_.tokens[n] = element_of(call_.cu_seqlens, static_cast<std::int64_t>(n) + 1) - bound_.start[n];
        }
    }

    [[nodiscard]] std::int64_t size_of(const Axis& axis) const {
        switch (axis.of) {
            case Axis::Of::Number:
                return axis.number;
            case Axis::Of::Tokens:
                return axis.number * tokens_;
            case Axis::Of::Heads:
                return heads_of_[static_cast<std::size_t>(axis.heads)];
        }
        return 0;
    }

    [[nodiscard]] std::string expected_shape(const TensorOfCall& tensor) const {
        std::string text = tensor.has_tokens() ? "[B, " : "[";
        for (std::size_t axis = 0; axis < tensor.axes.size(); ++axis) {
            const bool known = tensor.axes[axis].of == Axis::Of::Number;
            text += known ? std::to_string(tensor.axes[axis].number) : to_string(tensor.shape[axis]);
            text += ", ";
        }
        return "shape " + text.substr(0, text.size() - 2) + "]";
    }

    [[nodiscard]] CallTensor bind(const TensorOfCall& tensor, const View& view) const {
        CallTensor t{};
        if (!view.is_given()) return t;
        if (tensor.inner)
            fail(tensor.argument(), "nothing, as calls of this entry point have no gradients of states", "a tensor");
        if (view.dtype != tensor.dtype)
            fail(tensor.argument(), "element type " + to_string(tensor.dtype), to_string(view.dtype));
        if (tensor.kind != Kind::Input && tensor.kind != Kind::Head && tensor.kind != Kind::InitialState &&
            !tensor.given)
            check_written(tensor, view);
        const bool in_pool = tensor.kind == Kind::ChunkState && call_.chunk_slots.is_given();
        const std::int64_t chunks = in_pool                           ? check_chunk_slots(tensor, view)
                                    : tensor.kind == Kind::ChunkState ? check_chunks(tensor, view)
                                                                      : 0;
        if (tensor.kind != Kind::ChunkState) check_shape(tensor, view);
        if (!view.data && !view.is_empty()) fail(tensor.argument(), "a pointer", "null");
        t.data = view.data;
        t.group = 1;
        int axis = 0;
        // Of an axis of one element callers may say anything, which should not look unaligned to a kernel.
        const auto stride = [&] { return view.shape[axis] == 1 ? (++axis, 0) : view.stride(axis++); };
        const auto sequence = [&] { return is_packed() ? (++axis, 0) : stride(); };
        if (tensor.kind == Kind::ChunkState) {
            if (in_pool) t.sequence = is_packed() ? 0 : chunks;
            else if (view.rank == tensor.rank() + 3) t.sequence = sequence();
            t.token = stride();
            t.head = stride();
            t.group = chunks;
        } else if (tensor.is_state()) {
            t.sequence = stride();
            if (tensor.heads) t.group = bound_.heads / std::max<std::int64_t>(1, view.shape[axis]);
            t.head = stride();
        } else {
            if (view.rank > tensor.rank()) t.sequence = sequence();
            if (tensor.has_tokens()) t.token = stride();
            t.group = bound_.heads / std::max<std::int64_t>(1, view.shape[axis]);
            t.head = stride();
        }
        for (std::size_t d = 0; axis < view.rank; ++d) t.dim[d] = view.stride(axis++);
        return t;
    }

    void check_written(const TensorOfCall& tensor, const View& view) const {
        if (view.is_empty()) return;
        for (int axis = 0; axis < view.rank; ++axis)
            if (view.shape[axis] > 1 && view.stride(axis) == 0)
                fail(tensor.argument(), "an element of its own for every result",
                     fmt::format("stride 0 of {} elements", view.shape[axis]));
    }

    /// How many states before chunks there are, of each sequence or of all packed ones. Where only the device knows the
    /// lengths of packed ones, as many as the caller's `view` has along an axis: the kernels write no more.
    [[nodiscard]] std::int64_t count_chunks(const View& view, int axis) const {
        const std::int64_t chunk = callable_.chunk;
        std::int64_t chunks = (tokens_ + chunk - 1) / chunk;
        if (is_packed() && lengths_ == Lengths::OnHost) {
            chunks = 0;
            for (std::int64_t n = 0; n < bound_.sequences; ++n)
                chunks += (element_of(call_.cu_seqlens, n + 1) - element_of(call_.cu_seqlens, n) + chunk - 1) / chunk;
        } else if (is_packed() && view.rank > axis) {
            chunks = std::clamp<std::int64_t>(view.shape[axis], chunks, tokens_ / chunk + bound_.sequences);
        }
        return chunks;
    }

    [[nodiscard]] std::int64_t check_chunks(const TensorOfCall& tensor, const View& view) const {
        const bool has_batch = view.rank == tensor.rank() + 3 || (!is_packed() && bound_.sequences != 1);
        const std::int64_t chunks = count_chunks(view, has_batch ? 1 : 0);
        Wanted wanted;
        if (has_batch) wanted.add(is_packed() ? 1 : bound_.sequences);
        wanted.add(chunks), wanted.add(bound_.heads);
        for (const Axis& axis : tensor.axes) wanted.add(size_of(axis));
        expect_shape(tensor, view, wanted);
        return chunks;
    }

    /// The same, of states before chunks in a pool.
    [[nodiscard]] std::int64_t check_chunk_slots(const TensorOfCall& tensor, const View& pool) const {
        const View& slots = call_.chunk_slots;
        const bool has_batch = slots.rank == 2 || (!is_packed() && bound_.sequences != 1);
        const std::int64_t rows = is_packed() || !has_batch ? 1 : bound_.sequences;
        const std::int64_t chunks = count_chunks(slots, has_batch ? 1 : 0);
        if (slots.dtype != DType::I32 && slots.dtype != DType::I64)
            fail("chunk_slots", "i32 or i64", to_string(slots.dtype));
        const int last = slots.rank - 1;
        if (slots.rank != (has_batch ? 2 : 1) || slots.shape[last] != chunks || (last == 1 && slots.shape[0] != rows))
            fail("chunk_slots", has_batch ? fmt::format("shape [{}, {}]", rows, chunks) : fmt::format("[{}]", chunks),
                 shown(slots));
        if ((chunks > 1 && slots.stride(last) != 1) || (rows > 1 && slots.stride(0) != chunks))
            fail("chunk_slots", "a dense array", "another one");
        if (!slots.data && rows * chunks > 0) fail("chunk_slots", "a pointer", "null");
        Wanted wanted;
        wanted.add(pool.rank > 0 ? pool.shape[0] : 0), wanted.add(bound_.heads);
        for (const Axis& axis : tensor.axes) wanted.add(size_of(axis));
        expect_shape(tensor, pool, wanted);
        if (lengths_ == Lengths::OnHost) check_slots_of_chunks(rows * chunks, pool.shape[0]);
        return chunks;
    }

    /// Chunks are worked on at once, and few have a slot.
    void check_slots_of_chunks(std::int64_t count, std::int64_t pool) const {
        const View slots{call_.chunk_slots.data, &count, nullptr, 1, call_.chunk_slots.dtype};
        for (std::int64_t c = 0; c < count; ++c) {
            const std::int64_t slot = element_of(slots, c);
            if (slot < 0) continue;
            if (slot >= pool) fail("chunk_slots", fmt::format("slots below {}", pool), std::to_string(slot));
            for (std::int64_t other = 0; other < c; ++other)
                if (element_of(slots, other) == slot)
                    fail("chunk_slots", "a slot of its own for every state that is written",
                         fmt::format("slot {} for the chunks {} and {}", slot, other, c));
        }
    }

    void check_shape(const TensorOfCall& tensor, const View& view) const {
        Wanted wanted;
        if (tensor.is_state()) {
            wanted.add(call_.slots_for(tensor).is_given() && view.rank > 0 ? view.shape[0] : bound_.sequences);
            wanted.add(tensor.heads ? size_of(*tensor.heads) : bound_.heads);
        } else if (view.rank > tensor.rank()) {
            wanted.add(batch_);
        }
        for (const Axis& axis : tensor.axes) wanted.add(size_of(axis));
        expect_shape(tensor, view, wanted);
    }

    /// A shape that a tensor must have.
    struct Wanted {
        void add(std::int64_t size) { sizes[rank++] = size; }
        std::int64_t sizes[kMostRank];
        int rank = 0;
    };

    void expect_shape(const TensorOfCall& tensor, const View& view, const Wanted& wanted) const {
        if (view.rank != wanted.rank || !std::equal(view.shape, view.shape + view.rank, wanted.sizes))
            fail(tensor.argument(), "shape " + shown(wanted.sizes, wanted.rank), shown(view));
    }

    const Callable& callable_;
    const Arguments& call_;
    Lengths lengths_;
    Bound bound_;
    std::int64_t batch_ = -1, tokens_ = -1;
    List<std::int64_t> heads_of_;
};

}  // namespace

Bound bind(const Callable& callable, const Arguments& call, Lengths lengths, Memory* memory) {
    return Binder(callable, call, lengths, memory).run();
}

std::size_t workspace_size(const Callable& callable, support::Checked bytes) {
    if (const auto size = bytes.at_most()) return static_cast<std::size_t>(*size);
    throw RuntimeError(
        fmt::format("{}: workspace: expected less than 2^63 bytes, got more sequences, tokens and heads than that is "
                    "enough for",
                    callable.name));
}

void check_workspace(const Callable& callable, const Arguments& call, std::size_t bytes, std::size_t alignment) {
    if (bytes > 0 && !call.workspace)
        throw RuntimeError(fmt::format("{}: argument 'workspace': expected {} bytes (see workspace_bytes), got none",
                                       callable.name, bytes));
    if (reinterpret_cast<std::uintptr_t>(call.workspace) % alignment != 0)  // NOLINT: of an address
        throw RuntimeError(fmt::format("{}: argument 'workspace': expected an address that is a multiple of {}, got {}",
                                       callable.name, alignment, call.workspace));
    if (call.workspace_bytes && *call.workspace_bytes < bytes)
        throw RuntimeError(fmt::format("{}: argument 'workspace': expected {} bytes, got {}", callable.name, bytes,
                                       *call.workspace_bytes));
}

}  // namespace forge::runtime
