#include "emit/barriers.h"

#include <algorithm>

namespace forge::emit {

bool meet(const Ranges& a, const Ranges& b) {
    return std::any_of(a.begin(), a.end(), [&](const Range& x) {
        return std::any_of(b.begin(), b.end(), [&](const Range& y) { return x.meets(y); });
    });
}

void Barriers::before(Writer& out, const Ranges& reads, const Ranges& writes) {
    if (!on_) return;
    if (meet(reads, written_) || meet(writes, written_) || meet(writes, read_)) wait(out);
    read_.insert(read_.end(), reads.begin(), reads.end());
    written_.insert(written_.end(), writes.begin(), writes.end());
}

void Barriers::wait(Writer& out) {
    if (!on_ || (read_.empty() && written_.empty())) return;
    out.put(barrier_);
    passed();
}

}  // namespace forge::emit
