/// The parts of which random programs are put together. A part declares its inputs and states as it is made, and then
/// writes its share of every phase. What is elementwise in the tokens is written once for a chunk ([C, …]) and for one
/// token ([…], in `step`): axes are counted from the end.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "forge/language.h"
#include "tests/random/decisions.h"

namespace forge::fuzz {

/// What an input or an initial state holds.
enum class Kind : std::uint8_t {
    Normal,    ///< normal
    Unit,      ///< rows of length 1
    Fraction,  ///< sigmoid(normal), in (0, 1)
    LogDecay,  ///< at most 0, by the problem's convention of gates
    Raw,       ///< normal: what softplus or sigmoid makes a gate of
    Weight,    ///< half a normal
    Positive,  ///< |normal| / 2
};

struct Declared {
    enum class Role : std::uint8_t { Token, Head, Scalar, State } role = Role::Token;
    std::string name;
    DType dtype = F32;
    Shape shape;  ///< as in the language; states without heads
    double pad = 0;
    Kind kind = Kind::Normal;
};

/// The decisions behind a program, and what its parts have declared so far.
class Maker {
  public:
    explicit Maker(Decisions& decisions);

    /// A choice that joins values of different columns, which keeps a program from matrix units.
    bool flip_joining(const std::string& name, double probability) {
        return d.flip(name, blocks ? 0.2 * probability : probability);
    }

    Decisions& d;
    Dim T, H, HV, K, V;  ///< K and V may be the same symbol, or numbers
    DType wide = BF16;   ///< of matrices: the 16-bit type, or F32
    std::vector<Declared> declared;
    std::set<std::string> traits;  ///< what is special, for statistics and for faults that are known
    bool blocks = false;  ///< sizes of whole blocks of 64, and seldom anything that joins values of different columns

    /// Declares a token input [n T, heads, rest…] unless it is there already; gives its name.
    std::string token(const std::string& name, DType dtype, int rows, const Dim& heads, Shape rest, Kind kind,
                      double pad = 0);
    std::string head(const std::string& name, Shape rest, Kind kind);
    std::string scalar(const std::string& name);
    std::string state(const std::string& name, Shape shape, Kind kind = Kind::Weight);
};

enum class Phase : std::uint8_t { Chunk, Decay, Merge, Step };

/// One phase being traced.
class Env {
  public:
    Env(Phase phase, const std::vector<std::string>& names, const std::vector<Tensor>& tensors,
        std::set<std::string>& used, bool one_state);

    [[nodiscard]] Phase phase() const { return phase_; }
    [[nodiscard]] bool is_step() const { return phase_ == Phase::Step; }
    /// An input, by its name; noted as used.
    [[nodiscard]] Tensor operator[](const std::string& name) const;
    [[nodiscard]] Tensor prev(const std::string& state) const { return (*this)["prev_" + state]; }
    [[nodiscard]] Tensor contribution(const std::string& state) const;
    [[nodiscard]] Tensor mask() const { return (*this)["token_mask"]; }
    /// A value that the chunk phase makes and later ones read: cached under this name, or computed again.
    Tensor shared(const std::string& name, bool cached, const std::function<Tensor()>& make) const;

  private:
    Phase phase_;
    std::map<std::string, Tensor> tensors_;
    std::set<std::string>* used_;
    bool one_state_;
};

/// What a part gives to read, per token: rows [C, axis], or numbers [C].
struct Reading {
    Tensor value;
    std::optional<Dim> axis;
};

class Part {
  public:
    virtual ~Part() = default;
    using Named = std::vector<std::pair<std::string, Tensor>>;
    virtual void chunk(const Env& env, Named& contributions) const = 0;
    virtual void decay(const Env& env, Named& states) const = 0;
    virtual std::vector<Reading> merge(const Env& env) const = 0;
    /// The states after the token, and what `merge` gives.
    virtual std::vector<Reading> step(const Env& env, Named& states) const = 0;
};

// Small things that parts share.
Tensor column(const Tensor& x);                          ///< [C] beside [C, D]
Tensor row(const Tensor& x);                             ///< [C] as [1, C]
Tensor wide(const Tensor& x);                            ///< in F32
Tensor rows_of(const Env& env, const Tensor& x, int n);  ///< per token [C, …] -> per row [nC, …]; in `step` as it is
Tensor nth_row(const Env& env, const Tensor& x, int j, int n);  ///< [nC, …] -> [C, …]
Tensor running_sum(const Tensor& x, bool reverse, bool exclusive);
/// a @ b with operands in 16 bits and the result in F32, or all in F32.
Tensor product(const Tensor& a, const Tensor& b, bool half);

/// A decay in log space, in one of the forms that people write: [C], or [C, axis].
class Gate {
  public:
    Gate() = default;  ///< none
    Gate(Maker& m, const std::string& name, std::optional<Dim> axis);
    [[nodiscard]] bool any() const { return form_ >= 0; }
    [[nodiscard]] bool per_channel() const { return axis_.has_value(); }
    [[nodiscard]] Tensor log(const Env& env) const;
    /// exp of the sum from after each token to the chunk's end.
    [[nodiscard]] Tensor to_end(const Env& env) const;

  private:
    int form_ = -1, end_form_ = 0;
    bool compared_ = false;
    std::string name_, input_, rate_, bias_;
    std::optional<Dim> axis_;
};

/// Rows made of an input, elementwise or along the channels: a key, query or value.
class Feature {
  public:
    enum class Use : std::uint8_t { Any, Key, Positive, Unit };
    Feature() = default;
    /// `neutral`: rows past the end must be 0.
    Feature(Maker& m, const std::string& name, int rows, const Dim& heads, const Dim& axis, Use use, bool neutral);
    [[nodiscard]] Tensor eval(const Env& env) const;
    [[nodiscard]] int rows() const { return rows_; }

  private:
    std::string name_, input_, weight_;
    int rows_ = 1, form_ = 0;
    bool shifted_ = false, masked_ = false, turned_ = false;
};

std::unique_ptr<Part> linear_part(Maker& m, const std::string& name);
std::unique_ptr<Part> delta_part(Maker& m, const std::string& name);
std::unique_ptr<Part> elementwise_part(Maker& m, const std::string& name);
std::unique_ptr<Part> vector_part(Maker& m, const std::string& name);
std::unique_ptr<Part> number_part(Maker& m, const std::string& name);
std::unique_ptr<Part> plain_part(Maker& m, const std::string& name);
std::unique_ptr<Part> maximum_part(Maker& m, const std::string& name);
std::unique_ptr<Part> stabilised_part(Maker& m, const std::string& name);

}  // namespace forge::fuzz
