#include "kernel/kernel.h"

#include <algorithm>

namespace forge::kernel {

Access registers(const std::string& value) { return {Memory::Registers, value}; }

bool meet(const Accesses& a, const Accesses& b) {
    return std::any_of(a.begin(), a.end(), [&](const Access& x) {
        return std::any_of(b.begin(), b.end(), [&](const Access& y) {
            if (x.memory != y.memory || x.buffer != y.buffer) return false;
            return x.memory == Memory::Registers || (x.begin < y.end && y.begin < x.end);
        });
    });
}

void append(Accesses& to, const Accesses& from) { to.insert(to.end(), from.begin(), from.end()); }

const char* to_string(Kind kind) {
    constexpr const char* kNames[kKinds] = {
        "code",     "compute",     "move",    "keep",          "copy",   "bulk_copy", "store",       "issue",
        "commit",   "copy_wait",   "finish",  "stores_read",   "fence",  "barrier",   "block_barrier", "begin",
        "arrive",   "wait",        "wait_kernel", "registers", "rest",   "line",      "operation",   "later",
        "body",     "loop",        "role",    "function",      "use",    "kernel"};
    return kNames[static_cast<std::size_t>(kind)];
}

bool has_body(Kind kind) {
    switch (kind) {
        case Kind::Line:
        case Kind::Operation:
        case Kind::Later:
        case Kind::Body:
        case Kind::Loop:
        case Kind::Role:
        case Kind::Function:
        case Kind::Kernel:
            return true;
        case Kind::Code:
        case Kind::Compute:
        case Kind::Move:
        case Kind::Keep:
        case Kind::Copy:
        case Kind::BulkCopy:
        case Kind::Store:
        case Kind::Issue:
        case Kind::Commit:
        case Kind::CopyWait:
        case Kind::Finish:
        case Kind::StoresRead:
        case Kind::Fence:
        case Kind::Barrier:
        case Kind::BlockBarrier:
        case Kind::Begin:
        case Kind::Arrive:
        case Kind::Wait:
        case Kind::WaitKernel:
        case Kind::Registers:
        case Kind::Rest:
        case Kind::Use:
            return false;
    }
    return false;
}

const Channel* Kernel::channel(const std::string& wanted) const {
    const auto found = std::find_if(channels.begin(), channels.end(), [&](const Channel& c) { return c.name == wanted; });
    return found == channels.end() ? nullptr : &*found;
}

}  // namespace forge::kernel
