#include "tests/property/generator.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "check/random.h"
#include "ir/infer.h"

namespace forge::tests {
namespace {

using ir::Attrs;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::Type;
using ir::ValueId;

constexpr double kLargest = 1e6;  ///< values beyond are not made
constexpr int kAttempts = 12;     ///< per choice, to find operands that fit

const Dim C("C"), K("K"), V("V");

/// Ops that take any operand of a fitting type; each as often as it is listed.
constexpr Opcode kOps[] = {Opcode::Add,         Opcode::Add,        Opcode::Sub,     Opcode::Sub,
                           Opcode::Mul,         Opcode::Mul,        Opcode::Mul,     Opcode::Maximum,
                           Opcode::Neg,         Opcode::Exp,        Opcode::Exp,     Opcode::Tanh,
                           Opcode::Sigmoid,     Opcode::Lt,         Opcode::Where,   Opcode::To,
                           Opcode::CacheResult, Opcode::Sum,        Opcode::Amax,    Opcode::Cumsum,
                           Opcode::Cumsum,      Opcode::Permute,    Opcode::Permute, Opcode::Unsqueeze,
                           Opcode::Unsqueeze,   Opcode::Squeeze,    Opcode::Select,  Opcode::RepeatInterleave,
                           Opcode::Slice,       Opcode::Expand,     Opcode::Tril,    Opcode::Triu,
                           Opcode::Matmul,      Opcode::Matmul,     Opcode::Matmul,  Opcode::MatmulOutFp32,
                           Opcode::LinearScan,  Opcode::L2norm,     Opcode::Softmax, Opcode::Constant,
                           Opcode::DecayMask,   Opcode::DecayMatmul};

class Generator {
  public:
    RandomFunction run(const std::vector<std::uint32_t>& choices) {
        result_.fn.name = "random";
        add_params();
        for (const std::uint32_t choice : choices) grow(choice);
        const int results = std::min(fn().size() - kParams, 4);
        for (int i = 0; i < results; ++i) add_result(fn().size() - 1 - i);
        if (results == 0) add_result(0);
        return std::move(result_);
    }

  private:
    static constexpr int kParams = 7;

    ir::Function& fn() { return result_.fn; }
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_.uniform() * static_cast<double>(n)); }
    ValueId any() {  // recent values more often
        const auto n = static_cast<double>(fn().size());
        return static_cast<ValueId>(n * std::sqrt(random_.uniform()));
    }
    [[nodiscard]] double bound(ValueId v) const { return result_.bounds[static_cast<std::size_t>(v)]; }

    void add_params() {
        const auto param = [&](const char* name, Role role, const Type& type) {
            Attrs attrs;
            attrs.name = name, attrs.role = role;
            add({Opcode::Param, type, {}, attrs, name, {}, std::nullopt}, 1);
        };
        param("q", Role::Input, {F32, {C, K}});
        param("k", Role::Input, {BF16, {C, K}});
        param("v", Role::Input, {F32, {C, V}});
        param("g", Role::Input, {F32, {C}});
        param("gk", Role::Input, {F32, {C, K}});
        param("s", Role::State, {F32, {K, V}});
        param("scale", Role::Scalar, {F32, {}});
    }

    void add_result(ValueId v) { fn().results.push_back({"r" + std::to_string(v), Role::Input, v}); }

    ValueId add(Op op, double at_most) {
        result_.bounds.push_back(at_most);
        return fn().add(std::move(op));
    }

    /// One op, or one of the idioms that the passes look for.
    void grow(std::uint32_t choice) {
        random_ = check::Random(choice);
        switch (below(13)) {
            case 0:
                return decay_under_tril();
            case 1:
                return decay_to_end();
            case 2:
                return tamed_product();
            case 3:
                return solve();
            case 4:
                return scaled_products();
            default:
                break;
        }
        for (int i = 0; i < kAttempts; ++i)
            if (try_op(kOps[below(std::size(kOps))])) return;
    }

    /// Adds the op if its type rule and its bound allow it; else kNoValue.
    ValueId emit(Opcode code, const std::vector<ValueId>& args, const Attrs& attrs = {}, const Type& own = {}) {
        if (std::count(args.begin(), args.end(), ir::kNoValue)) return ir::kNoValue;
        std::vector<Type> types;
        for (const ValueId a : args) types.push_back(fn().op(a).type);
        const ir::Inferred inferred = ir::infer(code, types, attrs, own);
        if (std::holds_alternative<ir::TypeFault>(inferred)) return ir::kNoValue;
        const Type& type = std::get<Type>(inferred);
        if (type.rank() > 3) return ir::kNoValue;
        const double at_most = bound_of(code, args, attrs);
        if (!(at_most <= kLargest)) return ir::kNoValue;
        return add({code, type, args, attrs, "", {}, std::nullopt}, at_most);
    }

