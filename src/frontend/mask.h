/// Masks of compositions: M(i, j), what the score of the query at place i and of the key at place j <= i of a sequence
/// is multiplied by, taken apart so that a recurrence can be written of it. Where two tokens are far from one another a
/// mask is a sum of terms, each a factor of i's place times one of j's times what decays from j to i: a state sums the
/// keys of each. Nearer than a number of tokens it may be anything: the last keys and values are kept.
#pragma once

#include <functional>

#include "frontend/trace.h"
#include "ir/definition.h"

namespace forge::frontend {

/// What a function of one's own reads, by name, where it is evaluated.
using Arguments = std::function<Tensor(const std::string& name)>;
/// The value v of a function, recorded again into the trace of its arguments; `like`: any tensor of that trace.
Tensor replayed(const ir::Function& fn, ir::ValueId v, const Arguments& arguments, const Tensor& like);

/// A factor of one place; the arguments i and j are both that place, and x_i and x_j both its token's x.
struct MaskFactor {
    std::string key;  ///< equal for equal factors
    std::function<Tensor(const Arguments& at, const Tensor& like)> value;
};

/// What a token multiplies all before it by: a factor, of which the logarithm is known as a function of its own place
/// and the one before.
struct MaskDecay {
    std::string key;
    std::function<Tensor(const Arguments& at, const Arguments& before, const Tensor& like)> logarithm;
};

struct MaskTerm {
    double number = 1;
    std::vector<MaskFactor> query, key;
    std::vector<MaskDecay> decays;

    /// The same of terms whose keys are summed in one state.
    [[nodiscard]] std::string state() const;
};

struct Mask {
    ir::Function whole, far;      ///< one result; `far` is what `whole` is of tokens at least `window` apart
    std::int64_t window = 0;      ///< 0: they are the same
    std::vector<MaskTerm> terms;  ///< the sum that `far` is
    bool terms_read_places = false, reads_places = false;  ///< more than how far apart two tokens are
};

/// CompileError where it is neither near nor a sum of such terms, with the operation that is not.
Mask decomposed(ir::Function mask, const std::vector<ir::InputDecl>& inputs);

/// x of x_i and x_j, where x is an input of tokens; else the name.
std::string without_place(const std::string& name, const std::vector<ir::InputDecl>& inputs);

}  // namespace forge::frontend
