#include "dist/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace forge::dist::detail {
namespace {

std::int64_t product_of(const std::vector<std::int64_t>& shape, std::size_t from = 0) {
    std::int64_t n = 1;
    for (std::size_t i = from; i < shape.size(); ++i) n *= shape[i];
    return n;
}

float from_half(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000U) << 16U, exponent = bits >> 10U & 31U, fraction = bits & 1023U;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13U);
    if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112U) << 23U | fraction << 13U);
    const float tiny = static_cast<float>(fraction) * 0x1p-24F;
    return sign ? -tiny : tiny;
}

float number_at(const std::byte* at, DType dtype) {
    if (dtype == DType::F32) {
        float x = 0;
        std::memcpy(&x, at, sizeof x);
        return x;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof bits);
    return dtype == DType::BF16 ? std::bit_cast<float>(std::uint32_t{bits} << 16U) : from_half(bits);
}

/// The byte at an index, row-major over axes [from, …) of a view.
std::byte* at(const TensorView& view, std::size_t from, std::int64_t flat, std::int64_t base) {
    std::int64_t offset = base;
    for (std::size_t axis = view.shape.size(); axis-- > from;) {
        offset += flat % view.shape[axis] * view.strides[axis];
        flat /= view.shape[axis];
    }
    return static_cast<std::byte*>(view.data) + offset * static_cast<std::int64_t>(size_in_bytes(view.dtype));
}

/// The axis of tokens in an input's view; the batch, if there is one, stands before it.
std::size_t token_axis(const ir::InputDecl& in, const TensorView& view) {
    return view.shape.size() - in.type.shape.size();
}

const TensorView& tensor(const Call& call, const std::string& name) { return call.tensors.at(name); }

}  // namespace

std::int64_t Item::block() const { return heads * product_of(shape); }

std::map<std::string, TensorView> views_of(States& states, const std::vector<Item>& items) {
    std::map<std::string, TensorView> views;
    for (const Item& item : items) {
        std::vector<float>& values = states.at(item.name);
        std::vector<std::int64_t> shape{item.block() > 0 ? static_cast<std::int64_t>(values.size()) / item.block() : 0,
                                        item.heads};
        shape.insert(shape.end(), item.shape.begin(), item.shape.end());
        views[item.name] = dense(values.data(), DType::F32, shape);
    }
    return views;
}

Geometry::Geometry(const ir::Definition& def, const Call& call) {
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
    const TensorView& cu = *call.cu_seqlens;
    sequences = cu.shape.at(0) - 1;
    for (std::int64_t n = 0; n <= sequences; ++n) {
        const std::byte* from = at(cu, 0, n, 0);
        std::int32_t narrow = 0;
        std::int64_t wide = 0;
        if (cu.dtype == DType::I32) std::memcpy(&narrow, from, sizeof narrow), wide = narrow;
        else std::memcpy(&wide, from, sizeof wide);
        offsets.push_back(wide);
    }
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
    part.parallel_for = call.parallel_for;
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

std::vector<float> last_rows_of(const ir::LastRows& last, const ir::Definition& def, const Call& call,
                                const Geometry& geometry, std::int64_t row) {
    const ir::InputDecl& in = *def.input(last.input);
    const TensorView& view = tensor(call, last.input);
    const std::size_t axis = token_axis(in, view);
    const std::int64_t rows = in.type.shape[0].factor, heads = view.shape[axis + 1],
                       width = product_of(view.shape, axis + 2);
    const std::int64_t first = (geometry.first_token(row) + geometry.token_count(row) - 1) * rows;
    std::vector<float> found;
    for (std::int64_t b = 0; b < geometry.crossing(); ++b)
        for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t n = 0; n < rows; ++n)
                for (std::int64_t i = 0; i < width; ++i) {
                    const std::int64_t base = (axis == 1 ? b * view.strides[0] : 0) + (first + n) * view.strides[axis] +
                                              h * view.strides[axis + 1];
                    found.push_back(number_at(at(view, axis + 2, i, base), view.dtype));
                }
    return found;
}

std::vector<float> states_of(const std::map<std::string, TensorView>& given, const Item& item, std::int64_t row,
                             std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count * item.block()), item.absent);
    const auto found = given.find(item.name);
    if (found == given.end()) return values;
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = number_at(at(found->second, 0, row * item.block() + static_cast<std::int64_t>(i), 0), DType::F32);
    return values;
}

void store_states(const std::map<std::string, TensorView>& wanted, const Item& item, std::int64_t row,
                  const std::vector<float>& values) {
    const auto found = wanted.find(item.name);
    if (found == wanted.end()) return;
    for (std::size_t i = 0; i < values.size(); ++i)
        std::memcpy(at(found->second, 0, row * item.block() + static_cast<std::int64_t>(i), 0), &values[i],
                    sizeof(float));
}

std::vector<Item> last_row_items(const ir::Definition& def, const Call& call) {
    std::vector<Item> items;
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

std::vector<Item> carried_items(const Attention& attention, const std::string& entry, std::int64_t heads) {
    std::vector<Item> items;
    for (const Carried& c : attention.carried(entry)) items.push_back({c.state, heads, c.shape, 0, c.map, c.map_shape});
    return items;
}

}  // namespace forge::dist::detail
