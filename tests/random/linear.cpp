// Matrix states that decay by numbers or along their axes: S = D S D' + Σ k vᵀ, with a normaliser or without, read from
// either side, with or without the token itself; and the same with a decay for every element.
#include "tests/random/parts.h"

namespace forge::fuzz {
namespace {

/// One side of a read: queries meet keys along one axis, and values come out along the other.
struct Side {
    Tensor queries, keys, values;
    Tensor along, across;  ///< gates [C, axis] of the axis that is summed over, and of the other; may be absent
    Tensor state;          ///< [axis, other]
};

class Linear : public Part {
  public:
    Linear(Maker& m, const std::string& name) : name_(name) {
        Decisions& d = m.d;
        //                                      K V  K K  V V  V K
        const double joining = m.blocks ? 0.2 : 1;
        const int axes = d.pick(name + ".axes", {10, joining, 0.7 * joining, 0.7 * joining});
        a_ = axes < 2 ? m.K : m.V, b_ = axes == 0 || axes == 2 ? m.V : m.K;
        rows_ = 1 + d.pick(name + ".rows", {8, 1.5, 0.5});
        //                                        none  number  first axis  second  both
        const int gates = d.pick(name + ".gates", {2, 4, 3, 1, 0.7});
        if (gates == 1) number_ = Gate(m, name, std::nullopt);
        if (gates == 2 || gates == 4) first_ = Gate(m, name + "a", a_);
        if (gates == 3 || gates == 4) second_ = Gate(m, name + "b", b_);
        exclusive_ = d.flip(name + ".exclusive", 0.15);
        normalised_ = gates < 3 && d.flip(name + ".normalised", 0.2);
        right_ = !normalised_ && m.flip_joining(name + ".right", 0.12);
        itself_ = exclusive_ && rows_ == 1 && d.flip(name + ".itself", 0.5);
        half_ = d.flip(name + ".half", 0.5) && m.wide == BF16;
        form_ = d.pick(name + ".scores", {4, 2, 1, 1, 0.7});
        cached_ = d.flip(name + ".cached", 0.4);
        const bool shares = d.flip(name + ".shares", 0.5);
        const std::string own = shares ? "" : "_" + name;
        keys_ = Feature(m, "k" + own + (shares ? "_" + to_string(a_) + std::to_string(rows_) : ""), rows_, m.H, a_,
                        normalised_ ? Feature::Use::Positive : Feature::Use::Key, normalised_);
        // Either of them being 0 past the end is enough; values are made so.
        values_ = Feature(m, "v" + own + (shares ? "_" + to_string(b_) + std::to_string(rows_) : ""), rows_, m.HV, b_,
                          Feature::Use::Any, true);
        queries_ = Feature(m, "q" + own + (shares ? "_" + to_string(right_ ? b_ : a_) : ""), 1, m.H, right_ ? b_ : a_,
                           normalised_ ? Feature::Use::Positive : Feature::Use::Any, false);
        if (rows_ == 1 && d.flip(name + ".weighted", 0.12))
            weights_ = m.token("x_w" + name, F32, 1, m.HV, {}, Kind::Weight, kNoWeight),
            m.traits.insert("amax among decays");
        if (itself_) bonus_ = m.head("u_" + name, {right_ ? b_ : a_}, Kind::Weight);
        m.state("s" + name, {a_, b_});
        if (normalised_) m.state("z" + name, {a_}, Kind::Positive), m.traits.insert("normaliser");
        if (right_ || b_ == m.K) m.traits.insert("no value axis");
        if (a_ == b_) m.traits.insert("square state");
    }

    void chunk(const Env& env, Named& out) const override {
        Tensor keys = decayed(env, keys_.eval(env), first_);
        // Weights relative to the chunk's largest, which the whole contribution gets back.
        if (!weights_.empty()) keys = wide(keys) * column(exp(env[weights_] - amax(env[weights_], 0)));
        const Tensor values = decayed(env, values_.eval(env), second_);
        const Tensor to_end = number_.any() ? decayed(env, keys, number_) : keys;
        const Tensor k = env.shared("k_end" + name_, cached_, [&] { return to_end; });
        const auto whole = [&](const Tensor& x) { return weights_.empty() ? x : x * exp(amax(env[weights_], 0)); };
        out.emplace_back("s" + name_, whole(product(transpose(k), values, half_)));
        if (normalised_) out.emplace_back("z" + name_, whole(sum(wide(k), 0)));
    }

