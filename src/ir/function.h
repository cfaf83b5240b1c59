/// The IR: a function is a list of operations in SSA form, each with one result. The same structure serves the traced
/// phases, the joined ChunkProgram and the scheduled tile kernels; only the tile level fills in `Op::layout`.
/// A value is named by the index of its op. Passes build new functions; nothing mutates one in place.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "forge/types.h"
#include "ir/traits.h"

namespace forge::ir {

/// Which attributes an op carries (see ops.def). Unlisted attributes keep their defaults and are not printed.
enum AttrMask : unsigned {
    kNoAttr = 0,
    kName = 1U << 0,
    kRole = 1U << 1,
    kValue = 1U << 2,
    kDType = 1U << 3,
    kDim = 1U << 4,
    kStart = 1U << 5,
    kStep = 1U << 6,
    kCount = 1U << 7,
    kPerm = 1U << 8,
    kDiagonal = 1U << 9,
    kReverse = 1U << 10,
    kExclusive = 1U << 11,
    kTransA = 1U << 12,
    kTransB = 1U << 13,
    kTri = 1U << 14,
    kLength = 1U << 15,
    kAt = 1U << 16,
};

enum class Opcode : std::uint8_t {
#define FORGE_OP(Enum, name, arity, attributes, along, linear, cost, doc) Enum,
#include "forge/ops.def"
};

/// What is known of an op beyond its name: one row of ops.def.
struct OpInfo {
    const char* name;
    int arity;  ///< -1: any
    unsigned attributes;
    const char* doc;
    enum class Kind : std::uint8_t { Other, Unary, Binary, Compare } kind;
    Traits traits;
};
const OpInfo& info(Opcode code);
inline Along along(Opcode code) { return info(code).traits.along; }
inline Linear linear(Opcode code) { return info(code).traits.linear; }
inline const Cost& cost(Opcode code) { return info(code).traits.cost; }
/// The formula of an elementwise op of two floats, of a comparison 1 or 0; nullopt of others.
std::optional<double> formula_of(Opcode code, double a, double b);
std::optional<Opcode> opcode_named(const std::string& name);
std::span<const Opcode> all_opcodes();

struct Type {
    DType dtype = DType::F32;
    Shape shape;
    [[nodiscard]] int rank() const { return static_cast<int>(shape.size()); }
    friend bool operator==(const Type&, const Type&) = default;
};
std::string to_string(const Type& type);  ///< f32[C, K]

/// Where a function's parameter comes from.
enum class Role : std::uint8_t {
    Input,    ///< a token input: one row per token of the chunk
    Shifted,  ///< the same, one token earlier
    Head,     ///< one value (row, …) per head
    Scalar,   ///< one number per call
    Mask,     ///< 1 for tokens of the sequence, 0 for padding
    State,    ///< a state before the chunk (in `step`: before the token)
    Chunk,    ///< a state's contribution from the chunk phase
    Cached,   ///< a value cached by an earlier phase
    Spill,    ///< a value that an earlier kernel stored
    Ones,     ///< carried from chunk to chunk like a state, from ones: factors of a transition
    Eye,      ///< carried from chunk to chunk like a state, from the identity: the matrix of a transition
    Before,   ///< of a result: a state before the chunk, which is stored for the caller; of a parameter: such a state
    After,    ///< of a result: the state after the chunk, in a program whose own states come from behind
};
const char* to_string(Role role);

/// Structural zeros that a product may skip.
enum class Tri : std::uint8_t {
    None,
    OutLower,  ///< only the result's lower triangle is needed
    ALower,    ///< the first operand (after transposition) is lower triangular
    AUpper,    ///< the first operand (after transposition) is upper triangular
};
const char* to_string(Tri tri);

struct Attrs {
    std::string name;
    Role role = Role::Input;
    double value = 0;
    DType dtype = DType::F32;
    std::int64_t dim = 0;
    std::int64_t start = 0;
    std::int64_t step = 1;
    std::int64_t count = 1;
    std::int64_t length = 0;  ///< 0: to the end
    std::vector<std::int64_t> perm;
    /// Of a parameter that is part of a tensor or a spill: where it begins, one number per axis; empty: it is all.
    std::vector<std::int64_t> at;
    std::int64_t diagonal = 0;
    bool reverse = false;
    bool exclusive = false;
    bool trans_a = false;
    bool trans_b = false;
    Tri tri = Tri::None;
    friend bool operator==(const Attrs&, const Attrs&) = default;
};

/// How a tile-level value is held: computed where it is used (`Reg`), or in a buffer of floats at an offset with one
/// stride per dimension. A view is a tile at its base's offset with other strides. For a GPU's matrix units: as an
/// operand of 16-bit numbers in the order that they read (`parts` = 2: with what rounding took from the first in a
/// second one), or as a fragment, or the fragment of its transpose, in the registers of a warp group. A fragment that a
/// decay product makes has the parts in which that multiplies. Held: in the registers of a block's threads
/// (tile/held.h).
struct Layout {
    enum class Space : std::uint8_t { Reg, Tile, Spill, Operand, Fragment, Transposed, Held } space = Space::Reg;
    std::int64_t offset = 0;
    std::vector<std::int64_t> strides;
    int parts = 1;
    bool staged = false;  ///< one buffer per chunk in flight: the offset is within a stage
    friend bool operator==(const Layout&, const Layout&) = default;
};

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

struct Op {
    Opcode code = Opcode::Constant;
    Type type;
    std::vector<ValueId> args;
    Attrs attrs;
    std::string name;  ///< the user's name for the value, where one is known; a hint
    Location where;
    std::optional<Layout> layout;
};

struct Result {
    std::string name;
    Role role = Role::Input;  ///< State: a state after the chunk; Chunk: a contribution; Spill; Input: an output tensor
    ValueId value = kNoValue;
    std::vector<std::int64_t> at = {};  ///< where it begins, of a part of what has the name; empty: it is all
    friend bool operator==(const Result&, const Result&) = default;
};

struct Function {
    std::string name;
    std::vector<Op> ops;
    std::vector<Result> results;

