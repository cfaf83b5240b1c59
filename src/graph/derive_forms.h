/// What a token does to a state, as algebra: S' = D ∘ S + Σ a uᵀ. D is a product of factors per state, per row and per
/// column, kept as logarithms; a ("key") reads no state; u is affine in reads bᵀ M of the state somewhere in the token.
/// Which axis of the state the keys have is the form's `key axis`; u has the other one, if there is another.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "forge/error.h"
#include "graph/derive_rows.h"

namespace forge::graph {

/// One factor of a state, positive.
struct Decay {
    enum class Axis : std::uint8_t { None, Key, Value } axis = Axis::None;
    TokenRow factor, log;
    friend bool operator==(const Decay& a, const Decay& b) { return a.axis == b.axis && a.log.v == b.log.v; }
};
using Scale = std::vector<Decay>;

/// A matrix decays by a factor that may be negative. It has a form over a chunk, elementwise, but one that no matrix
/// product helps with: users would rather know.
class NegativeFactor : public CompileError {
    using CompileError::CompileError;
};

struct StateForm;

/// coefficient * keyᵀ M; no coefficient: 1.
struct Read {
    TokenRow coefficient;
    TokenRow key;
    std::shared_ptr<const StateForm> of;
};

/// A vector along the value axis: a value that reads no state, and reads.
struct ReadForm {
    TokenRow known;  ///< kNoValue: 0
    std::vector<Read> reads;
};

/// a uᵀ. Vectors that read are told apart by where they are kept: what is written twice is solved for once.
struct Outer {
    TokenRow key;
    std::shared_ptr<const ReadForm> value;
    [[nodiscard]] bool is_known() const { return value->reads.empty(); }
};

/// A number times another matrix that is derived together with this one, before or after the token.
struct Coupling {
    std::string state;
    bool after = false;
    TokenRow coefficient;  ///< kNoValue: 1
};

struct StateForm {
    std::string state;  ///< whose value before the token is decayed; empty: none
    Scale scale;
    std::vector<Outer> outers;
    std::vector<Coupling> couplings = {};
    Location where = {};
};

/// Logarithm of a factor that is not negative; nullopt if that cannot be seen.
std::optional<TokenRow> logarithm(ChunkWriter& out, TokenRow factor);
/// a * b of vectors and numbers (with or without tokens); either may be kNoValue, which is 1.
TokenRow times(ChunkWriter& out, TokenRow a, TokenRow b);
TokenRow plus(ChunkWriter& out, TokenRow a, TokenRow b, bool minus = false);  ///< either may be kNoValue: 0

/// What forms read of the rest of `step`.
class KnownValues {
  public:
    KnownValues() = default;
    KnownValues(const KnownValues&) = delete;
    KnownValues& operator=(const KnownValues&) = delete;
    virtual ~KnownValues() = default;
    [[nodiscard]] virtual bool is_known(ir::ValueId v) const = 0;
    virtual TokenRow known(ir::ValueId v) = 0;
};

class StateForms {
  public:
    /// Of the state `name` of the given shape; `key_axis`: 0 or 1. `others`: the values after the token of those that
    /// are derived together with it.
    StateForms(const ir::Function& step, ChunkWriter& out, KnownValues& known, std::string name, const Shape& shape,
               int key_axis, std::map<ir::ValueId, std::string> others = {});

    /// CompileError with the operation that is none of these.
    std::shared_ptr<const StateForm> state(ir::ValueId v);
    ReadForm read(ir::ValueId v);
    /// Whether v, which is not known, has the state's axes (else it is a vector along the value axis).
    [[nodiscard]] bool is_state(ir::ValueId v) const;
    /// Whether the operation contracts the state's key axis with something known: such a read is a vector for the rest.
    [[nodiscard]] bool is_read(ir::ValueId v) const;
    /// Whether it contracts a matrix's other axis, that of values: such a read is no part of forms.
    [[nodiscard]] bool is_read_across(ir::ValueId v) const;
    Read across(ir::ValueId v);

  private:
    StateForm made(ir::ValueId v);
    StateForm scaled(StateForm form, ir::ValueId factor, const ir::Op& op, bool inverse);
    StateForm summed(StateForm a, const StateForm& b, bool minus, const ir::Op& op);
    StateForm of_known(ir::ValueId v);
    StateForm transformed(ir::ValueId matrix, const std::shared_ptr<const StateForm>& form, const ir::Op& op);
    StateForm transformed_anew(ir::ValueId matrix, const std::shared_ptr<const StateForm>& form, const ir::Op& op);
    StateForm outer_of(ir::ValueId key, ir::ValueId vector, const ir::Op& op);
    Outer outer(TokenRow key, ReadForm value);
    ReadForm times_known(ReadForm form, TokenRow factor, const ir::Op& op);
    Read read_of(TokenRow key, std::shared_ptr<const StateForm> of);
    Decay decay(ir::ValueId factor, const ir::Op& op, bool inverse);
    void append(std::vector<Outer>& outers, const Outer& outer, bool minus);
    void check_terms(std::size_t terms, const ir::Op& op) const;
    [[nodiscard]] std::vector<int> axes_in(ir::ValueId v, const Shape& of) const;
    /// (axis 0, axis 1) of a known matrix that is a sum of outer products.
    std::vector<std::pair<TokenRow, TokenRow>> outers_of(ir::ValueId v, const ir::Op& op);
    /// The operands (state, key) of a read along an axis of the state.
    [[nodiscard]] std::optional<std::pair<ir::ValueId, ir::ValueId>> read_operands(ir::ValueId v, int axis) const;
    [[noreturn]] void refuse(const ir::Op& op, const std::string& why) const;
    [[noreturn]] void refuse_sign(const ir::Op& op) const;
    [[nodiscard]] const Shape& shape(ir::ValueId v) const { return step_.op(v).type.shape; }

    const ir::Function& step_;
    ChunkWriter& out_;
    KnownValues& known_;
    std::string name_;
    std::size_t rank_;
    int key_axis_;
    std::map<ir::ValueId, std::string> others_;
    std::map<ir::ValueId, std::shared_ptr<const StateForm>> forms_;
    std::map<std::pair<ir::ValueId, std::shared_ptr<const StateForm>>, StateForm> transformed_;
    std::set<const ReadForm*> solved_;  ///< read again after they were written: no longer to be added to
};

}  // namespace forge::graph
