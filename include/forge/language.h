/// The language: a variant of linear attention is a `LinearAttention` with named inputs, states and three phases, each
/// a function of `Tensor`s over one chunk of C tokens of one head. Nothing is computed here: calls on tensors are
/// recorded, with the source line that made them, and errors are reported in those terms.
///
/// Operations have PyTorch's names and meaning (docs/ops.md); each takes the caller's location as a hidden last
/// argument.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "forge/error.h"
#include "forge/types.h"

namespace forge {

namespace ir {
struct Definition;
}
namespace frontend {
class Trace;
}

using Here = std::source_location;

/// A value of a phase being traced: an element type and a symbolic shape, no data.
class Tensor {
  public:
    Tensor() = default;
    Tensor(std::shared_ptr<frontend::Trace> trace, int id) : trace_(std::move(trace)), id_(id) {}

    [[nodiscard]] DType dtype() const;
    [[nodiscard]] Dim size(int dim) const;  ///< symbolic; negative axes count from the end
    [[nodiscard]] int rank() const;
    [[nodiscard]] Tensor to(DType dtype, Here here = Here::current()) const;
    [[nodiscard]] Tensor T(Here here = Here::current()) const;  ///< transpose of a matrix

    [[nodiscard]] const std::shared_ptr<frontend::Trace>& trace() const { return trace_; }
    [[nodiscard]] int id() const { return id_; }  ///< -1 after an error that was already reported

  private:
    std::shared_ptr<frontend::Trace> trace_;
    int id_ = -1;
};

/// A tensor or a number, with the place where it was written: what operators and binary functions take.
struct Operand {
    Tensor tensor;
    double number = 0;
    bool is_number = false;
    Here here;

    Operand(const Tensor& t, Here h = Here::current()) : tensor(t), here(h) {}  // NOLINT(google-explicit-constructor)
    Operand(double x, Here h = Here::current()) : number(x), is_number(true), here(h) {}  // NOLINT
};

// Elementwise operations and operators, from the op table.
#define FORGE_UNARY(Enum, name, formula, linear, cost, doc) Tensor name(const Tensor& x, Here here = Here::current());
#define FORGE_BINARY(Enum, name, formula, linear, cost, doc) Tensor name(const Operand& a, const Operand& b);
#define FORGE_COMPARE(Enum, name, formula, cost, doc) Tensor name(const Operand& a, const Operand& b);
#include "forge/ops.def"

Tensor operator+(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a, const Operand& b);
Tensor operator*(const Operand& a, const Operand& b);
Tensor operator/(const Operand& a, const Operand& b);
Tensor operator-(const Operand& x);
Tensor where(const Tensor& condition, const Operand& a, const Operand& b);
Tensor square(const Tensor& x, Here here = Here::current());

// Reductions and scans. Axes may be negative.
Tensor sum(const Tensor& x, int dim, Here here = Here::current());
Tensor amax(const Tensor& x, int dim, Here here = Here::current());
/// The mean over an axis that is not the tokens': of those, divide a sum by sum(token_mask, 0).
Tensor mean(const Tensor& x, int dim, Here here = Here::current());
Tensor cumsum(const Tensor& x, int dim, Here here = Here::current());
/// reverse: from the end; exclusive: without the element itself.
struct CumsumOptions {
    bool reverse = false, exclusive = false;
};
Tensor cumsum(const Tensor& x, int dim, CumsumOptions options, Here here = Here::current());
Tensor cumprod(const Tensor& x, int dim, Here here = Here::current());  ///< padding is 0 unless `pad` says otherwise
/// h[i] = decay[i] * h[i-1] + x[i] along axis 0 with h[-1] = 0; decay and x [C, …] of equal shape.
Tensor linear_scan(const Tensor& decay, const Tensor& x, Here here = Here::current());
/// x / sqrt(sum(x^2, -1) + eps).
Tensor l2norm(const Tensor& x, double eps = 1e-6, Here here = Here::current());
Tensor softmax(const Tensor& x, int dim, Here here = Here::current());

// Shape.
Tensor transpose(const Tensor& x, Here here = Here::current());  ///< of a matrix
Tensor permute(const Tensor& x, std::vector<std::int64_t> axes, Here here = Here::current());
Tensor unsqueeze(const Tensor& x, int dim, Here here = Here::current());
Tensor squeeze(const Tensor& x, int dim, Here here = Here::current());
Tensor select(const Tensor& x, int dim, std::int64_t index, Here here = Here::current());  ///< index -1: the last
Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t step,
             Here here = Here::current());  ///< x[start::step]
/// `length` elements from `start` on, every step-th; a negative start counts from the end. Not of tokens.
Tensor narrow(const Tensor& x, int dim, std::int64_t start, std::int64_t length, std::int64_t step = 1,
              Here here = Here::current());
