#include "tests/random/program.h"

#include <algorithm>

#include "forge/error.h"
#include "frontend/trace.h"
#include "ir/text.h"

namespace forge::fuzz {
namespace {

constexpr std::int64_t kSizes[] = {16, 64, 128, 3, 32, 60, 96, 1, 100, 48};
constexpr std::int64_t kSmallSizes[] = {4, 16, 3, 1, 8};

/// What becomes of rows that are read.
class Readout {
  public:
    Readout(Maker& m, const std::string& name, const std::optional<Dim>& axis) : name_(name), axis_(axis) {
        Decisions& d = m.d;
        //                                        as is  gated  normed  tanh  scaled  softmax  sum  amax
        const double joining = m.blocks ? 0.1 : 1;
        form_ = axis ? d.pick(name + ".form", {5, 2, joining, 1, 2, 0.7 * joining, 0.7 * joining, 0.5 * joining})
                     : d.pick(name + ".form", {5, 1, 0, 1, 1});
        if (form_ == 1) gate_ = m.token("v_gate_" + name, m.wide, 1, m.HV, axis ? Shape{*axis} : Shape{}, Kind::Raw);
        if (form_ == 4) gate_ = m.scalar("scale");
        twice_ = d.flip(name + ".twice", 0.05), apart_ = d.flip(name + ".apart", 0.5);
        if (form_ > 5) axis_.reset();
        if (form_ > 5 || !axis_) m.traits.insert("no value axis");
        if (twice_) m.traits.insert("several rows of outputs");
    }

    [[nodiscard]] Tensor eval(const Env& env, const Tensor& read) const {
        Tensor o = elementwise(env, read);
        if (!twice_) return o;
        const Tensor rows = env.is_step() ? row(o) : o;
        return apart_ ? interleave({rows, rows * 0.5}, 0) : repeat_interleave(rows, 2, 0);
    }
    [[nodiscard]] Shape shape(const Maker& m) const {
        Shape shape{(twice_ ? 2 : 1) * m.T, m.HV};
        if (axis_) shape.push_back(*axis_);
        return shape;
    }

  private:
    [[nodiscard]] Tensor elementwise(const Env& env, const Tensor& o) const {
        switch (form_) {
            case 1:
                return o * silu(wide(env[gate_]));
            case 2:
                return l2norm(o, 1e-3);
            case 3:
                return tanh(o);
            case 4:
                return o * env[gate_];
            case 5:
                return softmax(o, -1);
            case 6:
                return sum(o, -1);
            case 7:
                return amax(o, -1);
            default:
                return o;
        }
    }

    std::string name_, gate_;
    std::optional<Dim> axis_;
    int form_ = 0;
    bool twice_ = false, apart_ = false;  ///< two rows per token, alike or not
};

/// The parts of a program and how what they give to read becomes outputs.
class Assembly {
  public:
    explicit Assembly(Decisions& d) : m_(d) {
        choose_axes();
        choose_parts();
        choose_outputs();
    }

    ir::Definition define() {
        survey();
        // Inputs that no phase takes were declared in vain.
        std::erase_if(m_.declared, [&](const Declared& x) {
            return x.role != Declared::Role::State && x.name != first_input() &&
                   std::none_of(std::begin(used_), std::end(used_), [&](const auto& u) { return u.contains(x.name); });
        });
        LinearAttention a("random");
        for (const Declared& x : m_.declared) {
            if (x.role == Declared::Role::Token) a.input(x.name, x.dtype, x.shape, x.pad);
            if (x.role == Declared::Role::Head) a.head_input(x.name, x.dtype, x.shape);
            if (x.role == Declared::Role::Scalar) a.scalar(x.name);
            if (x.role == Declared::Role::State) a.state(x.name, x.dtype, x.shape);
        }
        for (const Output& o : outputs_) a.output(o.name, o.dtype, o.readout->shape(m_));
        const bool has_step = !m_.d.flip("no_step", 0.15);
        if (!has_step) m_.traits.insert("no step");
        for (const Phase phase : {Phase::Chunk, Phase::Decay, Phase::Merge, Phase::Step}) {
            if (phase == Phase::Step && !has_step) continue;
            std::set<std::string>& used = used_[static_cast<std::size_t>(phase)];
            if (used.empty()) used.insert(phase == Phase::Decay ? "token_mask" : first_input());
            const std::vector<std::string> names(used.begin(), used.end());
            add<1>(a, phase, names, [this, phase, names](const std::vector<Tensor>& tensors) {
                return body(Env(phase, names, tensors, used_[static_cast<std::size_t>(phase)], one_state()));
            });
        }
        return a.define();
    }

    [[nodiscard]] const Maker& maker() const { return m_; }

    std::int64_t size(const std::string& axis) {
        constexpr std::int64_t kOfBlocks[] = {64, 128, 192, 96, 60};  // the last two are padded
        if (m_.blocks) return kOfBlocks[m_.d.pick("size." + axis, {6, 2, 0.1, 0.7, 0.5})];
        return elementwise() ? kSmallSizes[m_.d.pick("size." + axis, {3, 3, 1, 1, 1})]
                             : kSizes[m_.d.pick("size." + axis, {2, 8, 2, 1, 1, 1.5, 1, 0.5, 1, 0.8})];
    }

