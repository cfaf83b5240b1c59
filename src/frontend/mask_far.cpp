#include "frontend/mask_far.h"

#include <algorithm>
#include <cmath>

#include "frontend/mask_values.h"
#include "ir/rebuild.h"

namespace forge::frontend {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

/// What a comparison of s d + c with 0 says of all d from the returned number on.
std::pair<bool, std::int64_t> far_truth(Opcode code, double s, double c) {
    const double border = -c / s;
    const bool rising = s > 0;
    const bool strict = (code == Opcode::Lt || code == Opcode::Ge) == rising &&
                        (code == Opcode::Lt || code == Opcode::Ge || code == Opcode::Gt || code == Opcode::Le);
    const double from = strict ? std::ceil(border) : std::floor(border) + 1;
    const bool truth = code == Opcode::Ne ||
                       (rising ? code == Opcode::Gt || code == Opcode::Ge : code == Opcode::Lt || code == Opcode::Le);
    return {truth, static_cast<std::int64_t>(std::clamp(from, 0.0, 1e9))};
}

/// A mask's function as it is of tokens far from one another: what compares their distance with a number is decided.
class Far {
  public:
    Far(const Function& fn, const std::vector<ir::InputDecl>& inputs, bool blocks)
        : fn_(fn), values_(fn, inputs), blocks_(blocks) {}

    FarMask run() {
        ValueId at = 0;
        Function fn = ir::rebuild(fn_, [&](Function& out, const Op& op, std::vector<ValueId> args) {
            const ValueId v = at++;
            decided_.push_back(decided(v));
            return made(out, op, std::move(args));
        });
        return {std::move(fn), window_};
    }

  private:
    std::optional<bool> decided(ValueId v) {
        const Op& op = fn_.op(v);
        if (!is_comparison(op.code)) return std::nullopt;
        const ValueId a = op.args[0], b = op.args[1];
        const auto so = [&](bool truth, std::int64_t from) {
            window_ = std::max(window_, from);
            return truth;
        };
        if (const auto d = values_.distance(a, b)) {
            const auto [truth, from] = far_truth(op.code, d->first, d->second);
            return so(truth, from);
        }
        const std::int64_t block = values_.same_of_both(a, b) && blocks_ ? values_.block(a) : 0;
        if (block == 0) return std::nullopt;
        const bool query_first = values_.sides(a) == kOfQuery;
        const bool later = op.code == Opcode::Gt || op.code == Opcode::Ge;
        const bool earlier = op.code == Opcode::Lt || op.code == Opcode::Le;
        return so(op.code == Opcode::Ne || (query_first ? later : earlier), block);
    }

    ValueId made(Function& out, const Op& op, std::vector<ValueId> args) {
        const auto truth = [&](std::size_t i) {
            return decided_[static_cast<std::size_t>(fn_.op(static_cast<ValueId>(decided_.size() - 1)).args[i])];
        };
        const auto number = [&](double x) {
            Op constant{Opcode::Constant, {DType::F32, {}}, {}, {}, "", op.where, std::nullopt};
            constant.attrs.value = x;
            return out.add(constant);
        };
        if (decided_.back()) return number(*decided_.back() ? 1 : 0);
        if (op.code == Opcode::Where && truth(0)) return args[*truth(0) ? 1 : 2];
        if (op.code == Opcode::To && truth(0)) return args[0];
        if (op.code == Opcode::Minimum || op.code == Opcode::Maximum) {
            const Op& own = fn_.op(static_cast<ValueId>(decided_.size() - 1));
            if (const auto d = values_.distance(own.args[0], own.args[1])) {
                const auto [less, from] = far_truth(Opcode::Lt, d->first, d->second);
                window_ = std::max(window_, from);
                return args[less == (op.code == Opcode::Minimum) ? 0 : 1];
            }
        }
        return ir::keep(out, op, std::move(args));
    }

    const Function& fn_;
    MaskValues values_;
    bool blocks_;
    std::vector<std::optional<bool>> decided_;
    std::int64_t window_ = 0;
};

}  // namespace

FarMask far_mask(const Function& mask, const std::vector<ir::InputDecl>& inputs, bool blocks) {
    return Far(mask, inputs, blocks).run();
}

}  // namespace forge::frontend
