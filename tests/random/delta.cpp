// Matrix states that are corrected: S = D S, then for each row of the token S += β k (v - Sᵀ p)ᵀ, by the inverse of a
// triangle.
#include "tests/random/known_faults.h"
#include "tests/random/parts.h"

namespace forge::fuzz {
namespace {

class Delta : public Part {
  public:
    Delta(Maker& m, const std::string& name) : name_(name), a_(m.K), b_(m.V) {
        Decisions& d = m.d;
        if (m.flip_joining(name + ".square", 0.1)) b_ = a_;
        rows_ = 1 + d.pick(name + ".rows", {8, 1.5, 0.5});
        //                                        none  number  first axis
        // Per channel and with several rows, decays are not recognised: exp(-G) of a long chunk is beyond float32.
        const int gates = d.pick(name + ".gates", {2, 4, kRepeatedDecays && rows_ > 1 ? 0.0 : 3.0});
        if (gates == 1) number_ = Gate(m, name, std::nullopt);
        if (gates == 2) channel_ = Gate(m, name, a_);
        half_ = d.flip(name + ".half", 0.5) && m.wide == BF16;
        cached_ = d.flip(name + ".cached", 0.7);
        separate_ = d.flip(name + ".separate", 0.2);
        keys_ = Feature(m, "k_" + name, rows_, m.H, a_, Feature::Use::Unit, false);
        readers_ = separate_ ? Feature(m, "kp_" + name, rows_, m.H, a_, Feature::Use::Unit, false) : keys_;
        values_ = Feature(m, "v_" + name, rows_, m.HV, b_, Feature::Use::Any, false);
        queries_ = Feature(m, "q_" + name, 1, m.H, a_, Feature::Use::Any, false);
        if (d.flip(name + ".sharp", 0.2)) beta_raw_ = true;
        beta_ = m.token((beta_raw_ ? "x_beta_" : "beta_") + name, m.wide, rows_, m.HV, {},
                        beta_raw_ ? Kind::Raw : Kind::Fraction);
        m.state("s" + name, {a_, b_});
        m.traits.insert("inverse");
        if (b_ == a_) m.traits.insert("square state");
    }

    void chunk(const Env& env, Named& out) const override {
        const Tensor end = key_at_end(env);
        out.emplace_back("s" + name_, matmul(transpose(end), updates(env)));
        if (cached_) readings(env);
    }

    void decay(const Env& env, Named& out) const override {
        const Tensor before = env.prev("s" + name_);
        Tensor s = before;
        if (number_.any()) s = s * exp(sum(number_.log(env), 0));
        if (channel_.any()) s = s * column(exp(sum(channel_.log(env), 0)));
        const Tensor removed = matmul(transpose(key_at_end(env)), matmul(readings(env), before));
        out.emplace_back("s" + name_, s + env.contribution("s" + name_) - removed);
    }

    std::vector<Reading> merge(const Env& env) const override {
        const Tensor before = env.prev("s" + name_), q = queries_.eval(env), k = keys_.eval(env);
        const Tensor written = updates(env) - matmul(readings(env), before);
        Tensor scores, reading = q;
        if (channel_.any()) {
            const Tensor G = cumsum(channel_.log(env), 0);
            reading = wide(q) * exp(G);
            scores = matmul(reading, transpose(wide(k) * rows_of(env, exp(-G), rows_)));
            if (rows_ > 1) scores = scores * seen(env);
            else scores = tril(scores);
        } else {
            scores = product(q, transpose(k), half_) * seen(env);
        }
        Tensor carried = product(reading, before, half_);
        if (number_.any()) carried = carried * column(exp(cumsum(number_.log(env), 0)));
        return {{product(scores, written, half_) + carried, b_}};
    }

    std::vector<Reading> step(const Env& env, Named& out) const override {
        Tensor s = env.prev("s" + name_);
        if (number_.any()) s = s * exp(number_.log(env));
        if (channel_.any()) s = s * column(exp(channel_.log(env)));
        const Tensor k = wide(keys_.eval(env)), p = wide(readers_.eval(env)), v = wide(values_.eval(env));
        const Tensor b = strength(env);
        for (int j = 0; j < rows_; ++j) {
            const auto nth = [&](const Tensor& x) { return nth_row(env, x, j, rows_); };
            s = s + outer(nth(k), (nth(v) - matmul(nth(p), s)) * nth(b));
        }
        out.emplace_back("s" + name_, s);
        return {{matmul(wide(queries_.eval(env)), s), b_}};
    }

  private:
    [[nodiscard]] Tensor strength(const Env& env) const {
        Tensor b = wide(env[beta_]);
        if (beta_raw_) b = sigmoid(b) * rows_of(env, env.mask(), rows_);
        return separate_ ? b * 0.25 : b;  // what reads elsewhere than it writes may grow
    }

    /// [C, nC]: the decay from a row to a token, 0 for later ones.
    [[nodiscard]] Tensor seen(const Env& env) const {
        const Tensor G = number_.any() ? cumsum(number_.log(env), 0) : cumsum(env.mask() * 0.0, 0);
        const Tensor decay = tril(exp(column(G) - row(G)));
        return rows_ == 1 ? decay : repeat_interleave(decay, rows_, 1);
    }

    Tensor key_at_end(const Env& env) const {
        return env.shared("k_end" + name_, cached_, [&] {
            const Tensor k = wide(keys_.eval(env));
            if (number_.any()) return k * column(rows_of(env, number_.to_end(env), rows_));
            return channel_.any() ? k * rows_of(env, channel_.to_end(env), rows_) : k;
        });
    }

    /// The inverse of what rows of a chunk take from one another.
    Tensor solve(const Env& env) const {
        const Tensor k = keys_.eval(env), p = readers_.eval(env), b = column(strength(env));
        Tensor among;
        if (channel_.any()) {
            const Tensor G = rows_of(env, cumsum(channel_.log(env), 0), rows_);
            among = tril(matmul(wide(p) * exp(G), transpose(wide(k) * exp(-G))), -1);
        } else if (number_.any()) {
            const Tensor G = rows_of(env, cumsum(number_.log(env), 0), rows_);
            among = tril(product(p, transpose(k), half_) * exp(column(G) - row(G)), -1);
        } else {
            among = tril(product(p, transpose(k), half_), -1);
        }
        const Tensor A = among * b;
        return inverse(identity(A, A.size(0)) + A);
    }

    /// What rows write if the state before the chunk is 0.
    Tensor updates(const Env& env) const {
        return env.shared("u" + name_, cached_,
                          [&] { return matmul(solve(env), wide(values_.eval(env)) * column(strength(env))); });
    }

    /// What they read of the state before the chunk.
    Tensor readings(const Env& env) const {
        return env.shared("w" + name_, cached_, [&] {
            Tensor p = wide(readers_.eval(env)) * column(strength(env));
            if (number_.any()) p = p * column(rows_of(env, exp(cumsum(number_.log(env), 0)), rows_));
            if (channel_.any()) p = p * rows_of(env, exp(cumsum(channel_.log(env), 0)), rows_);
            return matmul(solve(env), p);
        });
    }

    std::string name_, beta_;
    Dim a_, b_;
    int rows_ = 1;
    Gate number_, channel_;
    Feature keys_, readers_, values_, queries_;
    bool half_, cached_, separate_, beta_raw_ = false;
};

}  // namespace

std::unique_ptr<Part> delta_part(Maker& m, const std::string& name) { return std::make_unique<Delta>(m, name); }

}  // namespace forge::fuzz
