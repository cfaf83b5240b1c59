/// A problem is the shape of a call and a seed; `Buffers` owns every tensor that a definition needs for it, filled with
/// reproducible random inputs, and gives the `Call` and the float64 arguments of each head. Nothing is computed here.
///
/// What the random inputs are goes by their declared ranges and by what the program does with them
/// (graph::input_values), never by their names: normal numbers, bent into the range; rows of unit length where rows are
/// multiplied; log sigmoid(normal), or `Problem::gate`, for logarithms of decays. Initial states are half a normal.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "forge/runtime.h"
#include "graph/input_values.h"
#include "interp/recurrence.h"
#include "ir/definition.h"

namespace forge::check {

struct Problem {
    std::int64_t B = 1, T = 100;
    std::int64_t H = 2, HV = 0;                      ///< heads of axes named "H", and of any other name (0: H)
    std::map<std::string, std::int64_t> sizes = {};  ///< K, V, …; a symbol that is missing has V's size
    DType dtype = DType::F32;                        ///< replaces the definition's 16-bit type
    DType state_dtype = DType::F32;                  ///< of states in memory, which decoding can have in 16 bits
    std::uint64_t seed = 1;
    std::vector<std::int64_t> lengths = {};  ///< packed sequences if not empty; B and T then do not count
    bool int64_offsets = false;              ///< the type of cu_seqlens
    bool initial_state = false;
    bool strided = false;          ///< head-major tensors with gaps, instead of dense ones
    std::int64_t cut = 0;          ///< if not 0: every sequence in two calls, the first of so many tokens; not packed
    bool correlated_keys = false;  ///< cosines of 0.9 between keys, and what is in [0, 1] near 1
    double gate = std::numeric_limits<double>::quiet_NaN();  ///< every gate; NaN: random ones

    [[nodiscard]] std::int64_t sequences() const;
    [[nodiscard]] std::int64_t tokens() const;  ///< of all sequences
};

/// The tensors of an entry point's calls, as `Buffers` can have them. RuntimeError for one whose calls bring what
/// another program leaves: backward from states (check/kept_states.h).
ir::Definition tensors_of(const std::string& entry, const ir::Definition& declared);

/// What is drawn for each input, by name.
std::map<std::string, graph::InputValues> values_of(const ir::Definition& def);
/// Whether `Problem::gate` sets any input; `per_token`: any token input.
bool has_gates(const ir::Definition& def, bool per_token = false);
/// Whether rows of an input are multiplied with each other, so that it matters whether they are alike.
bool has_keys(const ir::Definition& def);
/// Whether the definition has two head symbols, and so admits fewer heads for some inputs than for others.
bool has_grouped_heads(const ir::Definition& def);

/// The sizes of all symbols but T and the heads: what `CompileOptions::sizes` takes.
std::map<std::string, std::int64_t> sizes_for(const ir::Definition& def, const Problem& problem);
/// What the problem's gate and seed make of the definition's `index`-th input, before rounding; row-major in `shape`.
std::vector<double> random_values(const graph::InputValues& values, std::size_t index,
                                  const std::vector<std::int64_t>& shape, const Problem& problem);

/// A tensor with its storage.
struct OwnedTensor {
    DType dtype = DType::F32;
    std::vector<std::int64_t> shape, strides;  ///< strides in elements
    std::vector<std::byte> storage;
    bool dense = true;

    OwnedTensor() = default;
    OwnedTensor(DType type, std::vector<std::int64_t> sizes, std::int64_t head_axis, bool strided);
    [[nodiscard]] TensorView view() const;
    /// The element offset of row-major index `flat`.
    [[nodiscard]] std::int64_t offset(std::int64_t flat) const;
    [[nodiscard]] double at(std::int64_t flat) const;
    void set(std::int64_t flat, double value);
    [[nodiscard]] std::int64_t count() const;
};

/// Every argument of one call. `declared` is the definition as written, before an option replaced its 16-bit type.
class Buffers {
  public:
    Buffers(const ir::Definition& declared, const Problem& problem);

    /// The tokens [first, first + count) of every sequence as a problem of their own. Of one that is not packed.
    [[nodiscard]] Buffers part(std::int64_t first, std::int64_t count) const;
    /// Takes the outputs of such a part into its place, and its final states.
    void take(const Buffers& part, std::int64_t first);

    [[nodiscard]] Call call() const;  ///< with final states; valid as long as the buffers are
    [[nodiscard]] std::int64_t heads() const { return heads_; }
    [[nodiscard]] const Problem& problem() const { return problem_; }
    [[nodiscard]] const ir::Definition& definition() const { return def_; }
    [[nodiscard]] std::size_t bytes() const;        ///< of inputs and outputs
    [[nodiscard]] std::size_t state_bytes() const;  ///< of final states; initial ones are as large

    /// One head's arguments and results, as the rounded numbers that the call sees.
    [[nodiscard]] interp::Sequence sequence(std::int64_t index, std::int64_t head) const;
    [[nodiscard]] interp::Value output(const std::string& name, std::int64_t index, std::int64_t head) const;
    [[nodiscard]] interp::Value final_state(const std::string& name, std::int64_t index, std::int64_t head) const;

    std::map<std::string, OwnedTensor> inputs, outputs, initial_states, final_states;
    std::map<std::string, double> scalars;

  private:
    void refuse_extremes() const;
    [[nodiscard]] std::string sizes_text() const;
    [[nodiscard]] std::int64_t dim(const Dim& d) const;
    [[nodiscard]] std::vector<std::int64_t> token_shape(const Shape& shape) const;
    [[nodiscard]] interp::Value rows(const OwnedTensor& x, std::int64_t factor, std::int64_t index,
                                     std::int64_t head) const;
    [[nodiscard]] interp::Value state_of(const OwnedTensor& x, std::int64_t index, std::int64_t head) const;
    [[nodiscard]] interp::Value slab(const OwnedTensor& x, std::int64_t index) const;
    void add_inputs();
    void add_outputs_and_states();

    ir::Definition def_;
    Problem problem_;
    std::map<std::string, graph::InputValues> values_;
    std::map<std::string, std::int64_t> sizes_;
    std::int64_t heads_ = 1;             ///< the largest number of heads of any tensor
    std::vector<std::int64_t> offsets_;  ///< first token of each sequence, and the end
    OwnedTensor cu_seqlens_;
};

}  // namespace forge::check