    void decay(const Env& env, Named& out) const override {
        Tensor s = env.prev("s" + name_);
        const auto whole = [&](const Gate& gate) { return exp(sum(gate.log(env), 0)); };
        if (number_.any()) s = s * whole(number_);
        if (first_.any()) s = s * column(whole(first_));
        if (second_.any()) s = s * row(whole(second_));
        out.emplace_back("s" + name_, s + env.contribution("s" + name_));
        if (!normalised_) return;
        Tensor z = env.prev("z" + name_);
        if (number_.any()) z = whole(number_) * z;
        if (first_.any()) z = z * whole(first_);
        out.emplace_back("z" + name_, z + env.contribution("z" + name_));
    }

    std::vector<Reading> merge(const Env& env) const override {
        Side side{queries_.eval(env), weighted(env, keys_.eval(env)), values_.eval(env), {}, {}, env.prev("s" + name_)};
        if (first_.any()) side.along = first_.log(env);
        if (second_.any()) side.across = second_.log(env);
        if (right_) {
            std::swap(side.keys, side.values);
            std::swap(side.along, side.across);
            side.state = transpose(side.state);
        }
        return {{read(env, side), right_ ? a_ : b_}};
    }

    std::vector<Reading> step(const Env& env, Named& out) const override {
        const Tensor before = env.prev("s" + name_), q = wide(queries_.eval(env));
        const Tensor k = wide(weighted(env, keys_.eval(env))), v = wide(values_.eval(env));
        Tensor next = before, z;
        if (normalised_) z = env.prev("z" + name_);
        const Tensor z_before = z;
        if (number_.any()) next = next * exp(number_.log(env));
        if (first_.any()) next = next * column(exp(first_.log(env)));
        if (second_.any()) next = next * row(exp(second_.log(env)));
        if (normalised_ && number_.any()) z = z * exp(number_.log(env));
        if (normalised_ && first_.any()) z = z * exp(first_.log(env));
        for (int j = 0; j < rows_; ++j) {
            next = next + outer(nth_row(env, k, j, rows_), nth_row(env, v, j, rows_));
            if (normalised_) z = z + nth_row(env, k, j, rows_);
        }
        out.emplace_back("s" + name_, next);
        if (normalised_) out.emplace_back("z" + name_, z);
        const Tensor s = exclusive_ ? before : next;
        Tensor o = right_ ? matmul(s, q) : matmul(q, s);
        if (itself_) o = o + sum(q * wide(env[bonus_]) * (right_ ? v : k), -1) * (right_ ? k : v);
        if (normalised_) o = o / (1.0 + sum(q * (exclusive_ ? z_before : z), -1));
        return {{o, right_ ? a_ : b_}};
    }

  private:
    static constexpr double kNoWeight = -1e4;  ///< of rows past the end, in log space

    Tensor weighted(const Env& env, const Tensor& keys) const {
        return weights_.empty() ? keys : wide(keys) * column(exp(env[weights_]));
    }

    /// Rows as they will be at the chunk's end.
    Tensor decayed(const Env& env, const Tensor& x, const Gate& gate) const {
        if (!gate.any()) return x;
        const Tensor decay = rows_of(env, gate.to_end(env), rows_);
        return wide(x) * (gate.per_channel() ? decay : column(decay));
    }

    /// What reads and writes see of a running sum: before the token's own decay, or after it.
    [[nodiscard]] Tensor seen(const Tensor& g) const {
        const Tensor G = cumsum(g, 0);
        return exclusive_ ? G - g : G;
    }

    /// exp of the sum between two tokens, below the diagonal.
    Tensor between(const Tensor& g) const { return exp(column(seen(g)) - row(cumsum(g, 0))); }

    /// Queries with keys, under a triangle and with decays.
    Tensor scores(const Env& env, const Side& side, const Tensor& keys) const {
        const int diagonal = exclusive_ ? -1 : 0;
        if (side.along.trace()) {
            const Tensor q = wide(side.queries) * exp(seen(side.along)), k = wide(keys) * exp(-cumsum(side.along, 0));
            return tril(matmul(q, transpose(k)), diagonal);
        }
        if (!number_.any()) return tril(product(side.queries, transpose(keys), half_), diagonal);
        const Tensor g = number_.log(env);
        if (form_ == 2) {
            const Tensor q = wide(side.queries) * column(exp(seen(g))), k = wide(keys) * column(exp(-cumsum(g, 0)));
            return tril(matmul(q, transpose(k)), diagonal);
        }
        if (form_ == 4) {
            const Tensor across =
                product(keys, transpose(side.queries), half_) * exp(row(seen(g)) - column(cumsum(g, 0)));
            return transpose(triu(across, -diagonal));
        }
        const Tensor plain = product(side.queries, transpose(keys), half_);
        if (form_ == 1) return plain * tril(between(g), diagonal);
        if (form_ == 3) return tril(plain, diagonal) * between(g);
        return tril(plain * between(g), diagonal);
    }

