// A mask that may be anything among the last tokens: keys and values of these are kept beside the sums of all, newest
// first. Row r is of the token r + 1 before the next one; tokens move on by as many rows as a chunk has tokens.
#include "frontend/compositions.h"

namespace forge::frontend {
namespace {

/// A chunk, or in `step` a token, of such a variant: everything by name, and what is derived of it.
class Windowed {
  public:
    Windowed(const ChosenParts& parts, const std::vector<std::string>& names, const std::vector<Tensor>& given)
        : parts_(parts), mask_(*parts.mask) {
        for (std::size_t i = 0; i < names.size(); ++i) arguments_.emplace_back(names[i], given[i]);
    }

    [[nodiscard]] Tensor operator[](const std::string& name) const {
        for (const auto& [known, x] : arguments_)
            if (known == name) return x;
        return {};
    }
    [[nodiscard]] std::int64_t rows() const { return mask_.window - 1; }
    [[nodiscard]] Tensor number(double x) const { return like().trace()->constant(x, {}); }
    [[nodiscard]] const Tensor& like() const { return arguments_[0].second; }

    // --- a chunk

    [[nodiscard]] Tensor features(const char* name) const { return parts_.features.map((*this)[name].to(F32), {}); }
    [[nodiscard]] Tensor keys() const { return features("k") * unsqueeze((*this)["token_mask"], 1); }
    [[nodiscard]] Tensor within() const { return cumsum((*this)["token_mask"], 0) - 1.0; }  ///< the chunk
    [[nodiscard]] Tensor count() const { return sum((*this)["token_mask"], 0); }
    /// The first token's place, or 0 where only distances count. Initial states are the caller's: places are whole.
    [[nodiscard]] Tensor first() const {
        const Tensor place = (*this)["prev_place"];
        return place.trace() ? floor(place) : number(0);
    }

    /// Logarithms of a term's decays, of every token; an empty tensor: 1.
    [[nodiscard]] Tensor gates(const MaskTerm& term, const Tensor& places) const {
        Tensor g;
        for (const MaskDecay& d : term.decays) {
            const Tensor log = d.logarithm(at(places), at(places - 1.0), like());
            g = g.trace() ? g + log : log;
        }
        return g;
    }
    [[nodiscard]] Tensor chunk_gates(const MaskTerm& term) const {
        const Tensor g = gates(term, first() + within());
        return g.trace() ? where(gt((*this)["token_mask"], 0.0), g, 0.0) : g;
    }
    /// Its keys, weighed and decayed to the chunk's end.
    [[nodiscard]] Tensor term_keys(const MaskTerm& term) const {
        const Tensor places = first() + within();
        Tensor k = keys();
        if (mask_.reads_places) k = k * unsqueeze(exists(places), 1);
        for (const MaskFactor& f : term.key) k = k * column(f.value(at(places), like()));
        const Tensor g = chunk_gates(term);
        return g.trace() ? k * unsqueeze(exp(sum(g, 0) - cumsum(g, 0)), 1) : k;
    }
    [[nodiscard]] Tensor decayed(const Tensor& state, const MaskTerm& term) const {
        const Tensor g = chunk_gates(term);
        return g.trace() ? state * exp(sum(g, 0)) : state;
    }
    /// The last rows of the chunk: its keys or values, newest first.
    [[nodiscard]] Tensor newest(const Tensor& x) const {
        const Tensor row = unsqueeze(arange(number(0), rows()), 1), place = unsqueeze(within(), 0);
        return matmul(where(eq(row + place, count() - 1.0), 1.0, 0.0), x);
    }
    [[nodiscard]] Tensor moved_on(const Tensor& before) const {
        const Tensor row = arange(number(0), rows());
        return matmul(where(eq(unsqueeze(row, 1) - unsqueeze(row, 0), count()), 1.0, 0.0), before);
    }

