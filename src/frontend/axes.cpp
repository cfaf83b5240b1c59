#include "frontend/axes.h"

#include <algorithm>
#include <set>

namespace forge::frontend {
namespace {

using ir::Along;
using ir::Definition;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::Type;
using ir::ValueId;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// All dimensions of a definition, as classes of those that must have one symbol.
class Axes {
  public:
    explicit Axes(Definition def) : def_(std::move(def)) {
        for (auto& in : def_.inputs) declare({'i', in.name}, in.type);
        for (auto& s : def_.states) declare({'s', s.name}, s.type);
        for (const auto& s : def_.states) states_.insert(declared_.at({'s', s.name}));
        for (auto& out : def_.outputs) declare({'o', out.name}, out.type);
        for (Function* fn : functions()) add(*fn);
    }

    Definition run() {
        name_classes();
        for (std::size_t n = 0; n < dims_.size(); ++n) {
            const auto named = names_.find(root(n));
            if (named == names_.end()) continue;
            Dim& d = *dims_[n];
            if (d.is_constant()) d.factor = 1;
            d.symbol = named->second;
        }
        return std::move(def_);
    }

  private:
    using Name = std::pair<char, std::string>;

    std::vector<Function*> functions() {
        std::vector<Function*> all = {&def_.chunk, &def_.decay, &def_.merge};
        if (def_.step) all.push_back(&*def_.step);
        return all;
    }

    /// A type's axes are numbered one after the other, from the number that is returned.
    std::size_t number(Type& type) {
        const std::size_t first = dims_.size();
        for (Dim& d : type.shape) parent_.push_back(dims_.size()), dims_.push_back(&d);
        values_.push_back({first, type.shape.size()});
        return first;
    }
    void declare(const Name& name, Type& type) {
        const std::size_t first = number(type);
        declared_[name] = {first, type.shape.size()};
    }

    std::size_t root(std::size_t n) {
        while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
        return n;
    }
    void tie(std::size_t a, std::size_t b) {
        a = root(a), b = root(b);
        parent_[std::max(a, b)] = std::min(a, b);
    }

    struct Span {
        std::size_t first = 0, rank = 0;
        auto operator<=>(const Span&) const = default;
        [[nodiscard]] std::size_t axis(std::size_t i) const { return first + i; }
    };

    /// Axes from the right; those of size 1 are repeated along whatever is there.
    void tie_from_right(const Span& a, const Span& b) {
        for (std::size_t n = 1; n <= std::min(a.rank, b.rank); ++n) {
            const std::size_t x = a.axis(a.rank - n), y = b.axis(b.rank - n);
            if (*dims_[x] == *dims_[y]) tie(x, y);
        }
    }

    void add(Function& fn) {
        std::vector<Span> values;
        for (Op& op : fn.ops) {
            const std::size_t first = number(op.type);
            values.push_back({first, op.type.shape.size()});
            std::vector<Span> args;
            for (const ValueId a : op.args) args.push_back(values[static_cast<std::size_t>(a)]);
            tie_operation(op, values.back(), args);
            if (op.code == Opcode::Param) tie_name(op.attrs.role, op.attrs.name, values.back());
        }
        for (const ir::Result& r : fn.results) {
            const Span& value = values[static_cast<std::size_t>(r.value)];
            if (r.role == Role::Input) tie_from_right(value, declared_.at({'o', r.name}));
            else tie_name(r.role, r.name, value);
        }
    }

    /// A parameter or result with what has the same name elsewhere. Tensors of tokens and heads have leading axes that
    /// phases do not see.
    void tie_name(Role role, const std::string& name, const Span& value) {
        const char kind = role == Role::State ? 's' : role == Role::Chunk ? 'c' : role == Role::Cached ? 'x' : 'i';
        const auto [it, fresh] = declared_.try_emplace({kind, name}, value);
        if (!fresh) tie_from_right(value, it->second);
    }

    void tie_operation(const Op& op, const Span& result, const std::vector<Span>& args) {
        switch (ir::along(op.code)) {
            case Along::Leaf:
                return;
            case Along::Contracted: {
                const std::size_t rows = op.attrs.trans_a ? 1 : 0, columns = op.attrs.trans_b ? 0 : 1;
                tie(args[0].axis(1 - rows), args[1].axis(1 - columns));
                tie(args[0].axis(rows), result.axis(0));
                return tie(args[1].axis(columns), result.axis(1));
            }
            case Along::Permuted:
                for (std::size_t i = 0; i < result.rank; ++i)
                    tie(result.axis(i), args[0].axis(static_cast<std::size_t>(op.attrs.perm[i])));
                return;
            case Along::Inserted:
                return tie_around(args[0], result, axis(op, result.rank));
            case Along::Removed:
            case Along::Selected:
            case Along::Reduced:
                return tie_around(result, args[0], axis(op, args[0].rank));
            case Along::Cut:  // symbols stay, factors do not
            case Along::Repeated:
                for (std::size_t i = 0; i < result.rank; ++i)
                    if (dims_[result.axis(i)]->symbol == dims_[args[0].axis(i)]->symbol)
                        tie(result.axis(i), args[0].axis(i));
                return;
            case Along::Pointwise:
            case Along::Triangle:
            case Along::Copied:
            case Along::Shifted:
            case Along::Broadcast:
            case Along::Scanned:
            case Along::Normalised:
            case Along::RowScan:
                for (const Span& a : args) tie_from_right(result, a);
                return;
            case Along::Joined:
                joined_.push_back(result.axis(axis(op, result.rank)));
                return tie_all(result, args);
            case Along::Place:
            case Along::Matrix:
            case Along::Pairs:
            case Along::Rows:
                return tie_all(result, args);
        }
    }