    double bound_of(Opcode code, const std::vector<ValueId>& args, const Attrs& attrs) {
        const auto arg = [&](std::size_t i) { return bound(args[i]); };
        constexpr double kAxis = 14;  // the longest axis, 2 * C
        switch (code) {
            case Opcode::Add:
            case Opcode::Sub:
                return arg(0) + arg(1);
            case Opcode::Mul:
                return arg(0) * arg(1);
            case Opcode::Maximum:
                return std::max(arg(0), arg(1));
            case Opcode::Where:
                return std::max(arg(1), arg(2));
            case Opcode::Exp:
                return std::exp(arg(0));
            case Opcode::Tanh:
            case Opcode::Sigmoid:
            case Opcode::Lt:
            case Opcode::Softmax:
            case Opcode::L2norm:
                return 1;
            case Opcode::Constant:
                return std::fabs(attrs.value);
            case Opcode::Identity:
                return 1;
            case Opcode::Sum:
            case Opcode::Cumsum:
                return kAxis * arg(0);
            case Opcode::Matmul:
            case Opcode::MatmulOutFp32:
                return kAxis * arg(0) * arg(1);
            case Opcode::LinearScan:
                return arg(0) <= 1 ? kAxis * arg(1) : HUGE_VAL;
            case Opcode::Inverse:
                return std::pow(1 + arg(0), kAxis / 2);
            case Opcode::DecayMask:
                return std::exp(kAxis * arg(0));
            case Opcode::DecayMatmul:
                return kAxis * arg(0) * arg(1) * std::exp(kAxis * arg(2));
            default:
                return arg(0);
        }
    }

    bool try_op(Opcode code) {
        Attrs attrs;
        Type own{F32, {}};
        std::vector<ValueId> args;
        for (int i = 0; i < std::max(ir::info(code).arity, 0); ++i) args.push_back(any());
        if (code == Opcode::Lt)  // computed values may be equal but for rounding: a comparison of them says nothing
            for (ValueId& a : args) a = static_cast<ValueId>(below(kParams));
        const int rank = args.empty() ? 0 : fn().op(args[0]).type.rank();
        attrs.dim = static_cast<std::int64_t>(below(static_cast<std::size_t>(2 * rank + 2))) - rank -
                    1;  // sometimes out of range
        if (code == Opcode::Tril || code == Opcode::Triu) attrs.diagonal = static_cast<std::int64_t>(below(3)) - 1;
        if (code == Opcode::Cumsum) attrs.reverse = below(2) == 0, attrs.exclusive = below(2) == 0;
        if (code == Opcode::DecayMask || code == Opcode::DecayMatmul) attrs.exclusive = below(2) == 0;
        if (code == Opcode::Matmul || code == Opcode::MatmulOutFp32)
            attrs.trans_a = below(2) == 0, attrs.trans_b = below(2) == 0;
        if (code == Opcode::To) attrs.dtype = below(3) == 0 ? BF16 : F32;
        if (code == Opcode::CacheResult) attrs.name = "c" + std::to_string(fn().size());
        if (code == Opcode::Select) attrs.start = -static_cast<std::int64_t>(below(2));
        if (code == Opcode::Slice || code == Opcode::RepeatInterleave)
            attrs.step = attrs.count = static_cast<std::int64_t>(1 + below(2));
        if (code == Opcode::L2norm) attrs.value = 1e-3;
        constexpr double kConstants[] = {0, 1, -1, 0.5, 2};
        if (code == Opcode::Constant) attrs.value = kConstants[below(std::size(kConstants))];
        if (code == Opcode::Permute) {
            attrs.perm.resize(static_cast<std::size_t>(rank));
            std::iota(attrs.perm.begin(), attrs.perm.end(), 0);
            for (std::size_t i = attrs.perm.size(); i > 1; --i) std::swap(attrs.perm[i - 1], attrs.perm[below(i)]);
        }
        if (code == Opcode::Expand) own.shape = fn().op(any()).type.shape;
        clear_unused(attrs, code);
        return emit(code, args, attrs, own) != ir::kNoValue;
    }

    /// Attributes that the op does not have keep their defaults, as the text form assumes.
    static void clear_unused(Attrs& attrs, Opcode code) {
        const unsigned mask = ir::info(code).attributes;
        const Attrs defaults;
        if (!(mask & ir::kDim)) attrs.dim = defaults.dim;
        if (!(mask & ir::kStep)) attrs.step = defaults.step;
        if (!(mask & ir::kCount)) attrs.count = defaults.count;
    }

    ValueId unsqueeze(ValueId v, std::int64_t dim) {
        Attrs attrs;
        attrs.dim = dim;
        return emit(Opcode::Unsqueeze, {v}, attrs);
    }
    ValueId transpose(ValueId v) {
        Attrs attrs;
        attrs.perm = {1, 0};
        return emit(Opcode::Permute, {v}, attrs);
    }
    ValueId tril(ValueId v, std::int64_t diagonal) {
        Attrs attrs;
        attrs.diagonal = diagonal;
        return emit(Opcode::Tril, {v}, attrs);
    }
    ValueId constant(double value) {
        Attrs attrs;
        attrs.value = value;
        return emit(Opcode::Constant, {}, attrs, {F32, {}});
    }
    /// A recent value of the type; kNoValue if there is none.
    ValueId of_type(const Type& type) {
        for (int i = 0; i < 8 * kAttempts; ++i)
            if (const ValueId v = any(); fn().op(v).type == type) return v;
        return ir::kNoValue;
    }
    /// A small gate of the shape, so that sums over a chunk stay small.
    ValueId gate(const Shape& shape) {
        const ValueId g = of_type({F32, shape});
        return g == ir::kNoValue ? g : emit(Opcode::Mul, {emit(Opcode::Tanh, {g}), constant(-0.25)});
    }