    /// Outputs of a chunk; with `sums` what they are divided by.
    [[nodiscard]] Tensor outputs(const std::vector<std::string>& states) const {
        const Tensor q = features("q"), k = keys(), v = (*this)["v"].to(F32);
        const Tensor places = first() + within(), i = unsqueeze(places, 1), j = unsqueeze(places, 0);
        // Of later tokens the mask is not asked: it may not be finite there.
        const Tensor near = tril(matmul(q, transpose(k)) * whole(maximum(i, j), j), parts_.read.after ? 0 : -1);
        Tensor o = matmul(near, v), weights = sum(near, 1);
        if (rows() > 0) {
            const Tensor place = first() - 1.0 - arange(number(0), rows());
            const Tensor of_rows = matmul(q, transpose((*this)["prev_keys"])) * correction(i, unsqueeze(place, 0));
            o = o + matmul(of_rows, (*this)["prev_values"]);
            weights = weights + sum(of_rows, 1);
        }
        for (const MaskTerm& term : mask_.terms) {
            const std::size_t n = index(states, term);
            Tensor query = term.number == 1 ? q : q * term.number;
            for (const MaskFactor& f : term.query) query = query * column(f.value(at(places), like()));
            if (const Tensor g = chunk_gates(term); g.trace()) query = query * unsqueeze(exp(cumsum(g, 0)), 1);
            o = o + matmul(query, (*this)["prev_" + numbered("s", n)]);
            if (parts_.normalise.divides) weights = weights + matmul(query, (*this)["prev_" + numbered("z", n)]);
        }
        return parts_.normalise.divides ? o / unsqueeze(abs(weights) + 1e-3, 1) : o;
    }

    // --- a token

    Results token(const std::vector<std::string>& states) const {
        const Tensor q = parts_.features.map((*this)["q"], {}), k = parts_.features.map((*this)["k"], {});
        const Tensor v = (*this)["v"], n = first();
        std::vector<std::pair<std::string, Tensor>> named;
        const Tensor self = sum(q * k, 0) * correction(n, n);
        Tensor o, weights;
        const auto add = [](Tensor& to, const Tensor& x) { to = to.trace() ? to + x : x; };
        if (parts_.read.after) add(o, v * self), add(weights, self);
        if (rows() > 0) {
            const Tensor keys = (*this)["prev_keys"], values = (*this)["prev_values"];
            const Tensor place = n - 1.0 - arange(number(0), rows());
            const Tensor scores = matmul(keys, q) * correction(n, place);
            add(o, matmul(scores, values)), add(weights, sum(scores, 0));
            const auto shifted = [&](const Tensor& x, const Tensor& before) {
                const Tensor row = unsqueeze(x, 0);
                return rows() == 1 ? row : concat({row, narrow(before, 0, 0, rows() - 1)}, 0);
            };
            named.emplace_back("keys", shifted(k, keys));
            named.emplace_back("values", shifted(v, values));
        }
        for (const MaskTerm& term : mask_.terms) {
            const std::size_t index_of = index(states, term);
            const std::string s = numbered("s", index_of), z = numbered("z", index_of);
            const Tensor g = gates(term, n);
            Tensor key = k, kept = (*this)["prev_" + s], sums = (*this)["prev_" + z];
            if (mask_.reads_places) key = key * exists(n);
            for (const MaskFactor& f : term.key) key = key * f.value(at(n), like());
            if (g.trace()) kept = kept * exp(g);
            if (g.trace() && sums.trace()) sums = sums * exp(g);
            const Tensor after = kept + outer(key, v), sums_after = sums.trace() ? sums + key : sums;
            Tensor query = term.number == 1 ? q : q * term.number;
            for (const MaskFactor& f : term.query) query = query * f.value(at(n), like());
            add(o, matmul(query, parts_.read.after ? after : kept));
            if (sums.trace()) add(weights, sum(query * (parts_.read.after ? sums_after : sums), 0));
            if (std::any_of(named.begin(), named.end(), [&](const auto& r) { return r.first == s; })) continue;
            named.emplace_back(s, after);
            if (sums.trace()) named.emplace_back(z, sums_after);
        }
        if (!o.trace()) o = v * 0.0;  // a window of one token, read before it
        if (const Tensor place = (*this)["prev_place"]; place.trace()) named.emplace_back("place", place + 1.0);
        named.emplace_back("o", parts_.normalise.divides ? o / (abs(weights) + 1e-3) : o);
        Results results(o);
        results.named = std::move(named);
        return results;
    }

