#include "tests/random/parts.h"

#include <algorithm>
#include <stdexcept>

#include "frontend/trace.h"

namespace forge::fuzz {

Maker::Maker(Decisions& decisions) : d(decisions), T("T"), H("H"), HV("HV"), K("K"), V("V") {}

std::string Maker::token(const std::string& name, DType dtype, int rows, const Dim& heads, Shape rest, Kind kind,
                         double pad) {
    const auto same = [&](const Declared& x) { return x.name == name; };
    if (std::any_of(declared.begin(), declared.end(), same)) return name;
    Shape shape{rows * T, heads};
    shape.insert(shape.end(), rest.begin(), rest.end());
    if (rows > 1) traits.insert("several rows per token");
    declared.push_back({Declared::Role::Token, name, dtype, shape, pad, kind});
    return name;
}

std::string Maker::head(const std::string& name, Shape rest, Kind kind) {
    const auto same = [&](const Declared& x) { return x.name == name; };
    if (std::any_of(declared.begin(), declared.end(), same)) return name;
    rest.insert(rest.begin(), HV);
    const DType dtype = d.flip(name + ".half", 0.1) ? wide : F32;
    declared.push_back({Declared::Role::Head, name, dtype, rest, 0, kind});
    return name;
}

std::string Maker::scalar(const std::string& name) {
    const auto same = [&](const Declared& x) { return x.name == name; };
    if (std::none_of(declared.begin(), declared.end(), same))
        declared.push_back({Declared::Role::Scalar, name, F32, {}, 0, Kind::Normal});
    return name;
}

std::string Maker::state(const std::string& name, Shape shape, Kind kind) {
    declared.push_back({Declared::Role::State, name, F32, std::move(shape), 0, kind});
    return name;
}

Env::Env(Phase phase, const std::vector<std::string>& names, const std::vector<Tensor>& tensors,
         std::set<std::string>& used, bool one_state)
    : phase_(phase), used_(&used), one_state_(one_state) {
    for (std::size_t i = 0; i < names.size(); ++i) tensors_[names[i]] = tensors[i];
}

Tensor Env::operator[](const std::string& name) const {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) throw std::logic_error("random program: no '" + name + "' in this phase");
    used_->insert(name);
    return it->second;
}

Tensor Env::contribution(const std::string& state) const {
    return (*this)[one_state_ ? "chunk_state" : "chunk_" + state];
}

Tensor Env::shared(const std::string& name, bool cached, const std::function<Tensor()>& make) const {
    if (!cached || is_step()) return make();
    return phase_ == Phase::Chunk ? cache_result(make(), name) : (*this)[name];
}

Tensor column(const Tensor& x) { return unsqueeze(x, -1); }
Tensor row(const Tensor& x) { return unsqueeze(x, 0); }
Tensor wide(const Tensor& x) { return x.dtype() == F32 ? x : x.to(F32); }

Tensor rows_of(const Env& env, const Tensor& x, int n) {
    return n == 1 || env.is_step() ? x : repeat_interleave(x, n, 0);
}

Tensor nth_row(const Env& env, const Tensor& x, int j, int n) {
    if (n == 1) return x;
    return env.is_step() ? select(x, 0, j) : slice(x, 0, j, n);
}

Tensor running_sum(const Tensor& x, bool reverse, bool exclusive) {
    ir::Attrs attrs;
    attrs.dim = 0, attrs.reverse = reverse, attrs.exclusive = exclusive;
    return x.trace()->record(ir::Opcode::Cumsum, {x}, attrs, Location(Here::current()));
}

Tensor product(const Tensor& a, const Tensor& b, bool half) {
    return half ? matmul_out_fp32(a.to(BF16), b.to(BF16)) : matmul(wide(a), wide(b));
}

