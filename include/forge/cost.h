/// What calls of an entry point cost on a machine, kernel by kernel: counted and predicted from the plan, so that it is
/// known before anything is compiled or run, also for a GPU that is not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge {

/// What a kernel, or a call, waits for most.
enum class Bound : std::uint8_t {
    Memory,       ///< bytes from and to memory
    MatrixUnits,  ///< products on tensor cores (on a CPU: multiply-adds of products)
    Arithmetic,   ///< what else multiprocessors issue: elementwise work, inverses, moves on chip
    Latency,      ///< chunks that wait for the one before, while the machine has room for more
    Launch,       ///< starting kernels
};
const char* to_string(Bound bound);

struct StageCost {
    std::string name;
    std::string task;               ///< what one does, in words
    std::int64_t tasks = 0;         ///< that can run at the same time
    std::int64_t hops = 0;          ///< chunks, or segments, that each of them processes one after the other
    double flops = 0;               ///< useful operations of products and inverses, a multiply-add is two
    double elementwise = 0;         ///< other operations, number by number; an exponential counts as several
    double bytes = 0;               ///< from and to memory, each byte once
    double memory_seconds = 0;      ///< of the bytes alone, at the rate that memory is known to reach
    double matrix_seconds = 0;      ///< of the products alone, at the matrix units' peak
    double arithmetic_seconds = 0;  ///< of the elementwise operations alone, at the peak; where the machine's times of
                                    ///< such kernels were measured, by these
    double latency_seconds = 0;     ///< of the chain of hops
    double seconds = 0;             ///< predicted
    Bound bound = Bound::Memory;
};

/// The cost of one call. Tensors are counted with as many heads as the one that has most.
struct CallCost {
    std::string name, entry, device, schedule, engine;
    std::int64_t tokens = 0, sequences = 0, heads = 0;  ///< tokens per sequence
    double flops = 0, elementwise = 0, bytes = 0;       ///< of all kernels
    double floor_bytes = 0;                             ///< of arguments and results alone, read once and written once
    double workspace_bytes = 0;                         ///< what passes between kernels
    double state_bytes = 0;                             ///< of the carried states of one sequence and head
    std::int64_t tasks = 0;                             ///< of the kernel that takes longest
    /// No kernels of these chunks can be faster: the larger of floor_bytes at memory's rate and flops at the peak.
    double roofline_seconds = 0;
    double seconds = 0;  ///< predicted
    Bound bound = Bound::Memory;
    bool beside = false;  ///< the first kernel runs while the second does
    std::string basis;    ///< what the prediction rests on, in a sentence
    std::vector<StageCost> kernels;
};

/// A table and bars, for a terminal.
std::string cost_text(const std::vector<CallCost>& calls);
/// A page with the same as a picture, that needs no other file.
std::string cost_page(const std::vector<CallCost>& calls);
/// [{…}], with the names above.
std::string cost_json(const std::vector<CallCost>& calls);

}  // namespace forge