  private:
    static std::size_t index(const std::vector<std::string>& states, const MaskTerm& term) {
        return static_cast<std::size_t>(std::find(states.begin(), states.end(), term.state()) - states.begin());
    }
    static Tensor column(const Tensor& x) { return x.rank() == 1 ? unsqueeze(x, 1) : x; }
    [[nodiscard]] Arguments at(const Tensor& place) const {
        return [this, n = known(place)](const std::string& name) {
            return name == "i" || name == "j" ? n : (*this)[name];
        };
    }
    /// Before the sequence there are no tokens: rows are 0, and the mask, which is not asked there, too.
    [[nodiscard]] static Tensor exists(const Tensor& place) { return where(ge(place, 0.0), 1.0, 0.0); }
    [[nodiscard]] Tensor known(const Tensor& place) const { return mask_.reads_places ? maximum(place, 0.0) : place; }
    [[nodiscard]] Tensor value(const ir::Function& fn, const Tensor& i, const Tensor& j) const {
        const Tensor m = replayed(
            fn, fn.results[0].value,
            [&, query = known(i), key = known(j)](const std::string& name) {
                return name == "i" ? query : name == "j" ? key : (*this)[name];
            },
            like());
        const Tensor weight = m.dtype() == DType::Bool ? where(m, 1.0, 0.0) : m;
        return mask_.reads_places ? weight * exists(j) : weight;
    }
    [[nodiscard]] Tensor whole(const Tensor& i, const Tensor& j) const { return value(mask_.whole, i, j); }
    /// What the mask is beyond the sums of its terms, which are right of tokens that are far apart.
    [[nodiscard]] Tensor correction(const Tensor& i, const Tensor& j) const {
        const Tensor m = whole(i, j), more = mask_.terms.empty() ? m : m - value(mask_.far, i, j);
        return where(lt(i - j, static_cast<double>(mask_.window)), more, 0.0);
    }

