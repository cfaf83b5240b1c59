#include "dist/call.h"

#include <fmt/format.h>

#include <algorithm>

namespace forge::dist::detail {
namespace {

std::int64_t product_of(const std::vector<std::int64_t>& shape, std::size_t from = 0) {
    std::int64_t n = 1;
    for (std::size_t i = from; i < shape.size(); ++i) n *= shape[i];
    return n;
}

/// The axis of tokens in an input's view; the batch, if there is one, stands before it.
std::size_t token_axis(const ir::InputDecl& in, const TensorView& view) {
    return view.shape.size() - in.type.shape.size();
}

const TensorView& tensor(const Call& call, const std::string& name) { return call.tensors.at(name); }

}  // namespace

std::int64_t Item::block() const { return heads * product_of(shape); }

TensorView view_of(const float* states, const Item& item, std::int64_t sequences) {
    std::vector<std::int64_t> shape{sequences, item.heads};
    shape.insert(shape.end(), item.shape.begin(), item.shape.end());
    return dense(const_cast<float*>(states), DType::F32, shape);  // NOLINT: views of what is read and written are alike
}

std::map<std::string, TensorView> views_of(const States& states, const Items& items, std::int64_t sequences) {
    std::map<std::string, TensorView> views;
    for (const Item& item : items) views[item.name] = view_of(states.at(item.name), item, sequences);
    return views;
}

TensorView rows_of(TensorView states, std::int64_t row, std::int64_t count) {
    states.data = static_cast<std::byte*>(states.data) +
                  row * states.strides[0] * static_cast<std::int64_t>(size_in_bytes(states.dtype));
    states.shape[0] = count;
    return states;
}

Geometry::Geometry(const ir::Definition& def, const Call& call, Store& store) {
    std::int64_t output_heads = 0;
    const auto look = [&](const Shape& declared, const TensorView& view) {
        const std::size_t axis = view.shape.size() - declared.size();
        tokens = view.shape[axis] / declared[0].factor;
        if (axis == 1) sequences = view.shape[0];
        return view.shape[axis + 1];
    };
    for (const ir::InputDecl& in : def.inputs) {
        if (in.role == ir::Role::Scalar) continue;
        const TensorView& view = tensor(call, in.name);
        input_heads = std::max(input_heads, in.role == ir::Role::Input ? look(in.type.shape, view) : view.shape.at(0));
    }
    for (const ir::OutputDecl& out : def.outputs) output_heads = look(out.type.shape, tensor(call, out.name));
    heads = output_heads > 0 ? output_heads : input_heads;
    if (!call.cu_seqlens) return;
    packed = true;
    sequences = call.cu_seqlens->shape.at(0) - 1;
    offsets = store.integers(*call.cu_seqlens);
}

std::int64_t Geometry::first_token(std::int64_t row) const {
    return packed ? offsets.at(static_cast<std::size_t>(row)) : 0;
}
std::int64_t Geometry::token_count(std::int64_t row) const {
    return packed ? offsets.at(static_cast<std::size_t>(row) + 1) - offsets.at(static_cast<std::size_t>(row)) : tokens;
}

Call inputs_of(const ir::Definition& def, const Call& call, const Geometry& geometry, std::int64_t row) {
    Call part;
    part.scalars = call.scalars;
    part.parallel_for = call.parallel_for, part.stream = call.stream;
    for (const ir::InputDecl& in : def.inputs) {
        if (in.role == ir::Role::Scalar) continue;
        TensorView view = tensor(call, in.name);
        if (in.role == ir::Role::Input) {
            const std::size_t axis = token_axis(in, view);
            const std::int64_t rows = in.type.shape[0].factor;
            view.data = static_cast<std::byte*>(view.data) + geometry.first_token(row) * rows * view.strides[axis] *
                                                                 static_cast<std::int64_t>(size_in_bytes(view.dtype));
            view.shape[axis] = geometry.token_count(row) * rows;
        }
        part.tensors[in.name] = std::move(view);
    }
    return part;
}

TensorView last_rows_of(const ir::LastRows& last, const ir::Definition& def, const Call& call, const Geometry& geometry,
                        std::int64_t row) {
    const ir::InputDecl& in = *def.input(last.input);
    const TensorView& view = tensor(call, last.input);
    const std::size_t axis = token_axis(in, view);
    const std::int64_t rows = in.type.shape[0].factor,
                       first = (geometry.first_token(row) + geometry.token_count(row) - 1) * rows;
    TensorView found{static_cast<std::byte*>(view.data) +
                         first * view.strides[axis] * static_cast<std::int64_t>(size_in_bytes(view.dtype)),
                     view.dtype,
                     {geometry.crossing(), view.shape[axis + 1], rows},
                     {axis == 1 ? view.strides[0] : 0, view.strides[axis + 1], view.strides[axis]}};
    found.shape.insert(found.shape.end(), view.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 2, view.shape.end());
    found.strides.insert(found.strides.end(), view.strides.begin() + static_cast<std::ptrdiff_t>(axis) + 2,
                         view.strides.end());
    return found;
}

Items last_row_items(const ir::Definition& def, const Call& call) {
    Items items;
    for (const ir::LastRows& last : ir::last_rows(def)) {
        const ir::InputDecl& in = *def.input(last.input);
        const TensorView& view = tensor(call, last.input);
        const std::size_t axis = token_axis(in, view);
        Item item{last.name, view.shape[axis + 1], {}, static_cast<float>(in.pad)};
        if (in.type.shape[0].factor > 1) item.shape.push_back(in.type.shape[0].factor);
        item.shape.insert(item.shape.end(), view.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 2,
                          view.shape.end());
        items.push_back(std::move(item));
    }
    return items;
}

Items carried_items(const Attention& attention, const std::string& entry, std::int64_t heads) {
    Items items;
    for (const Carried& c : attention.carried(entry)) items.push_back({c.state, heads, c.shape, 0, c.map, c.map_shape});
    return items;
}

}  // namespace forge::dist::detail