Gate::Gate(Maker& m, const std::string& name, std::optional<Dim> axis) : name_("g" + name), axis_(std::move(axis)) {
    const Shape rest = axis_ ? Shape{*axis_} : Shape{};
    //                                    log  16-bit  logsigmoid  softplus  log(a)  clamped  rate  per head
    form_ = m.d.pick(name_ + ".form", {5, 1, 1, 1.5, 1, 0.7, 0.7, 0.7});
    end_form_ = m.d.pick(name_ + ".to_end", {5, 1, 1});
    const DType half = m.wide;
    switch (form_) {
        case 1:
            input_ = m.token(name_, half, 1, m.HV, rest, Kind::LogDecay);
            break;
        case 2:
            input_ = m.token("x" + name_, half, 1, m.HV, rest, Kind::Raw);
            break;
        case 3:
            input_ = m.token("x" + name_, half, 1, m.HV, rest, Kind::Raw);
            rate_ = m.head("lambda" + name_, {}, Kind::Weight), bias_ = m.head("xb" + name_, rest, Kind::Weight);
            break;
        case 4:
            input_ = m.token("alpha" + name_, F32, 1, m.HV, rest, Kind::Fraction, 1);
            break;
        case 6:
            input_ = m.token(name_, F32, 1, m.HV, {}, Kind::LogDecay);
            rate_ = m.head("lambda" + name_, rest, Kind::Weight);
            break;
        case 7:
            rate_ = m.head("lambda" + name_, rest, Kind::Weight);
            break;
        default:
            input_ = m.token(name_, F32, 1, m.HV, rest, Kind::LogDecay);
    }
    compared_ = form_ == 0 && m.d.flip(name_ + ".compared", 0.05);
    if (form_ == 2 || form_ == 3) m.traits.insert("raw gates");
}

Tensor Gate::log(const Env& env) const {
    const auto given = [&](const std::string& name) { return wide(env[name]); };
    const auto masked = [&](const Tensor& x) { return x * (axis_ ? column(env.mask()) : env.mask()); };
    switch (form_) {
        case 1:
            return wide(env[input_]);
        case 2:
            return masked(logsigmoid(wide(env[input_])) * 0.25);
        case 3:
            return masked(-exp(given(rate_)) * softplus(given(input_) + given(bias_)));
        case 4:
            return forge::log(env[input_]);
        case 5:
            return maximum(env[input_], -4.0);
        case 6:
            return (axis_ ? column(env[input_]) : env[input_]) * sigmoid(given(rate_));
        case 7:
            return (axis_ ? column(env.mask()) : env.mask()) * -softplus(given(rate_));
        default:  // what decays fast decays faster, where a comparison is a number
            return compared_ ? env[input_] - lt(env[input_], -0.1) : env[input_];
    }
}

Tensor Gate::to_end(const Env& env) const {
    const Tensor g = log(env);
    switch (end_form_) {
        case 1:
            return exp(running_sum(g, true, true));
        case 2: {
            const Tensor G = cumsum(g, 0);
            return exp(select(G, 0, -1) - G);
        }
        default:
            return exp(sum(g, 0) - cumsum(g, 0));
    }
}

namespace {

// Forms of features. The last ones are not 0 for an input that is 0.
enum Form : std::uint8_t {
    kPlain,
    kL2norm,
    kSilu,
    kRelu,
    kTanh,
    kSquare,
    kWeighted,
    kAbs,
    kSin,
    kHalved,
    kProduct,
    kExp,
    kSoftmax,
    kElu,
    kSigmoid,
    kExpMax,
    kCos,
    kPositivePart  // 0 for 0 all the same, and no choice among the forms, which decisions kept in files count
};
bool is_zero_at_zero(int form) { return form < kExp || form == kPositivePart; }

/// Neighbours as the real and the imaginary part of a number, turned by an angle for each pair.
Tensor turned_by_pairs(const Tensor& x, const Tensor& angles) {
    const int last = x.rank() - 1;
    const Tensor real = slice(x, last, 0, 2), imaginary = slice(x, last, 1, 2), angle = slice(angles, 0, 1, 2);
    const Tensor c = cos(angle), s = sin(angle);
    return interleave({real * c - imaginary * s, imaginary * c + real * s}, last);
}

}  // namespace

