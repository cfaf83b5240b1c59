/// Loads that kernels of the portable library ask for before their tiles are free, into registers: what a chunk reads
/// first while the chunk before is computed, and what it reads between two operations during the first of them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "emit/transfers.h"

namespace forge::emit {

class LoadsAhead {
  public:
    LoadsAhead(Context& context, const Transfers& transfers) : c_(context), transfers_(transfers) {}

    void choose();  ///< which loads; none on CPUs
    [[nodiscard]] bool has(ir::ValueId v) const { return chosen_.contains(v); }

    void fetch_first();                ///< of the first chunk, or the only one
    void fetch_next();                 ///< of the chunk after this one
    void fetch_again();                ///< of this chunk, after others were passed over
    void fetch_during(ir::ValueId v);  ///< what comes after this operation

    /// The valid rows of the chunk that begins at a row.
    [[nodiscard]] std::string rows_from(const std::string& row) const;
    /// Tokens, or segments, from one turn of the loop to the next.
    [[nodiscard]] std::int64_t step() const;

  private:
    [[nodiscard]] plan::Loop loop() const { return c_.kernel.graph.loop; }
    [[nodiscard]] bool reverse() const { return c_.kernel.graph.reverse; }
    void choose_between(std::int64_t most);
    [[nodiscard]] std::string rows_ahead_from(const std::string& row) const;
    void fetch(const Transfers::Place& place);
    void declare(ir::ValueId v, const Transfers::Place& place);
    void fetches(ir::ValueId v);

    Context& c_;
    const Transfers& transfers_;
    std::vector<ir::ValueId> ahead_;                          ///< of a chunk, in order
    std::map<ir::ValueId, std::vector<ir::ValueId>> during_;  ///< by the operation during which they are asked for
    std::set<ir::ValueId> chosen_;                            ///< all of those
};

}  // namespace forge::emit