    [[nodiscard]] const Op& op(ValueId id) const { return ops[static_cast<std::size_t>(id)]; }
    [[nodiscard]] Op& op(ValueId id) { return ops[static_cast<std::size_t>(id)]; }
    [[nodiscard]] int size() const { return static_cast<int>(ops.size()); }
    [[nodiscard]] ValueId result(const std::string& name, Role role) const;  ///< kNoValue if absent
    [[nodiscard]] ValueId param(const std::string& name) const;              ///< kNoValue if absent
    ValueId add(Op op) {
        ops.push_back(std::move(op));
        return size() - 1;
    }
};

/// An op for people: "the input 'q'", "the matmul 'scores' at rule.py:12:5".
std::string described(const Function& fn, ValueId v);

/// Users of every value: `users[v]` lists the ops that read v (an op twice if it reads v twice); results are not ops
/// and are counted by `result_uses`.
std::vector<std::vector<ValueId>> users_of(const Function& fn);
std::vector<int> result_uses(const Function& fn);

/// Whether an element of the result comes from the same place in each operand: unary, binary, compare, where, to, tril…
bool is_elementwise(Opcode code);
/// Ops that only re-index their operand: permute, unsqueeze, squeeze, select, slice, part, expand.
bool is_view(Opcode code);
/// The operand's numbers as they are, perhaps in another type: to, cache_result, copy.
inline bool is_same(Opcode code) { return linear(code) == Linear::Same; }
bool is_matmul(Opcode code);  ///< the four products

/// Whether the value depends on any of the given values (directly or through other ops); one flag per value.
std::vector<bool> depends_on(const Function& fn, const std::vector<ValueId>& roots);
/// The values that the given ones need, themselves included; one flag per value.
std::vector<bool> needed_for(const Function& fn, const std::vector<ValueId>& roots);
/// Whether `wanted` holds for `v`, or for a value from which values for which `goes_on` holds lead to it.
bool comes_from(const Function& fn, ValueId v, const std::function<bool(ValueId)>& wanted,
                const std::function<bool(ValueId)>& goes_on);

}  // namespace forge::ir
