// States of rank 1 and 0: averages, sums, counts, and maxima, which are not affine.
#include "tests/random/parts.h"

namespace forge::fuzz {
namespace {

/// h = a ⊙ h + x, with a number per token or a vector; every token's h by a scan, by a product under a triangle, or by
/// a running sum where nothing decays.
class Vector : public Part {
  public:
    Vector(Maker& m, const std::string& name) : name_(name) {
        Decisions& d = m.d;
        axis_ = m.flip_joining(name + ".axis", 0.25) ? m.K : m.V;
        rows_ = 1 + d.pick(name + ".rows", {9, 1});
        //                                        none  number  channel
        const int gates = d.pick(name + ".gates", {2, 3, 3});
        if (gates > 0) gate_ = Gate(m, name, gates == 2 ? std::optional(axis_) : std::nullopt);
        form_ = gates == 2 ? 0 : d.pick(name + ".scan", {2, 1.5});
        exclusive_ = d.flip(name + ".exclusive", 0.15);
        complement_ = gates > 0 && rows_ == 1 && d.flip(name + ".complement", 0.3);
        values_ = Feature(m, "v_" + name, rows_, m.HV, axis_, Feature::Use::Any, true);
        m.state("h" + name, {axis_});
        m.traits.insert("vector state");
        if (!(axis_ == m.V)) m.traits.insert("no value axis");
    }

    void chunk(const Env& env, Named& out) const override {
        if (scans()) {
            const Tensor all = cache_result(linear_scan(factors(env), values(env)), "within" + name_);
            out.emplace_back("h" + name_, select(all, 0, -1));
            return;
        }
        Tensor x = values(env);
        if (gate_.any()) x = x * (gate_.per_channel() ? gate_.to_end(env) : column(gate_.to_end(env)));
        out.emplace_back("h" + name_, sum(x, 0));
    }
    void decay(const Env& env, Named& out) const override {
        Tensor h = env.prev("h" + name_);
        if (gate_.any()) h = h * exp(sum(gate_.log(env), 0));
        out.emplace_back("h" + name_, h + env.contribution("h" + name_));
    }
    std::vector<Reading> merge(const Env& env) const override {
        const Tensor before = env.prev("h" + name_);
        Tensor h;
        if (scans()) {
            const Tensor from_start = exp(cumsum(gate_.log(env), 0));
            h = env["within" + name_] + (gate_.per_channel() ? from_start : column(from_start)) * before;
        } else if (gate_.any()) {
            const Tensor G = cumsum(gate_.log(env), 0);
            h = matmul(tril(exp(column(G) - row(G))), values(env)) + outer(exp(G), before);
        } else {
            h = cumsum(values(env), 0) + before;
        }
        if (!exclusive_) return {{h, axis_}};
        // The state before the token, from the state after it.
        if (!gate_.any()) return {{h - values(env), axis_}};
        const Tensor rest = tanh(h) - values(env) * 0.5;
        return {{rest, axis_}};
    }
    std::vector<Reading> step(const Env& env, Named& out) const override {
        const Tensor before = env.prev("h" + name_), x = values(env);
        const Tensor h = (gate_.any() ? before * exp(gate_.log(env)) : before) + x;
        out.emplace_back("h" + name_, h);
        if (!exclusive_) return {{h, axis_}};
        if (!gate_.any()) return {{before, axis_}};
        return {{tanh(h) - x * 0.5, axis_}};
    }

  private:
    [[nodiscard]] bool scans() const { return gate_.any() && form_ == 0; }
    Tensor values(const Env& env) const {
        const Tensor all = wide(values_.eval(env));
        Tensor x = nth_row(env, all, 0, rows_);
        for (int j = 1; j < rows_; ++j) x = x + nth_row(env, all, j, rows_) * 0.5;
        if (!complement_) return x;
        const Tensor taken = 1.0 - exp(gate_.log(env));
        return x * (gate_.per_channel() ? taken : column(taken));
    }
    /// exp of the gates, as wide as the values.
    Tensor factors(const Env& env) const {
        const Tensor a = exp(gate_.log(env));
        return gate_.per_channel() ? a : column(a) * (values(env) * 0.0 + 1.0);
    }

