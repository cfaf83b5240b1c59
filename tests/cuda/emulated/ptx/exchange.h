/// In place of device/cuda/ptx/exchange.h. A fiber that looks for a word lets the others run before it looks.
#pragma once

namespace forge::cuda::ptx {

using Word = unsigned long long;

struct TwoWords {
    Word x, y;
};

inline Word load_relaxed(const Word* p) {
    forge_machine.pause();
    return *p;
}
inline TwoWords load_two_relaxed(const Word* p) {
    forge_machine.pause();
    return {p[0], p[1]};
}
inline void store_relaxed(Word* p, Word x) { *p = x; }
inline unsigned add_relaxed(unsigned* p, unsigned n) {
    const unsigned before = *p;
    *p += n;
    return before;
}

}  // namespace forge::cuda::ptx