    /// tril(x * exp(G[:, None] - G[None, :])), inclusive or exclusive.
    void decay_under_tril() {
        const ValueId g = gate({C}), x = of_type({F32, {C, C}}), G = emit(Opcode::Cumsum, {g});
        const bool strict = below(2) == 0;
        const ValueId later = strict ? emit(Opcode::Sub, {G, g}) : G;
        const ValueId e = emit(Opcode::Exp, {emit(Opcode::Sub, {unsqueeze(later, 1), unsqueeze(G, 0)})});
        tril(x == ir::kNoValue ? e : emit(Opcode::Mul, {x, e}), strict ? -1 : 0);
    }

    void decay_to_end() {
        const ValueId g = gate(below(2) == 0 ? Shape{C} : Shape{C, K});
        emit(Opcode::Exp, {emit(Opcode::Sub, {emit(Opcode::Sum, {g}), emit(Opcode::Cumsum, {g})})});
    }

    /// tril((a * exp(G)) @ (b * exp(-G))^T), gates per token or per channel.
    void tamed_product() {
        const bool vector = below(2) == 0, strict = below(2) == 0;
        const ValueId g = gate(vector ? Shape{C, K} : Shape{C}), G = emit(Opcode::Cumsum, {g});
        const ValueId read = strict ? emit(Opcode::Sub, {G, g}) : G;
        const auto wide = [&](ValueId v) { return vector ? v : unsqueeze(v, 1); };
        const ValueId a = emit(Opcode::Mul, {of_type({F32, {C, K}}), wide(emit(Opcode::Exp, {read}))});
        const ValueId b =
            emit(Opcode::Mul, {of_type({F32, {C, K}}), wide(emit(Opcode::Exp, {emit(Opcode::Neg, {G})}))});
        tril(emit(Opcode::Matmul, {a, transpose(b)}), strict ? -1 : 0);
    }

    /// inverse(I + tril(x / 4, -1)) @ v.
    void solve() {
        const ValueId x = of_type({F32, {C, C}}), v = of_type({F32, {C, V}});
        const ValueId small = emit(Opcode::Mul, {emit(Opcode::Tanh, {x}), constant(0.25)});
        const ValueId unit = emit(below(2) == 0 ? Opcode::Add : Opcode::Sub,
                                  {emit(Opcode::Identity, {}, {}, {F32, {C, C}}), tril(small, -1)});
        emit(Opcode::Matmul, {emit(Opcode::Inverse, {unit}), v});
    }

    /// A matrix of the shape times a scale along its rows, its columns, or neither.
    ValueId scaled(const Shape& shape) {
        const ValueId m = of_type({F32, shape});
        const ValueId scale = below(3) == 0   ? of_type({F32, {}})
                              : below(2) == 0 ? unsqueeze(of_type({F32, {shape[0]}}), 1)
                                              : of_type({F32, {shape[1]}});
        return emit(Opcode::Mul, {m, scale});
    }

    /// a @ b ± c @ d with scales on some of the operands, or with a first factor that both terms share; sometimes
    /// scaled as a whole.
    void scaled_products() {
        const bool shared = below(2) == 0;
        const ValueId t = of_type({F32, {C, C}}), v = scaled({C, V});
        const ValueId reads =
            emit(Opcode::Matmul, {scaled({C, K}), below(2) == 0 ? of_type({F32, {K, V}}) : scaled({K, V})});
        const ValueId within = emit(Opcode::Matmul, {t, v});
        const ValueId late =
            emit(Opcode::Matmul, {emit(Opcode::Matmul, {t, of_type({F32, {C, K}})}), of_type({F32, {K, V}})});
        const ValueId sum = emit(below(2) == 0 ? Opcode::Add : Opcode::Sub, {within, shared ? late : reads});
        if (below(2) == 0) emit(Opcode::Mul, {sum, of_type({F32, {}})});
    }

    RandomFunction result_;
    check::Random random_{0};
};

}  // namespace

RandomFunction random_function(const std::vector<std::uint32_t>& choices) { return Generator().run(choices); }

interp::Sizes property_sizes() { return {{"C", 7}, {"K", 3}, {"V", 4}}; }

interp::Bindings random_arguments(const ir::Function& fn, std::uint64_t seed) {
    interp::Bindings bindings;
    check::Random random(seed);
    for (const Op& op : fn.ops) {
        if (op.code != Opcode::Param) continue;
        interp::Value value = interp::zeros(interp::concrete(op.type.shape, property_sizes()));
        for (double& x : value.data) x = 2 * random.uniform() - 1;
        bindings[interp::binding_name(op.attrs.name, op.attrs.role)] = std::move(value);
    }
    return bindings;
}

}  // namespace forge::tests
