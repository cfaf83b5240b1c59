/// Memory shared by values whose lifetimes do not overlap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace forge::tile {

/// Hands out buffers; freed ones are used again, best fit first. Neighbouring free ones are joined
/// if asked for: where memory is short.
class Arena {
  public:
    explicit Arena(bool join) : join_(join) {}

    std::int64_t take(std::int64_t floats) {
        auto best = free_.end();
        for (auto it = free_.begin(); it != free_.end(); ++it)
            if (it->floats >= floats && (best == free_.end() || it->floats < best->floats)) best = it;
        if (best == free_.end()) return grow(floats);
        const Block block = *best;
        free_.erase(best);
        if (block.floats > floats) free_.push_back({block.offset + floats, block.floats - floats});
        return block.offset;
    }
    void give(std::int64_t offset, std::int64_t floats) {
        Block block{offset, floats};
        for (auto it = free_.begin(); join_ && it != free_.end();) {
            const bool before = it->offset + it->floats == block.offset,
                       after = block.offset + block.floats == it->offset;
            if (before || after) {
                block = {std::min(block.offset, it->offset), block.floats + it->floats};
                it = free_.erase(it);
            } else {
                ++it;
            }
        }
        free_.push_back(block);
    }
    [[nodiscard]] std::int64_t size() const { return size_; }

  private:
    struct Block {
        std::int64_t offset, floats;
    };

    /// New memory at the end, together with a free block there.
    std::int64_t grow(std::int64_t floats) {
        std::int64_t offset = size_;
        for (auto it = free_.begin(); join_ && it != free_.end(); ++it) {
            if (it->offset + it->floats != size_) continue;
            offset = it->offset;
            free_.erase(it);
            break;
        }
        size_ = offset + floats;
        return offset;
    }

    bool join_;
    std::vector<Block> free_;
    std::int64_t size_ = 0;
};

}  // namespace forge::tile