/// The index-th of `count` equal parts of an axis: part(x, 1, 0, 2) of [C, 2*D] is [C, D].
Tensor part(const Tensor& x, int dim, std::int64_t index, std::int64_t count, Here here = Here::current());
/// One after the other along an axis that is not the tokens': [C, D] and [C, D] -> [C, 2*D].
Tensor concat(const std::vector<Tensor>& parts, int dim, Here here = Here::current());
/// Elements by turns: x[0], y[0], x[1], y[1], …. Along the tokens: several rows per token, [C, V] and [C, V] -> [2*C,
/// V].
Tensor interleave(const std::vector<Tensor>& parts, int dim, Here here = Here::current());
/// Along a new axis.
Tensor stack(const std::vector<Tensor>& parts, int dim, Here here = Here::current());
/// table[index], a number at every place of `index`; 0 where that is none of 0, 1, …, n - 1 of a table of n <= 256.
Tensor lookup(const Tensor& table, const Tensor& index, Here here = Here::current());
Tensor repeat_interleave(const Tensor& x, std::int64_t count, int dim, Here here = Here::current());
Tensor expand(const Tensor& x, const Shape& shape, Here here = Here::current());
/// The input one token earlier; of a first token the call before's last, a state last_<x>, or the pad. Only of inputs.
Tensor prev_token(const Tensor& x, Here here = Here::current());

// Triangles and products.
Tensor tril(const Tensor& x, std::int64_t diagonal = 0, Here here = Here::current());
Tensor triu(const Tensor& x, std::int64_t diagonal = 0, Here here = Here::current());
/// [M, N] @ [N, P]; a vector on either side is a row (left) or a column (right), as in PyTorch. Equal element types.
Tensor matmul(const Tensor& a, const Tensor& b, Here here = Here::current());
Tensor matmul_out_fp32(const Tensor& a, const Tensor& b, Here here = Here::current());
/// [N] and [P] -> [N, P].
Tensor outer(const Tensor& a, const Tensor& b, Here here = Here::current());
Tensor identity(const Tensor& like, const Dim& n, Here here = Here::current());  ///< [n, n] in like's type
Tensor arange(const Tensor& like, const Dim& n, Here here = Here::current());    ///< 0, 1, …, n - 1 in like's type
Tensor size(const Tensor& x, int dim, Here here = Here::current());              ///< of an axis, as a number
Tensor full(const Tensor& like, const Shape& shape, double value, Here here = Here::current());  ///< in like's type
/// Inverse of a unit lower-triangular f32 matrix; its form must be provable: identity plus tril(…, -1).
Tensor inverse(const Tensor& x, Here here = Here::current());

/// Makes x an argument of later phases (and of later uses in this one) under `name`; returns x.
Tensor cache_result(const Tensor& x, const std::string& name, Here here = Here::current());

/// What a phase returns: one tensor (of the only state or output), or named ones.
struct Results {
    std::vector<std::pair<std::string, Tensor>> named;
    Tensor single;

    Results(const Tensor& t) : single(t) {}  // NOLINT(google-explicit-constructor)
    Results(std::initializer_list<std::pair<std::string, Tensor>> list) : named(list) {}
};

/// A variant. Declarations may come in any order; everything is checked by `define()`.
///
/// Inputs: token inputs are {T, heads, …} (T may carry a factor: `2 * T` is two rows per token), per-head inputs
/// {heads, …}, scalars one number per call. Inside a phase the head axis is gone and T has become C. Heads may be fewer
/// than another input's if they divide them (grouped heads).
/// `token_mask` is always available, in every phase: f32 [C], 1 for tokens of the sequence and 0 for the rows past its
/// end that fill up the last chunk (in `step` the number 1). Rows past the end read as each input's `pad`; where no
/// `pad` makes a row change nothing (exp(0) is 1), multiply by the mask. cumsum(token_mask, 0) - 1 is a token's place
/// in its chunk, sum(token_mask, 0) how many tokens the chunk has. States: `prev_<name>` is the state before the chunk,
/// `chunk_<name>` the chunk's contribution (`chunk_state` when there is a single state); in `merge`, `chunk_<name>` is
/// the state before the chunk, as in the paper.
class LinearAttention {
  public:
    explicit LinearAttention(std::string name, Here here = Here::current());

    /// `pad`: what rows past a sequence's end read as. `range`: what checks draw random numbers from; calls are not
    /// held to it. Without one, checks read off the program which inputs are logarithms of decays, or decays, and which
    /// rows must have unit length; else a token's single number is drawn from (0, 1), and a row is of normal numbers.
    LinearAttention& input(const std::string& name, DType dtype, Shape shape, double pad = 0,
                           std::optional<Range> range = {}, Here here = Here::current());
    LinearAttention& input(const std::string& name, DType dtype, Shape shape, Range range, Here here = Here::current());
    LinearAttention& head_input(const std::string& name, DType dtype, Shape shape, std::optional<Range> range = {},
                                Here here = Here::current());
    LinearAttention& scalar(const std::string& name, std::optional<Range> range = {}, Here here = Here::current());
    LinearAttention& state(const std::string& name, DType dtype, Shape shape, Here here = Here::current());
    /// Default: one output "o", shaped as merge's result (of a step alone, all that it gives), in the element type of
    /// the first token input.
    LinearAttention& output(const std::string& name, DType dtype, Shape shape, Here here = Here::current());

