#include "tests/cuda/emulated/async_view.h"

#include <algorithm>

#include "tests/cuda/emulated/hardware.h"

namespace forge::emulated {

AsyncView::AsyncView(SharedMemory memory, int warps)
    : memory_(memory),
      known_(memory.data, memory.data + memory.bytes),
      seen_(known_),
      warps_(static_cast<std::size_t>(warps)) {}

void AsyncView::note_writes(std::size_t warp) {
    for (std::size_t begin = 0; begin < memory_.bytes; begin += kStretch) {
        const std::size_t end = std::min(begin + kStretch, memory_.bytes);
        if (std::memcmp(memory_.data + begin, known_.data() + begin, end - begin) != 0)
            note_stretch(begin, end, warps_[warp].unseen);
    }
}

void AsyncView::note_stretch(std::size_t begin, std::size_t end, std::vector<std::size_t>& words) {
    for (std::size_t at = begin; at < end; at += kWord)
        if (std::memcmp(memory_.data + at, known_.data() + at, kWord) != 0) words.push_back(at);
    std::memcpy(known_.data() + begin, memory_.data + begin, end - begin);
}

void AsyncView::fence(std::size_t warp) {
    Warp& self = warps_[warp];
    if (++self.lanes_at_fence < kLanes) return;
    self.lanes_at_fence = 0;
    note_writes(warp);
    for (const std::size_t at : self.unseen) std::memcpy(seen_.data() + at, memory_.data + at, kWord);
    self.unseen.clear();
}

void AsyncView::written(unsigned address, std::size_t bytes) {
    for (auto* view : {&known_, &seen_}) std::memcpy(view->data() + address, memory_.data + address, bytes);
}

}  // namespace forge::emulated