Feature::Feature(Maker& m, const std::string& name, int rows, const Dim& heads, const Dim& axis, Use use, bool neutral)
    : name_(name), rows_(rows) {
    Decisions& d = m.d;
    const std::string what = name + ".form";
    switch (use) {
        case Use::Unit:
            form_ = d.pick(what, {3, 1}) == 0 ? kPlain : kL2norm;
            break;
        case Use::Positive: {
            constexpr Form kPositive[] = {kExp, kElu, kSigmoid, kSoftmax, kExpMax};
            form_ = kPositive[d.pick(what, {3, 1, 1, 1, 1})];
            break;
        }
        case Use::Key:
        case Use::Any: {
            const double joining = m.blocks && axis == m.V ? 0.1 : 1;
            form_ = d.pick(
                what, {12, 2 * joining, 1, 1, 1, 0.5, 1, 0.5, 0.3, 0.5, 0.5, 1, joining, 0.5, 0.5, 0.5 * joining, 0.3});
            if (form_ == kPlain && d.flip(what + ".positive", 0.03)) form_ = kPositivePart;
        } break;
    }
    const bool is_key = use == Use::Key || use == Use::Unit;
    input_ = m.token(name, m.wide, rows, heads, {axis}, is_key && form_ != kL2norm ? Kind::Unit : Kind::Normal);
    if (use != Use::Unit) shifted_ = d.flip(name + ".shifted", 0.08);
    const bool even = axis.is_constant() && axis.factor % 2 == 0;
    turned_ = use != Use::Positive && even && d.pick(name + ".turned", {1, 0}) == 1;  // if it is forced
    if (form_ == kWeighted || shifted_ || turned_) weight_ = m.head("u" + name, {axis}, Kind::Weight);
    masked_ = (neutral && !is_zero_at_zero(form_)) || d.flip(name + ".masked", 0.05);
    if (shifted_) m.traits.insert("prev_token"), masked_ = masked_ || neutral;
    if (form_ == kL2norm) m.traits.insert("l2norm");
    if (form_ == kSoftmax || form_ == kExpMax) m.traits.insert("softmax");
}

Tensor Feature::eval(const Env& env) const {
    Tensor x = env[input_];
    if (shifted_) x = wide(x) + wide(env[weight_]) * (wide(prev_token(x)) - wide(x));
    switch (form_) {
        case kL2norm:
            x = l2norm(wide(x));
            break;
        case kSilu:
            x = silu(wide(x));
            break;
        case kRelu:
            x = relu(x);
            break;
        case kTanh:
            x = tanh(wide(x));
            break;
        case kSquare:
            x = square(wide(x));
            break;
        case kWeighted:
            x = wide(x) * wide(env[weight_]);
            break;
        case kAbs:
            x = abs(x);
            break;
        case kSin:
            x = sin(wide(x));
            break;
        case kHalved:
            x = x * 0.5;
            break;
        case kProduct:
            x = wide(x) * sigmoid(wide(x));
            break;
        case kExp:
            x = exp(wide(x) * 0.5);
            break;
        case kSoftmax:
            x = softmax(wide(x), -1);
            break;
        case kElu:
            x = where(gt(x, 0.0), wide(x) + 1.0, exp(wide(x)));
            break;
        case kSigmoid:
            x = sigmoid(wide(x));
            break;
        case kExpMax:
            x = exp(wide(x) - unsqueeze(amax(wide(x), -1), -1));
            break;
        case kCos:
            x = cos(wide(x));
            break;
        case kPositivePart:
            x = wide(x) * gt(x, 0.0);
            break;
        default:
            break;
    }
    if (turned_) x = turned_by_pairs(wide(x), wide(env[weight_]));
    return masked_ ? wide(x) * column(rows_of(env, env.mask(), rows_)) : x;
}

}  // namespace forge::fuzz