  private:
    void choose_axes() {
        Decisions& d = m_.d;
        const bool grouped = d.flip("grouped", 0.6);
        if (!grouped) m_.HV = m_.H;
        else m_.traits.insert("grouped heads");
        m_.blocks = d.flip("blocks", 0.5) && !elementwise();
        m_.wide = d.flip("wide", m_.blocks ? 0.03 : 0.08) ? F32 : BF16;
        //                    K V  one symbol  numbers  a number for V
        const double joining = m_.blocks ? 0.2 : 1;
        switch (d.pick("axes", {8, 1.5 * joining, joining, joining})) {
            case 1:
                m_.K = m_.V = Dim("D");
                break;
            case 2:
                m_.K = Dim(size("K")), m_.V = Dim(size("V"));
                break;
            case 3:
                m_.V = Dim(size("V"));
                break;
            default:
                break;
        }
        if (m_.K.is_constant() || m_.V.is_constant()) m_.traits.insert("numbers as axes");
    }

    [[nodiscard]] bool elementwise() { return m_.d.flip("elementwise", 0.03); }

    void choose_parts() {
        constexpr int kMostParts = 3;
        using Make = std::unique_ptr<Part> (*)(Maker&, const std::string&);
        constexpr Make kMakers[] = {linear_part,  delta_part,      vector_part, number_part,
                                    maximum_part, stabilised_part, plain_part};
        constexpr double kPresent[] = {1, 0.4, 0.15};
        for (int i = 0; i < kMostParts; ++i) {
            const std::string name(1, static_cast<char>('a' + i));
            if (!m_.d.flip(name + ".there", kPresent[i]) && (i < kMostParts - 1 || !parts_.empty())) continue;
            if (elementwise() && i == 0) parts_.push_back(elementwise_part(m_, name));
            else
                parts_.push_back(
                    kMakers[m_.d.pick(name + ".kind", {5, 2.5, 2, 1, 0.7, 0.5, has_states() ? 0.6 : 0.0})](m_, name));
        }
    }

    void choose_outputs() {
        survey();
        const std::vector<std::optional<Dim>> axes = axes_read_;
        for (std::size_t i = 0; i < axes.size(); ++i) {
            const std::string name(1, static_cast<char>('o' + i));
            int into = 0;
            for (std::size_t other = 0; other < outputs_.size() && into == 0; ++other) {
                const bool same = axes[i] == outputs_[other].axis, number = !axes[i];
                if (!same && !number) continue;
                //                                  on its own  sum  product  quotient
                const int how = m_.d.pick(name + ".into", {2, same ? 1.0 : 0.0, 1.0, 0.7});
                if (how > 0) outputs_[other].terms.emplace_back(i, how), into = how;
            }
            if (into == 0) outputs_.push_back({name, axes[i], {{i, 0}}, std::nullopt, F32});
        }
        for (Output& o : outputs_) {
            o.readout.emplace(m_, o.name, o.axis);
            o.dtype = m_.d.flip(o.name + ".wide", 0.25) ? F32 : m_.wide;
        }
        if (outputs_.size() > 1) m_.traits.insert("several outputs");
    }

    [[nodiscard]] std::string first_input() const {
        return std::find_if(m_.declared.begin(), m_.declared.end(),
                            [](const Declared& x) { return x.role == Declared::Role::Token; })
            ->name;
    }

    /// Traces every phase with everything at hand, to see what it takes and what there is to read.
    void survey() {
        std::vector<std::pair<std::string, ir::Type>> cached;
        for (const Phase phase : {Phase::Chunk, Phase::Decay, Phase::Merge, Phase::Step}) {
            const auto trace = std::make_shared<frontend::Trace>("survey");
            std::vector<std::string> names;
            std::vector<Tensor> tensors;
            const auto param = [&](const std::string& name, ir::Type type) {
                if (phase == Phase::Step && is_half(type.dtype)) type.dtype = F32;
                ir::Attrs attrs;
                attrs.name = name;
                names.push_back(name);
                tensors.push_back(trace->record(ir::Opcode::Param, {}, attrs, Location(), type));
            };
            for (const Declared& x : m_.declared) {
                const bool is_state = x.role == Declared::Role::State;
                if (is_state && phase == Phase::Chunk) continue;
                if (is_state) param("prev_" + x.name, {F32, x.shape});
                else param(x.name, type_in(phase, x));
                if (is_state && phase == Phase::Decay)
                    param(one_state() ? "chunk_state" : "chunk_" + x.name, {F32, x.shape});
            }
            param(ir::kTokenMaskName, {F32, phase == Phase::Step ? Shape{} : Shape{Dim(ir::kChunkSymbol)}});
            if (phase == Phase::Decay || phase == Phase::Merge)
                for (const auto& [name, type] : cached) param(name, type);
            std::set<std::string>& used = used_[static_cast<std::size_t>(phase)];
            used.clear();
            body(Env(phase, names, tensors, used, one_state()));
            if (!trace->diagnostics.empty()) throw CompileError(trace->diagnostics);
            for (const ir::Op& op : trace->fn.ops)
                if (op.code == ir::Opcode::CacheResult) cached.emplace_back(op.attrs.name, op.type);
        }
    }