    [[nodiscard]] static std::size_t axis(const Op& op, std::size_t rank) {
        return static_cast<std::size_t>(op.attrs.dim < 0 ? op.attrs.dim + static_cast<std::int64_t>(rank)
                                                         : op.attrs.dim);
    }

    /// `more` has one axis that `less` has not.
    void tie_around(const Span& less, const Span& more, std::size_t dropped) {
        for (std::size_t i = 0; i < less.rank; ++i) tie(less.axis(i), more.axis(i < dropped ? i : i + 1));
    }

    /// Of an operation that may do anything: axes of one name are one axis.
    void tie_all(const Span& result, std::vector<Span> spans) {
        spans.push_back(result);
        std::vector<std::size_t> axes;
        for (const Span& s : spans)
            for (std::size_t i = 0; i < s.rank; ++i) axes.push_back(s.axis(i));
        for (const std::size_t a : axes)
            for (const std::size_t b : axes)
                if (dims_[a]->symbol == dims_[b]->symbol && (!dims_[a]->is_constant() || *dims_[a] == *dims_[b]))
                    tie(a, b);
    }

    /// Symbols of tokens and heads stay as they are, and numbers that are no axis of a state, that do not agree, or
    /// that are made of other numbers.
    void name_classes() {
        std::set<std::string> fixed = {ir::kTokenSymbol, ir::kChunkSymbol};
        for (const auto& in : def_.inputs)
            if (in.role != Role::Scalar) fixed.insert(in.type.shape[in.role == Role::Input ? 1 : 0].symbol);
        for (const auto& out : def_.outputs) fixed.insert(out.type.shape[1].symbol);
        std::set<std::size_t> of_states, mixed;
        for (const Span& s : states_)
            for (std::size_t i = 0; i < s.rank; ++i) of_states.insert(root(s.axis(i)));
        for (std::size_t n = 0; n < dims_.size(); ++n) {
            const Dim &d = *dims_[n], &first = *dims_[root(n)];
            if (d.symbol != first.symbol || (d.is_constant() && d.factor != first.factor)) mixed.insert(root(n));
        }
        for (const std::size_t n : joined_)
            if (dims_[n]->is_constant()) mixed.insert(root(n));
        const auto together = axes_together();
        for (std::size_t n = 0; n < dims_.size(); ++n) {
            const Dim& d = *dims_[n];
            if (root(n) != n || mixed.contains(n) || fixed.contains(d.symbol)) continue;
            if (d.is_constant() && (d.factor == 1 || !of_states.contains(n))) continue;
            std::string name = d.is_constant() ? std::to_string(d.factor) : d.symbol;
            const auto taken = [&](std::size_t other) { return names_.contains(other) && names_.at(other) == name; };
            if (const auto beside = together.find(n); beside != together.end())
                while (std::any_of(beside->second.begin(), beside->second.end(), taken)) name += '\'';
            names_[n] = name;
        }
    }

    /// For each class the others that some value has beside it: only they need another name.
    std::map<std::size_t, std::set<std::size_t>> axes_together() {
        std::map<std::size_t, std::set<std::size_t>> together;
        for (const Span& value : values_)
            for (std::size_t i = 0; i < value.rank; ++i)
                for (std::size_t j = 0; j < value.rank; ++j)
                    if (root(value.axis(i)) != root(value.axis(j)))
                        together[root(value.axis(i))].insert(root(value.axis(j)));
        return together;
    }

    Definition def_;
    std::vector<Dim*> dims_;
    std::vector<std::size_t> parent_;
    std::map<Name, Span> declared_;
    std::set<Span> states_;
    std::vector<Span> values_;
    std::vector<std::size_t> joined_;           ///< axes along which values are put together
    std::map<std::size_t, std::string> names_;  ///< of classes, by their roots
};

}  // namespace

Definition with_own_axes(const Definition& def) { return Axes(def).run(); }

std::map<std::string, std::int64_t> own_sizes(const Definition& def, std::map<std::string, std::int64_t> sizes) {
    const auto add = [&](const Type& type) {
        for (const Dim& d : type.shape) {
            const std::string given = d.symbol.substr(0, d.symbol.find('\''));
            if (d.is_constant() || sizes.contains(d.symbol)) continue;
            if (is_digit(given[0])) sizes[d.symbol] = std::stoll(given);
            else if (const auto it = sizes.find(given); it != sizes.end()) sizes[d.symbol] = it->second;
        }
    };
    for (const Function* fn : {&def.chunk, &def.decay, &def.merge})
        for (const Op& op : fn->ops) add(op.type);
    for (const auto& in : def.inputs) add(in.type);
    for (const auto& out : def.outputs) add(out.type);
    for (const auto& s : def.states) add(s.type);
    return sizes;
}

}  // namespace forge::frontend