    std::string name_;
    Dim axis_;
    int rows_ = 1, form_ = 0;
    Gate gate_;
    Feature values_;
    bool exclusive_, complement_ = false;
};

/// One number: z = a z + x, or a count of tokens.
class Number : public Part {
  public:
    Number(Maker& m, const std::string& name) : name_(name) {
        counts_ = !m.declared.empty() && m.d.flip(name + ".counts", 0.3);
        if (!counts_) {
            gate_ = Gate(m, name, std::nullopt);
            input_ = m.token("v_" + name, m.wide, 1, m.HV, {}, Kind::Normal);
            scan_ = m.d.flip(name + ".scan", 0.5);
        }
        m.state("n" + name, {});
        m.traits.insert("number as state");
        if (scan_) m.traits.insert("scan of numbers");
    }
    void chunk(const Env& env, Named& out) const override {
        out.emplace_back("n" + name_, counts_ ? sum(env.mask(), 0) : sum(wide(env[input_]) * gate_.to_end(env), 0));
    }
    void decay(const Env& env, Named& out) const override {
        Tensor n = env.prev("n" + name_);
        if (!counts_) n = n * exp(sum(gate_.log(env), 0));
        out.emplace_back("n" + name_, n + env.contribution("n" + name_));
    }
    std::vector<Reading> merge(const Env& env) const override {
        const Tensor before = env.prev("n" + name_);
        if (counts_) return {{cumsum(env.mask(), 0) + before, {}}};
        const Tensor g = gate_.log(env), G = cumsum(g, 0), x = wide(env[input_]);
        const Tensor within = scan_ ? linear_scan(exp(g), x) : matmul(tril(exp(column(G) - row(G))), x);
        return {{within + exp(G) * before, {}}};
    }
    std::vector<Reading> step(const Env& env, Named& out) const override {
        const Tensor before = env.prev("n" + name_);
        const Tensor n = counts_ ? before + env.mask() : before * exp(gate_.log(env)) + wide(env[input_]);
        out.emplace_back("n" + name_, n);
        return {{n, {}}};
    }

  private:
    std::string name_, input_;
    Gate gate_;
    bool counts_, scan_ = false;
};

/// No state at all: what inputs are is read.
class Plain : public Part {
  public:
    Plain(Maker& m, const std::string& name) {
        switch (m.d.pick(name + ".axis", {3, 2, 1})) {
            case 1:
                axis_ = m.K;
                break;
            case 2:
                input_ = m.token("x_" + name, m.wide, 1, m.HV, {}, Kind::Raw);
                break;
            default:
                axis_ = m.V;
        }
        if (axis_) values_ = Feature(m, "v_" + name, 1, m.HV, *axis_, Feature::Use::Any, false);
        m.traits.insert("reads inputs alone");
    }
    void chunk(const Env& /*env*/, Named& /*out*/) const override {}
    void decay(const Env& /*env*/, Named& /*out*/) const override {}
    std::vector<Reading> merge(const Env& env) const override {
        return {{axis_ ? wide(values_.eval(env)) : sigmoid(wide(env[input_])), axis_}};
    }
    std::vector<Reading> step(const Env& env, Named& /*out*/) const override { return merge(env); }

  private:
    std::string input_;
    std::optional<Dim> axis_;
    Feature values_;
};

constexpr double kLowest = -1e4;  ///< below everything that a maximum sees

/// m = max(m, x): of numbers, which are read, or of a vector, which is not.
class Maximum : public Part {
  public:
    Maximum(Maker& m, const std::string& name) : name_(name) {
        vector_ = m.d.flip(name + ".vector", 0.4);
        one_ = !vector_ && m.d.flip(name + ".one", 0.5);
        const Shape rest = vector_ ? Shape{m.V} : Shape{};
        input_ = m.token("x_" + name, F32, 1, m.HV, rest, Kind::Normal, kLowest);
        m.state("m" + name, vector_ ? Shape{m.V} : one_ ? Shape{1} : Shape{});
        axis_ = m.V;
        m.traits.insert("maximum");
    }
    void chunk(const Env& env, Named& out) const override {
        const Tensor most = amax(env[input_], 0);
        out.emplace_back("m" + name_, one_ ? unsqueeze(most, 0) : most);
    }
    void decay(const Env& env, Named& out) const override {
        out.emplace_back("m" + name_, maximum(env.prev("m" + name_), env.contribution("m" + name_)));
    }
    std::vector<Reading> merge(const Env& env) const override {
        const Tensor x = env[input_];
        if (vector_) return {{tanh(x), axis_}};
        const Tensor position = cumsum(env.mask(), 0);
        const Tensor seen = where(le(row(position), column(position)), row(x), kLowest);
        return {{exp(x - maximum(amax(seen, 1), env.prev("m" + name_))), {}}};
    }
    std::vector<Reading> step(const Env& env, Named& out) const override {
        const Tensor x = env[input_], m = maximum(env.prev("m" + name_), x);
        out.emplace_back("m" + name_, m);
        if (vector_) return {{tanh(x), axis_}};
        return {{exp(x - (one_ ? squeeze(m, 0) : m)), {}}};
    }

