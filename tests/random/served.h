/// The calls that every engine is held to: a problem's plain one, as often as asked for, and those of servers: with the
/// states before chunks, with states in pools, with states of 16 bits.
#pragma once

#include "tests/random/examine.h"
#include "tests/random/pools.h"

namespace forge::fuzz {

/// What an engine has made of a program.
struct Served {
    /// A call on memory of the host, for the n-th time: of the buffers of a problem and, beside them, of blocks.
    using Run = std::function<void(const Call& call, const std::vector<HostBlock*>& blocks, unsigned turn)>;

    std::string engine, how;  ///< for the tally and for reports
    std::string name;         ///< of decisions about its calls
    Run run;
    unsigned turns = 1;           ///< in which the plain call has the same bits
    DType state_dtype = F32;      ///< of states in memory
    std::int64_t kept_chunk = 0;  ///< of the chunks whose states before calls can have; 0: they cannot
    bool same_bits = true;        ///< whether a sequence's results are the same whatever others there are
    bool wants_zeros = false;     ///< whether outputs of skipped sequences are cleared ahead of the call
};

/// The bits of a call's results.
std::vector<std::byte> results_of(const check::Buffers& buffers);

/// What is wrong with one of the subject's problems.
std::vector<std::string> faults_of_calls(Subject& s, int index, const Served& served, Tally& tally);

}  // namespace forge::fuzz
