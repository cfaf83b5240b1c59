/// What each of a kernel's threads does, one statement after the other: loops over chunks and uses of functions are
/// written out. Of the threads that do the same, two stand for all: one of a group's first warp, and another.
#pragma once

#include "kernel/kernel.h"

namespace forge::kernel {

/// Which chunks the hardware copies.
enum class Copied : std::uint8_t { All, None, EveryOther };

struct Event {
    const Statement* statement;
    int chunk;
    int occurrence;  ///< of the statement, in this thread
    bool by_hardware;
};

struct Thread {
    std::string role;
    int group;     ///< a number for the threads that share it
    int instance;  ///< of the role
    int part, parts;
    int warps;  ///< that it stands for
    std::vector<Event> events;
};

/// So many that every buffer is used again, and again.
int chunks_to_unroll(const Kernel& kernel);
/// 0 where chunks are walked through, as a sequence may be empty; else 1.
int fewest_chunks(const Kernel& kernel);
bool has_hardware_copies(const Kernel& kernel);
std::vector<Thread> unroll(const Kernel& kernel, int chunks, Copied copied);

}  // namespace forge::kernel
