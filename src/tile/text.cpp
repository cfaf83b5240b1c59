#include "tile/text.h"

#include <algorithm>
#include <vector>

#include "tile/fragment_steps.h"
#include "tile/fragments.h"

namespace forge::tile {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using Space = ir::Layout::Space;

/// Instructions, fitted to what ptxas made of 205 kernels of single chunks for sm_90a: for nine in ten 0.8 to 1.35
/// times as many, for nine in ten of those with more than 100 KB 0.85 to 1.15 times.
struct Lengths {
    double kernel;         ///< where tasks and rows lie
    double matrix;         ///< a parameter that is a matrix
    double vector;         ///< … that is none
    double result;         ///< a result's way to where it goes
    double product;        ///< an instruction of the matrix units, with its descriptors
    double inverse;        ///< of a block
    double inverse_block;  ///< … and what another block on the diagonal, or a product of blocks, adds
    double sum;            ///< a register of a running sum
    double decays;         ///< products that decay channel by channel
    double decayed;        ///< a register of rows to which such a decay is applied
    double register_op;    ///< an operation on a register, where loops over fragments have each its own text
    double function;       ///< … of an elementary function
    double loop_op;        ///< an operation of a loop over matrices in memory
    double stored;         ///< a register that goes to memory
    double small;          ///< an operation on a vector or a number
};
constexpr Lengths kLengths = {.kernel = 480,
                              .matrix = 63,
                              .vector = 53,
                              .result = 72,
                              .product = 11.2,
                              .inverse = 940,
                              .inverse_block = 285,
                              .sum = 6.2,
                              .decays = 1130,
                              .decayed = 16.6,
                              .register_op = 0.7,
                              .function = 5.8,
                              .loop_op = 13.4,
                              .stored = 2.1,
                              .small = 37};
constexpr double kBytes = 16;  // of an instruction

/// Elementary functions that an operation evaluates, by their length; a sine has what takes whole turns off.
double functions_of(Opcode code) {
    switch (code) {
        case Opcode::Sin:
        case Opcode::Cos:
            return 3;
        case Opcode::Exp:
        case Opcode::Sigmoid:
        case Opcode::Silu:
        case Opcode::Tanh:
        case Opcode::Softplus:
        case Opcode::Div:
            return 1;
        default:
            return 0;
    }
}

class Text {
  public:
    explicit Text(const Function& fn) : fn_(fn) {}

    [[nodiscard]] double instructions() const {
        double sum = kLengths.kernel + kLengths.result * static_cast<double>(fn_.results.size());
        for (ValueId v = 0; v < fn_.size(); ++v) sum += of(v);
        return sum;
    }

  private:
    /// What the loop that makes a value evaluates.
    struct Loop {
        double operations = 1, functions = 0;
        bool reads_fragment = false;
    };

    [[nodiscard]] double rows(ValueId v) const { return static_cast<double>(size_of(fn_.op(v).type, 0)); }
    [[nodiscard]] double registers(ValueId v) const {
        constexpr double kThreads = 128;
        return fn_.op(v).type.rank() == 2 ? rows(v) * static_cast<double>(size_of(fn_.op(v).type, 1)) / kThreads : 0;
    }

    void follow(ValueId v, std::vector<bool>& seen, Loop& loop) const {
        for (const ValueId a : fn_.op(v).args) {
            const Op& op = fn_.op(a);
            loop.reads_fragment = loop.reads_fragment || (op.layout && is_fragment(op.layout->space));
            if (seen[static_cast<std::size_t>(a)]) continue;
            seen[static_cast<std::size_t>(a)] = true;
            const bool lies = !op.layout || op.layout->space != Space::Reg || op.code == Opcode::Param;
            if (lies || (!ir::is_view(op.code) && op.code != Opcode::Constant)) ++loop.operations;
            if (lies) continue;
            loop.functions += functions_of(op.code);
            follow(a, seen, loop);
        }
    }
    [[nodiscard]] Loop loop_of(ValueId v) const {
        std::vector<bool> seen(static_cast<std::size_t>(fn_.size()));
        Loop loop;
        follow(v, seen, loop);
        return loop;
    }
    [[nodiscard]] static double in_fragment(const Loop& loop, double registers) {
        return registers * (kLengths.register_op * loop.operations + kLengths.function * loop.functions);
    }
    [[nodiscard]] static double in_memory(const Loop& loop) {
        constexpr double kOfFunction = 4;  // operations
        return kLengths.loop_op * (loop.operations + kOfFunction * loop.functions);
    }

    [[nodiscard]] double of_product(ValueId v) const {
        constexpr double kRows = 64, kCols = 128, kDepth = 16;  // of an instruction
        const Op& op = fn_.op(v);
        const auto parts = [&](int n) { return fn_.op(op.args[static_cast<std::size_t>(n)]).layout->parts; };
        const double depth = static_cast<double>(size_of(fn_.op(op.args[0]).type, op.attrs.trans_a ? 0 : 1));
        const double cols = static_cast<double>(size_of(op.type, 1));
        return kLengths.product * rows(v) / kRows * std::max(1.0, cols / kCols) * depth / kDepth * parts(0) * parts(1);
    }
    [[nodiscard]] double of_inverse(ValueId v) const {
        const double blocks = rows(v) / static_cast<double>(kBlock);
        const double products = (blocks + 1) * blocks * (blocks - 1) / 6 + blocks * (blocks - 1) / 2;
        return kLengths.inverse + kLengths.inverse_block * ((blocks - 1) / 2 + products);
    }

    [[nodiscard]] double of(ValueId v) const {
        const Op& op = fn_.op(v);
        if (!op.layout) return 0;
        const Space space = op.layout->space;
        const bool matrix = op.type.rank() == 2;
        if (op.code == Opcode::Param) return matrix && tile::in_memory(space) ? kLengths.matrix : kLengths.vector;
        if (space == Space::Reg || ir::is_view(op.code) || op.code == Opcode::DecayRows) return 0;
        if (ir::is_matmul(op.code)) return of_product(v);
        if (op.code == Opcode::DecayMatmul) return kLengths.decays;
        if (op.code == Opcode::DecayApply) return kLengths.decayed * registers(v);
        if (op.code == Opcode::Inverse) return is_fragment(space) ? of_inverse(v) : kLengths.inverse_block;
        if (op.code == Opcode::Cumsum && is_fragment(space)) return kLengths.sum * registers(v);
        const Loop loop = loop_of(v);
        const bool by_fragment = loop.reads_fragment || is_fragment(space);
        if (is_reduction(op) && fn_.op(op.args[0]).type.rank() == 2)
            return by_fragment ? in_fragment(loop, registers(op.args[0])) : in_memory(loop);
        if (!matrix) return kLengths.small;
        if (by_fragment && op.code == Opcode::Copy && !is_fragment(space)) return kLengths.stored * registers(v);
        return by_fragment ? in_fragment(loop, registers(v)) : in_memory(loop);
    }

    const Function& fn_;
};

}  // namespace

std::int64_t text_bytes(const TileKernel& kernel) {
    return static_cast<std::int64_t>(kBytes * Text(kernel.fn).instructions());
}

}  // namespace forge::tile
