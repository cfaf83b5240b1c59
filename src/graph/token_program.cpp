#include "graph/token_program.h"

#include <fmt/format.h>

#include <algorithm>

#include "forge/error.h"
#include "graph/passes.h"
#include "graph/transition.h"
#include "ir/definition.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "support/reasons.h"

namespace forge::graph {
namespace {

using ir::Along;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::Role;
using ir::ValueId;

bool is_chunk(const Dim& d) { return d.symbol == ir::kChunkSymbol; }

/// What a value's axes are: at most one of tokens, at most one of channels, the others of size 1.
struct Axes {
    int tokens = 0;
    bool channels = false;
};

class TokenProgram {
  public:
    explicit TokenProgram(const Function& program) : program_(program) {}

    Function run() {
        find_channels();
        for (ValueId v = 0; v < program_.size(); ++v) {
            const Op& op = program_.op(v);
            if (!axes_of(op.type))
                refuse(Reason::OtherAxes, ir::described(program_, v), to_string(op.type.shape), channels_);
            if (!admits(op)) refuse(Reason::MixedChannels, ir::described(program_, v));
        }
        for (const ir::Result& r : program_.results)
            if (!admits(r)) refuse(Reason::OtherOutput, r.name, to_string(program_.op(r.value).type.shape));
        const Function token = dce(cse(canonicalize(dce(cse(canonicalize(collapsed()))))));
        for (const Transition& t : transitions(token))
            if (!t.composable() || t.is_matrix()) refuse(Reason::NotAffine, t.state);
        return token;
    }

  private:
    /// The channels are the axis of the states.
    void find_channels() {
        for (const ir::Result& r : program_.results) {
            if (r.role != Role::State) continue;
            const Shape& shape = program_.op(r.value).type.shape;
            if (shape.size() != 1 || is_chunk(shape[0]) || (!shape[0].is_constant() && shape[0].factor != 1))
                refuse(Reason::NotVectors, r.name, to_string(shape));
        }
        for (const ir::Result& r : program_.results) {
            if (r.role != Role::State) continue;
            const Shape& shape = program_.op(r.value).type.shape;
            if (shape[0].is_constant()) refuse(Reason::NumberedChannels, r.name, shape[0].factor);
            if (!channels_.empty() && channels_ != shape[0].symbol)
                refuse(Reason::SeveralChannels, channels_, shape[0].symbol);
            channels_ = shape[0].symbol;
        }
    }

    [[nodiscard]] bool is_channels(const Dim& d) const { return d.symbol == channels_ && d.factor == 1; }

    [[nodiscard]] std::optional<Axes> axes_of(const ir::Type& type) const {
        Axes axes;
        for (const Dim& d : type.shape) {
            if (d == Dim(1)) continue;
            if (is_chunk(d) && d.factor == 1 && axes.tokens == 0) axes.tokens = 1;
            else if (is_channels(d) && !axes.channels) axes.channels = true;
            else return std::nullopt;
        }
        return axes;
    }

    /// Whether the op does the same for every token and channel, but for scans and sums over the tokens.
    [[nodiscard]] bool admits(const Op& op) const {
        switch (ir::along(op.code)) {
            case Along::Leaf:
                return op.code != Opcode::Param ||
                       (op.attrs.role != Role::Spill &&
                        op.type.rank() <= (op.type.rank() > 0 && is_chunk(op.type.shape[0]) ? 2 : 1));
            case Along::Pointwise:
            case Along::Copied:
            case Along::Permuted:
            case Along::Inserted:
            case Along::Removed:
            case Along::Broadcast:
                return true;
            case Along::Reduced:
            case Along::Scanned:
                return !is_channels(operand_axis(op));
            case Along::RowScan:
                return op.code == Opcode::LinearScan && is_chunk(program_.op(op.args[0]).type.shape[0]);
            case Along::Selected:
                return !is_channels(operand_axis(op)) && (op.attrs.start == -1 || operand_axis(op) == Dim(1));
            case Along::Place:
            case Along::Triangle:
            case Along::Shifted:
            case Along::Normalised:
            case Along::Cut:
            case Along::Repeated:
            case Along::Joined:
            case Along::Contracted:
            case Along::Matrix:
            case Along::Pairs:
            case Along::Rows:
                return false;
        }
        return false;
    }

    [[nodiscard]] const Dim& operand_axis(const Op& op) const {
        return program_.op(op.args[0]).type.shape[static_cast<std::size_t>(op.attrs.dim)];
    }

    [[nodiscard]] bool admits(const ir::Result& r) const {
        const Shape& shape = program_.op(r.value).type.shape;
        return r.role == Role::State || (shape.size() == 2 && is_chunk(shape[0]) && is_channels(shape[1]));
    }

    [[nodiscard]] Shape collapsed(const ir::Type& type) const {
        return axes_of(type)->channels ? Shape{Dim(channels_)} : Shape{};
    }

    [[nodiscard]] Function collapsed() const {
        return ir::rebuild(program_, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            switch (ir::along(op.code)) {
                case Along::Copied:
                case Along::Permuted:
                case Along::Inserted:
                case Along::Removed:
                case Along::Broadcast:
                case Along::Selected:
                case Along::Reduced:
                    return args[0];
                case Along::Scanned:
                    return op.attrs.exclusive ? ir::emit_constant(out, 0, op.where) : args[0];
                case Along::RowScan:
                    return args[1];
                case Along::Leaf:
                case Along::Pointwise: {
                    const ValueId v = ir::keep(out, op, std::move(args));
                    out.op(v).type.shape = collapsed(op.type);
                    return v;
                }
                case Along::Place:
                case Along::Triangle:
                case Along::Shifted:
                case Along::Normalised:
                case Along::Cut:
                case Along::Repeated:
                case Along::Joined:
                case Along::Contracted:
                case Along::Matrix:
                case Along::Pairs:
                case Along::Rows:
                    break;  // not admitted
            }
            throw InternalError(fmt::format("token_program: no rule for {}", ir::info(op.code).name));
        });
    }

    const Function& program_;
    std::string channels_;
};

}  // namespace

Function token_program(const Function& program) { return TokenProgram(program).run(); }

}  // namespace forge::graph