  private:
    std::string name_, input_;
    Dim axis_;
    bool vector_, one_ = false;
};

/// Exponential input gates, kept in range by their running maximum: m' = max(m + g, x), S = e^(m + g - m') S +
/// e^(x - m') k vᵀ, z likewise, o = Sᵀ q / max(zᵀ q, 1), or of e^-m' for 1, so that m' keeps exponents small, and no
/// more.
class Stabilised : public Part {
  public:
    Stabilised(Maker& m, const std::string& name) : name_(name), axis_(m.V) {
        keys_ = Feature(m, "k_" + name, 1, m.H, m.K, Feature::Use::Positive, true);
        values_ = Feature(m, "v_" + name, 1, m.HV, m.V, Feature::Use::Any, true);
        queries_ = Feature(m, "q_" + name, 1, m.H, m.K, Feature::Use::Positive, false);
        gate_ = Gate(m, name, std::nullopt);
        input_ = m.token("x_" + name, F32, 1, m.HV, {}, Kind::Normal, kLowest);
        half_ = m.d.flip(name + ".half", 0.5) && m.wide == BF16;
        cancels_ = m.d.flip(name + ".cancels", 0.5);
        m.state("s" + name, {m.K, m.V}), m.state("z" + name, {m.K}, Kind::Positive), m.state("m" + name, {});
        m.traits.insert("stabilised"), m.traits.insert("amax among decays");
    }
    void chunk(const Env& env, Named& out) const override {
        const Tensor g = gate_.log(env), weights = env[input_] + sum(g, 0) - cumsum(g, 0);
        const Tensor most = amax(weights, 0);
        const Tensor k = wide(keys_.eval(env)) * column(exp(weights - most));
        out.emplace_back("s" + name_, product(transpose(k), values_.eval(env), half_));
        out.emplace_back("z" + name_, sum(k, 0));
        out.emplace_back("m" + name_, most);
    }
    void decay(const Env& env, Named& out) const override {
        const Tensor before = env.prev("m" + name_) + sum(gate_.log(env), 0), own = env.contribution("m" + name_);
        const Tensor m = maximum(before, own), old = exp(before - m), fresh = exp(own - m);
        out.emplace_back("s" + name_, env.prev("s" + name_) * old + env.contribution("s" + name_) * fresh);
        out.emplace_back("z" + name_, env.prev("z" + name_) * old + env.contribution("z" + name_) * fresh);
        out.emplace_back("m" + name_, m);
    }
    std::vector<Reading> merge(const Env& env) const override {
        const Tensor G = cumsum(gate_.log(env), 0), position = cumsum(env.mask(), 0);
        const Tensor all = column(G) - row(G) + row(env[input_]);
        const Tensor weights = where(le(row(position), column(position)), all, kLowest * 10);
        const Tensor carried = G + env.prev("m" + name_), m = maximum(amax(weights, 1), carried);
        const Tensor k = keys_.eval(env), q = queries_.eval(env);
        const Tensor p = tril(product(q, transpose(k), half_) * exp(weights - column(m))), old = exp(carried - m);
        const Tensor above =
            product(p, values_.eval(env), half_) + product(q, env.prev("s" + name_), half_) * column(old);
        const Tensor below = sum(p, 1) + matmul(wide(q), env.prev("z" + name_)) * old;
        const Tensor least = where(gt(env.mask(), 0.0), -m, 0.0);  // of no token m is the lowest number
        return {{above / column(cancels_ ? maximum(below, exp(least)) : maximum(below, 1.0)), axis_}};
    }
    std::vector<Reading> step(const Env& env, Named& out) const override {
        const Tensor before = env.prev("m" + name_) + gate_.log(env), x = env[input_];
        const Tensor m = maximum(before, x), k = wide(keys_.eval(env)) * exp(x - m), q = wide(queries_.eval(env));
        const Tensor s = env.prev("s" + name_) * exp(before - m) + outer(k, wide(values_.eval(env)));
        const Tensor z = env.prev("z" + name_) * exp(before - m) + k;
        out.emplace_back("s" + name_, s), out.emplace_back("z" + name_, z), out.emplace_back("m" + name_, m);
        const Tensor weight = sum(q * z, -1);
        return {{matmul(q, s) / (cancels_ ? maximum(weight, exp(-m)) : maximum(weight, 1.0)), axis_}};
    }

  private:
    std::string name_, input_;
    Dim axis_;
    Feature keys_, values_, queries_;
    Gate gate_;
    bool half_, cancels_;
};

}  // namespace

std::unique_ptr<Part> vector_part(Maker& m, const std::string& name) { return std::make_unique<Vector>(m, name); }
std::unique_ptr<Part> number_part(Maker& m, const std::string& name) { return std::make_unique<Number>(m, name); }
std::unique_ptr<Part> plain_part(Maker& m, const std::string& name) { return std::make_unique<Plain>(m, name); }
std::unique_ptr<Part> maximum_part(Maker& m, const std::string& name) { return std::make_unique<Maximum>(m, name); }
std::unique_ptr<Part> stabilised_part(Maker& m, const std::string& name) {
    return std::make_unique<Stabilised>(m, name);
}

}  // namespace forge::fuzz