    Tensor read(const Env& env, const Side& side) const {
        Tensor out, weight;
        for (int j = 0; j < rows_; ++j) {
            const Tensor keys = nth_row(env, side.keys, j, rows_);
            Tensor values = nth_row(env, side.values, j, rows_);
            if (side.across.trace()) values = wide(values) * exp(-cumsum(side.across, 0));
            const Tensor p = scores(env, side, keys);
            const Tensor within = product(p, values, half_);
            out = j == 0 ? within : out + within;
            if (normalised_) weight = j == 0 ? sum(p, 1) : weight + sum(p, 1);
        }
        Tensor q = side.queries;
        if (side.along.trace()) q = wide(q) * exp(seen(side.along));
        Tensor carried = product(q, side.state, half_);
        if (number_.any()) carried = carried * column(exp(seen(number_.log(env))));
        out = out + carried;
        if (side.across.trace()) out = out * exp(seen(side.across));
        if (itself_) {
            const Tensor own = sum(wide(side.queries) * wide(env[bonus_]) * wide(side.keys), -1);
            out = out + column(own) * wide(side.values);
        }
        if (!normalised_) return out;
        Tensor z = matmul(wide(q), env.prev("z" + name_));
        if (number_.any()) z = z * exp(seen(number_.log(env)));
        return out / column(1.0 + weight + z);
    }

    std::string name_, bonus_, weights_;
    Dim a_, b_;
    int rows_ = 1, form_ = 0;
    Gate number_, first_, second_;
    Feature keys_, values_, queries_;
    bool exclusive_, normalised_, right_, itself_, half_, cached_;
};

/// S = exp(g) ⊙ S + k vᵀ with a gate for every element; all tokens' states at once, by a scan.
class Elementwise : public Part {
  public:
    Elementwise(Maker& m, const std::string& name) : name_(name), v_axis_(m.V) {
        keys_ = Feature(m, "k_" + name, 1, m.H, m.K, Feature::Use::Key, false);
        values_ = Feature(m, "v_" + name, 1, m.HV, m.V, Feature::Use::Any, true);
        queries_ = Feature(m, "q_" + name, 1, m.H, m.K, Feature::Use::Any, false);
        gate_ = m.token("g" + name, F32, 1, m.HV, {m.K, m.V}, Kind::LogDecay);
        columns_ = m.d.flip(name + ".columns", 0.3);
        m.state("s" + name, {m.K, m.V});
        m.traits.insert("rank 3");
        if (columns_) m.traits.insert("no value axis");
        k_axis_ = m.K;
    }

    void chunk(const Env& env, Named& out) const override {
        const Tensor updates = unsqueeze(wide(keys_.eval(env)), 2) * unsqueeze(wide(values_.eval(env)), 1);
        out.emplace_back("s" + name_,
                         select(cache_result(linear_scan(exp(env[gate_]), updates), "within" + name_), 0, -1));
    }
    void decay(const Env& env, Named& out) const override {
        out.emplace_back("s" + name_, env.prev("s" + name_) * exp(sum(env[gate_], 0)) + env.contribution("s" + name_));
    }
    std::vector<Reading> merge(const Env& env) const override {
        const Tensor states = env["within" + name_] + exp(cumsum(env[gate_], 0)) * env.prev("s" + name_);
        if (columns_) return {{amax(states, 2), k_axis_}};
        return {{sum(unsqueeze(wide(queries_.eval(env)), 2) * states, 1), v_axis_}};
    }
    std::vector<Reading> step(const Env& env, Named& out) const override {
        const Tensor next =
            env.prev("s" + name_) * exp(env[gate_]) + outer(wide(keys_.eval(env)), wide(values_.eval(env)));
        out.emplace_back("s" + name_, next);
        if (columns_) return {{amax(next, 1), k_axis_}};
        return {{matmul(wide(queries_.eval(env)), next), v_axis_}};
    }

  private:
    std::string name_, gate_;
    Dim v_axis_, k_axis_;
    Feature keys_, values_, queries_;
    bool columns_;
};

}  // namespace

std::unique_ptr<Part> linear_part(Maker& m, const std::string& name) { return std::make_unique<Linear>(m, name); }
std::unique_ptr<Part> elementwise_part(Maker& m, const std::string& name) {
    return std::make_unique<Elementwise>(m, name);
}

}  // namespace forge::fuzz