    /// Fixes the tokens per chunk (16, 32, 64 or 128) of a definition whose results depend on it: one that looks a
    /// fixed number of tokens back within its chunk, say, or feeds the state before the chunk into what the chunk adds.
    /// Without it Forge chooses the size for speed, differently from call to call. Each call begins a chunk: a sequence
    /// in two calls, joined by the state, is the sequence in one if the first call has whole chunks.
    LinearAttention& fixed_chunk(std::int64_t tokens);

    /// Has a step alone run as it stands, token by token, with the states on chip: what is not affine in the states has
    /// no form over chunks. Gradients keep the states before every token.
    LinearAttention& sequential();

    /// The chunk's own contribution to each state. `args` names the inputs that `fn` takes, in order.
    template <class Fn>
    LinearAttention& chunk(std::vector<std::string> args, Fn fn, Here here = Here::current()) {
        return phase(Phase::Chunk, std::move(args), adapt(std::move(fn)), arity(&Fn::operator()), here);
    }
    /// The state after the chunk, from the state before it and the contribution.
    template <class Fn>
    LinearAttention& decay(std::vector<std::string> args, Fn fn, Here here = Here::current()) {
        return phase(Phase::Decay, std::move(args), adapt(std::move(fn)), arity(&Fn::operator()), here);
    }
    /// The outputs, from the inputs and the state before the chunk.
    template <class Fn>
    LinearAttention& merge(std::vector<std::string> args, Fn fn, Here here = Here::current()) {
        return phase(Phase::Merge, std::move(args), adapt(std::move(fn)), arity(&Fn::operator()), here);
    }
    /// The specification: one token of the recurrence. Inputs lose the token axis; returns the states after the token
    /// and the outputs, by name; what has several rows per token has them as its first axis. Alone it is a definition
    /// where it is affine in the states: compilation derives the other three from it (docs/internals.md says how), or
    /// says in words what it is not. Outputs that are not declared then are those of `step`, in the type of the first
    /// token input.
    template <class Fn>
    LinearAttention& step(std::vector<std::string> args, Fn fn, Here here = Here::current()) {
        return phase(Phase::Step, std::move(args), adapt(std::move(fn)), arity(&Fn::operator()), here);
    }
    /// The same of functions that take all arguments in one vector, in the order of their names.
    using PhaseFn = std::function<Results(const std::vector<Tensor>&)>;
    LinearAttention& chunk(std::vector<std::string> args, PhaseFn fn, Here here = Here::current()) {
        const std::size_t count = args.size();
        return phase(Phase::Chunk, std::move(args), std::move(fn), count, here);
    }
    LinearAttention& decay(std::vector<std::string> args, PhaseFn fn, Here here = Here::current()) {
        const std::size_t count = args.size();
        return phase(Phase::Decay, std::move(args), std::move(fn), count, here);
    }
    LinearAttention& merge(std::vector<std::string> args, PhaseFn fn, Here here = Here::current()) {
        const std::size_t count = args.size();
        return phase(Phase::Merge, std::move(args), std::move(fn), count, here);
    }
    LinearAttention& step(std::vector<std::string> args, PhaseFn fn, Here here = Here::current()) {
        const std::size_t count = args.size();
        return phase(Phase::Step, std::move(args), std::move(fn), count, here);
    }

    [[nodiscard]] const std::string& name() const;
    /// Traces and checks the phases; throws CompileError with every mistake of the first phase that has any.
    [[nodiscard]] ir::Definition define() const;

    enum class Phase : std::uint8_t { Chunk, Decay, Merge, Step };
    struct Declared;

  private:
    LinearAttention& phase(Phase which, std::vector<std::string> args, PhaseFn fn, std::size_t arity, Here here);

    template <class R, class C, class... A>
    static constexpr std::size_t arity(R (C::*)(A...) const) {
        return sizeof...(A);
    }

    template <class Fn, std::size_t... I>
    static Results apply(const Fn& fn, const std::vector<Tensor>& t, std::index_sequence<I...>) {
        return fn(t[I]...);
    }

    template <class Fn>
    static PhaseFn adapt(Fn fn) {
        return [fn = std::move(fn)](const std::vector<Tensor>& t) {
            return apply(fn, t, std::make_index_sequence<arity(&Fn::operator())>());
        };
    }

    std::shared_ptr<Declared> declared_;
};

}  // namespace forge
