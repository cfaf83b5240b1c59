/// Forms of states over a chunk. With G the running sum of a state's logarithms of decays and M₀ the state before the
/// chunk, what token i reads of S with key b after its decay is
///
///     exp(G_i) bᵀ M₀ + Σ_{j <= i} exp(G_i - G_j) (b·a_j) u_j
///
/// (before its decay: G_i - g_i for G_i, and j < i); with the other axis, of values, c it reads
/// exp(G_i) M₀ c + Σ exp(G_i - G_j) (c·u_j) a_j. Vectors u that read solve (I + A) u = y - W M₀, where A has those
/// scores below the diagonal. Exponents are written as differences; stabilize makes them safe.
#pragma once

#include "graph/derive_forms.h"

namespace forge::graph {

inline constexpr ir::ValueId kNone = ir::kNoValue;  ///< a value that is not there: 0 of sums, 1 of products

/// A state over a chunk: what it is after it, and what of that the chunk alone contributes (kNoValue: nothing, or
/// nothing that is free of states).
struct ChunkResult {
    ir::ValueId next = ir::kNoValue, contribution = ir::kNoValue;
};

/// A state whose updates are outer products.
class MatrixChunk {
  public:
    MatrixChunk(ChunkWriter& out, const ir::StateDecl& state, int key_axis, std::shared_ptr<const StateForm> after);

    ChunkResult result();
    /// What every token reads with its key of a form of the state: [C, value axis].
    TokenRow read(TokenRow key, const StateForm& form);
    /// What every token reads of it along the axis of values: [C, key axis].
    TokenRow read_across(TokenRow values, const StateForm& form);

  private:
    /// A write of every token: a yᵀ, or a times row `unknown` of what is solved for.
    struct Write {
        Outer outer;
        ir::ValueId key = ir::kNoValue;    ///< [C, K]
        ir::ValueId value = ir::kNoValue;  ///< [C, V], of known ones
        int unknown = -1;
    };
    /// Sums of logarithms from the chunk's beginning to a read: kNoValue where nothing decays.
    struct Exponents {
        ir::ValueId number = ir::kNoValue, key = ir::kNoValue, value = ir::kNoValue;
    };

    void collect(const StateForm& form);
    void solve();
    [[nodiscard]] bool in_rows() const;  ///< whether several unknowns per token may be rows of one matrix
    ir::ValueId system();
    ir::ValueId system_of_rows();
    ir::ValueId negative(TokenRow coefficient);  ///< [C], or a number
    ir::ValueId times_rows(ir::ValueId matrix, ir::ValueId rows);
    ir::ValueId gate(Decay::Axis axis);
    ir::ValueId from_start(const StateForm& form, Decay::Axis axis, ir::ValueId total);
    Exponents exponents(const StateForm& form);
    ir::ValueId scores(ir::ValueId key, const Exponents& at, ir::ValueId write_key, std::int64_t rows,
                       bool strict = false);
    ir::ValueId between(const Exponents& at);  ///< [C, C]: decays by numbers
    [[nodiscard]] bool are_ones(ir::ValueId values) const;
    ir::ValueId applied(ir::ValueId scores, ir::ValueId values);
    ir::ValueId decayed_key(ir::ValueId key, const Exponents& at, bool number);
    ir::ValueId known_rows(TokenRow x);                      ///< [C, V] of a vector along the value axis
    ir::ValueId dot(ir::ValueId a, ir::ValueId b);           ///< [C, 1]
    ir::ValueId value_of(const Outer& outer);                ///< [C, V] of an update
    ir::ValueId to_end(const Write& write);                  ///< its key, decayed to the end of the chunk
    [[nodiscard]] bool is_all(const StateForm& form) const;  ///< the state after the token
    ir::ValueId sum_of_reads(const StateForm& form, ir::ValueId key, bool known_only, bool strict);

    ChunkWriter& out_;
    const ir::StateDecl& state_;
    int key_axis_;
    bool vector_;  ///< no value axis: its size is 1 here
    std::shared_ptr<const StateForm> after_;
    ir::ValueId before_;  ///< [K, V]
    ir::ValueId g_number_, g_key_, g_value_;
    std::vector<Write> writes_;
    std::vector<std::shared_ptr<const ReadForm>> unknowns_;
    ir::ValueId u_ = ir::kNoValue, w_ = ir::kNoValue, updates_ = ir::kNoValue;  ///< rows by turns: [r C, …]
};

/// A state of which every token's value is known.
class TokenStates {
  public:
    TokenStates() = default;
    TokenStates(const TokenStates&) = delete;
    TokenStates& operator=(const TokenStates&) = delete;
    virtual ~TokenStates() = default;
    virtual ChunkResult result() = 0;
    virtual TokenRow before() = 0;  ///< every token's state before it, and after it
    virtual TokenRow after() = 0;
};

/// A number whose logarithms of weights are compared: m' = max(f + m, x).
class MaximumChunk final : public TokenStates {
  public:
    MaximumChunk(const ir::Function& step, ChunkWriter& out, KnownValues& known, const ir::StateDecl& state,
                 ir::ValueId after);
    ChunkResult result() override;
    TokenRow before() override { return values(true); }
    TokenRow after() override { return values(false); }

  private:
    struct Shifted {
        TokenRow shift, floor;
    };
    Shifted shifted(ir::ValueId v);
    TokenRow both(ir::Opcode code, TokenRow a, TokenRow b, const ir::Op& op);
    ir::ValueId within(bool exclusive);
    TokenRow values(bool exclusive);

    const ir::Function& step_;
    ChunkWriter& out_;
    KnownValues& known_;
    const ir::StateDecl& state_;
    ir::ValueId before_, shift_ = ir::kNoValue, floor_ = ir::kNoValue;
};

/// A state that is multiplied and added to elementwise: h' = d ∘ h + x.
class ElementwiseChunk final : public TokenStates {
  public:
    ElementwiseChunk(const ir::Function& step, ChunkWriter& out, KnownValues& known, const ir::StateDecl& state,
                     ir::ValueId after);

    ChunkResult result() override;
    TokenRow before() override;
    TokenRow after() override;

  private:
    struct Affine {
        TokenRow factor, addend;  ///< kNoValue: 0
    };
    Affine affine(ir::ValueId v);
    Affine affine_anew(ir::ValueId v);
    TokenRow apply(ir::Opcode code, TokenRow a, ir::ValueId a_like, TokenRow b, ir::ValueId b_like, const ir::Op& op);
    TokenRow aligned(TokenRow x, const Shape& shape, const Shape& result);
    ir::ValueId one_later(ir::ValueId rows);
    ir::ValueId within(bool exclusive);
    ir::ValueId decay_from_start(bool exclusive);
    [[nodiscard]] bool decays() const { return d_ != ir::kNoValue; }

    const ir::Function& step_;
    ChunkWriter& out_;
    KnownValues& known_;
    const ir::StateDecl& state_;
    Shape core_;  ///< of the state, without axes of size 1
    ir::Known<Affine> affine_;
    ir::ValueId before_, d_ = ir::kNoValue, log_ = ir::kNoValue, x_ = ir::kNoValue;
};

/// A state's core with its axes of size 1 put back.
ir::ValueId as_declared(ChunkWriter& out, ir::ValueId v, const Shape& shape, std::int64_t first = 0);

}  // namespace forge::graph
