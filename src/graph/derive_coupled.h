/// Several matrices that are derived together, as momentum and the memory that it is added to. A number of every pair
/// of tokens says how much of what token j wrote into one matrix is in another after token i: with L the decays between
/// tokens of a matrix (0 above the diagonal) and c what it takes of another one, whose numbers are N, these are L c N.
/// Vectors that read solve one triangular system.
#pragma once

#include "graph/derive_chunk.h"

namespace forge::graph {

class CoupledChunk {
  public:
    struct Member {
        const ir::StateDecl* state;
        std::shared_ptr<const StateForm> after;
    };
    /// Members take whole matrices only from those before them. Decays are numbers.
    CoupledChunk(ChunkWriter& out, std::vector<Member> members, int key_axis);

    ChunkResult result(const std::string& state);
    /// What every token reads with its key of a form of member `own`.
    TokenRow read(TokenRow key, const StateForm& form);

  private:
    struct Write {
        std::size_t member;
        Outer outer;
        ir::ValueId key = ir::kNoValue;    ///< [C, K]
        ir::ValueId value = ir::kNoValue;  ///< [C, V], of known ones
        int unknown = -1;
    };
    /// A part of a form: so much, of every token, of a member before or after the token.
    struct Part {
        std::size_t member;
        bool after;
        ir::ValueId factor;  ///< [C] or a number; kNoValue: 1
    };

    void collect(const StateForm& form);
    void solve();
    [[nodiscard]] std::size_t index(const std::string& state) const;
    std::vector<Part> parts(const StateForm& form);
    ir::ValueId gate(const StateForm& form);
    ir::ValueId numbers(std::size_t member, std::size_t write, bool after);  ///< [C, C]
    ir::ValueId starts(std::size_t member, std::size_t from, bool after);    ///< [C], of the state before the chunk
    ir::ValueId decays(std::size_t member, bool after);
    ir::ValueId one_later(ir::ValueId rows);
    ir::ValueId ones(std::vector<Dim> shape) { return out_.expand(out_.constant(1), {shape.begin(), shape.end()}); }
    ir::ValueId rows_times(ir::ValueId matrix, ir::ValueId factor);
    ir::ValueId scores(ir::ValueId key, const Part& part, std::size_t write);
    ir::ValueId value_of(const Outer& outer);
    ir::ValueId dot(ir::ValueId a, ir::ValueId b);

    ChunkWriter& out_;
    std::vector<Member> members_;
    int key_axis_;
    std::vector<ir::ValueId> before_, gates_;
    std::vector<Write> writes_;
    std::vector<std::shared_ptr<const ReadForm>> unknowns_;
    std::map<std::tuple<std::size_t, std::size_t, bool>, ir::ValueId> numbers_, starts_;
    ir::ValueId updates_ = ir::kNoValue;
};

}  // namespace forge::graph