    static ir::Type type_in(Phase phase, const Declared& x) {
        const ir::Role role = x.role == Declared::Role::Token  ? ir::Role::Input
                              : x.role == Declared::Role::Head ? ir::Role::Head
                                                               : ir::Role::Scalar;
        const ir::InputDecl decl{x.name, role, {x.dtype, x.shape}, x.pad, {}};
        return phase == Phase::Step ? ir::step_type(decl) : ir::phase_type(decl);
    }

    [[nodiscard]] bool has_states() const {
        return std::any_of(m_.declared.begin(), m_.declared.end(),
                           [](const Declared& x) { return x.role == Declared::Role::State; });
    }
    [[nodiscard]] bool one_state() const {
        return std::count_if(m_.declared.begin(), m_.declared.end(),
                             [](const Declared& x) { return x.role == Declared::Role::State; }) == 1;
    }

    template <class Body, std::size_t... I>
    static auto with_arity(Body body, std::index_sequence<I...>) {
        return
            [body](std::conditional_t<true, Tensor, decltype(I)>... tensors) -> Results { return body({tensors...}); };
    }

    /// The language takes functions of so many tensors: one is made for each number of names.
    template <std::size_t N, class Body>
    static void add(LinearAttention& a, Phase phase, const std::vector<std::string>& names, Body body) {
        if constexpr (N <= kMostNames) {
            if (names.size() > N) return add<N + 1>(a, phase, names, std::move(body));
            auto fn = with_arity(std::move(body), std::make_index_sequence<N>());
            if (phase == Phase::Chunk) a.chunk(names, fn);
            if (phase == Phase::Decay) a.decay(names, fn);
            if (phase == Phase::Merge) a.merge(names, fn);
            if (phase == Phase::Step) a.step(names, fn);
        }
    }

    Results body(const Env& env) {
        Results results = {};
        std::vector<Reading> readings;
        const auto take = [&](std::vector<Reading> more) {
            for (Reading& r : more) readings.push_back(std::move(r));
        };
        for (const auto& part : parts_) {
            if (env.phase() == Phase::Chunk) part->chunk(env, results.named);
            if (env.phase() == Phase::Decay) part->decay(env, results.named);
            if (env.phase() == Phase::Merge) take(part->merge(env));
            if (env.phase() == Phase::Step) take(part->step(env, results.named));
        }
        if (env.phase() == Phase::Merge || env.phase() == Phase::Step) add_outputs(env, readings, results);
        return results;
    }

    void add_outputs(const Env& env, const std::vector<Reading>& readings, Results& results) {
        axes_read_.clear();
        for (const Reading& r : readings) axes_read_.push_back(r.axis);
        for (const Output& o : outputs_) {
            if (!o.readout) continue;
            Tensor value;
            for (const auto& [index, how] : o.terms) {
                Tensor x = readings[index].value;
                if (how > 0 && o.axis && !readings[index].axis) x = column(x);
                if (how == 0) value = x;
                else if (how == 1) value = value + x;
                else if (how == 2) value = value * x;
                else value = value / (1.0 + abs(x));
            }
            results.named.emplace_back(o.name, o.readout->eval(env, value));
        }
    }

    struct Output {
        std::string name;
        std::optional<Dim> axis;
        std::vector<std::pair<std::size_t, int>> terms;
        std::optional<Readout> readout;
        DType dtype;
    };

    static constexpr std::size_t kMostNames = 40;
    Maker m_;
    std::vector<std::unique_ptr<Part>> parts_;
    std::vector<Output> outputs_;
    std::set<std::string> used_[4];
    std::vector<std::optional<Dim>> axes_read_;
};

/// The sizes of symbols, and whether tensors of rank 3 keep them small.
std::map<std::string, std::int64_t> choose_sizes(Assembly& assembly, const ir::Definition& def) {
    std::map<std::string, std::int64_t> sizes;
    for (const auto& [symbol, unused] : check::sizes_for(def, {})) sizes[symbol] = assembly.size(symbol);
    return sizes;
}

}  // namespace

Program make_program(Decisions& decisions) {
    Assembly assembly(decisions);
    Program program;
    program.def = assembly.define();
    program.sizes = choose_sizes(assembly, program.def);
    program.traits = assembly.maker().traits;
    for (const Declared& x : assembly.maker().declared) program.kinds[x.name] = x.kind;
    constexpr DType kTypes[] = {F32, BF16, F16};
    program.dtype = kTypes[decisions.pick("dtype", {assembly.maker().blocks ? 0.5 : 2.0, 5, 1})];
    return program;
}

}  // namespace forge::fuzz