    const ChosenParts& parts_;
    const Mask& mask_;
    std::vector<std::pair<std::string, Tensor>> arguments_;
};

void check_window(const ChosenParts& parts) {
    for (const ir::Op& op : parts.mask->whole.ops)
        if (op.code == ir::Opcode::Param && without_place(op.attrs.name, parts.inputs) != op.attrs.name)
            throw CompileError(Diagnostic{"mask: what tokens bring, and a window of tokens that are kept",
                                          "inputs per head, i and j", "'" + op.attrs.name + "'", op.where,
                                          "multiply queries or keys by it"});
}

}  // namespace

void compose_window(LinearAttention& a, const std::shared_ptr<const ChosenParts>& parts, Here here) {
    check_window(*parts);
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    const std::vector<std::string> states = parts->mask_states();
    const std::int64_t rows = parts->mask->window - 1;
    const bool divides = parts->normalise.divides, places = parts->mask->reads_places;
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    std::vector<std::string> own, all = {"q", "k", "v"}, before;
    declare_own(a, *parts, own);
    const auto state = [&](const std::string& name, Shape shape) {
        a.state(name, F32, std::move(shape));
        before.push_back("prev_" + name);
    };
    for (std::size_t i = 0; i < states.size(); ++i) state(numbered("s", i), {K, V});
    for (std::size_t i = 0; i < states.size() && divides; ++i) state(numbered("z", i), {K});
    if (rows > 0) state("keys", {Dim(rows), K}), state("values", {Dim(rows), V});
    if (places) state("place", {});
    if (before.empty()) state("place", {});  // a window of one token needs none, and every variant has one
    all.insert(all.end(), own.begin(), own.end());

    const auto with = [](std::vector<std::string> names, const std::vector<std::string>& more) {
        names.insert(names.end(), more.begin(), more.end());
        return names;
    };
    const auto term = [parts](const std::string& of) -> const MaskTerm& {
        return *std::find_if(parts->mask->terms.begin(), parts->mask->terms.end(),
                             [&](const MaskTerm& t) { return t.state() == of; });
    };
    // What a term's keys are weighed by is known in `chunk` only where it does not depend on the first token's place.
    const bool by_place = parts->mask->terms_read_places, counts = before.back() == "prev_place";
    const auto contribution = [=](const Windowed& x, std::vector<std::pair<std::string, Tensor>>& named) {
        for (std::size_t i = 0; i < states.size(); ++i) {
            const Tensor keys = x.term_keys(term(states[i]));
            named.emplace_back(numbered("s", i), matmul(transpose(keys), x["v"].to(F32)));
            if (divides) named.emplace_back(numbered("z", i), sum(keys, 0));
        }
    };
    const std::vector<std::string> of_chunk = with(with({"k", "v"}, own), {"token_mask"});
    a.chunk(of_chunk, LinearAttention::PhaseFn([=](const std::vector<Tensor>& given) {
                const Windowed x(*parts, of_chunk, given);
                std::vector<std::pair<std::string, Tensor>> named;
                if (!by_place) contribution(x, named);
                for (std::size_t i = 0; i < states.size() && by_place; ++i) {
                    named.emplace_back(numbered("s", i), full(x.number(0), {Dim("K"), Dim("V")}, 0));
                    if (divides) named.emplace_back(numbered("z", i), full(x.number(0), {Dim("K")}, 0));
                }
                if (rows > 0) named.emplace_back("keys", x.newest(x.keys()));
                if (rows > 0) named.emplace_back("values", x.newest(x["v"].to(F32)));
                if (counts) named.emplace_back("place", x.count());
                Results results((Tensor()));
                results.named = std::move(named);
                return results;
            }),
            here);
    std::vector<std::string> added;
    const std::size_t count = before.size();
    for (const std::string& name : before)
        added.push_back(count == 1 ? "chunk_state" : "chunk_" + name.substr(std::string("prev_").size()));
    const std::vector<std::string> of_decay = with(with(of_chunk, before), added);
    a.decay(of_decay, LinearAttention::PhaseFn([=](const std::vector<Tensor>& given) {
                const Windowed x(*parts, of_decay, given);
                const auto chunk = [&](const std::string& name) {
                    return x[count == 1 ? "chunk_state" : "chunk_" + name];
                };
                std::vector<std::pair<std::string, Tensor>> named, now;
                if (by_place) contribution(x, now);
                const auto next = [&](const std::string& name, const Tensor& kept) {
                    Tensor sum = kept + chunk(name);
                    for (const auto& [other, more] : now)
                        if (other == name) sum = sum + more;
                    named.emplace_back(name, sum);
                };
                for (std::size_t i = 0; i < states.size(); ++i) {
                    next(numbered("s", i), x.decayed(x["prev_" + numbered("s", i)], term(states[i])));
                    if (divides) next(numbered("z", i), x.decayed(x["prev_" + numbered("z", i)], term(states[i])));
                }
                if (rows > 0) next("keys", x.moved_on(x["prev_keys"]));
                if (rows > 0) next("values", x.moved_on(x["prev_values"]));
                if (counts) next("place", x["prev_place"]);
                Results results((Tensor()));
                results.named = std::move(named);
                return results;
            }),
            here);
    const std::vector<std::string> of_merge = with(with(all, {"token_mask"}), before);
    a.merge(of_merge, LinearAttention::PhaseFn([=](const std::vector<Tensor>& given) {
                return Results(Windowed(*parts, of_merge, given).outputs(states));
            }),
            here);
    const std::vector<std::string> of_step = with(all, before);
    a.step(of_step, LinearAttention::PhaseFn([=](const std::vector<Tensor>& given) {
               return Windowed(*parts, of_step, given).token(states);
           }),
           here);
}

}  // namespace forge::frontend
