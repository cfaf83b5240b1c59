/// The exchange of states at the borders of ranks: an exclusive scan of S -> D∘S + B over them, in either direction.
/// Ring, scatter-scan-gather and all-gather do the same arithmetic in the same order, by one function, and so give the
/// same bits.
#pragma once

#include "dist/gpu.h"
#include "dist/space.h"

namespace forge::dist::detail {

/// What is computed and sent at a time: some rows of a lane's state, or, if its transition is a matrix, all of it.
struct Tile {
    std::size_t field = 0;
    std::int64_t state = 0, count = 0;    ///< the place among the field's states, and how many numbers
    std::int64_t map = 0, map_count = 0;  ///< the same of transitions
    std::int64_t rows = 0;                ///< of the first axis
    std::size_t place = 0;                ///< among all states, in a window
};

class Exchange {
  public:
    /// `plan`: what must be the same on all ranks.
    Exchange(std::vector<Field> fields, std::uint64_t plan, bool reverse);

    /// Collective. `incoming` gets the state before the rank's part, of each field, if it receives one. With a GPU all
    /// states are in its memory, and what is done with them in the order of its stream.
    void scan(Space& space, Gpu* gpu, const Summary& summary, const std::vector<float*>& incoming);
    void scan(Space& space, const Summary& summary, const std::vector<float*>& incoming) {
        scan(space, nullptr, summary, incoming);
    }
    /// The same where nothing can be summed up: `compute` has the incoming states, and leaves those to send.
    void serial(Space& space, Gpu* gpu, bool receives, bool sends, const std::vector<float*>& incoming,
                const std::vector<float*>& outgoing, const std::function<void()>& compute);
    [[nodiscard]] const std::vector<Field>& fields() const { return fields_; }
    [[nodiscard]] bool summed() const;
    /// Which scheme these ranks take, and would take by themselves. RuntimeError if it cannot be had.
    [[nodiscard]] Scheme scheme(const Space& space, const Gpu* gpu = nullptr) const;

  private:
    void scan_on_host(Space& space, const Summary& summary, const std::vector<float*>& incoming);
    void scan_staged(Space& space, Gpu& gpu, const Summary& summary, const std::vector<float*>& incoming);
    void serial_on_host(Space& space, bool receives, bool sends, const std::vector<float*>& incoming,
                        const std::vector<float*>& outgoing, const std::function<void()>& compute);
    [[nodiscard]] std::size_t size_of(std::size_t field) const;
    void scan_serially(Space& space, const Summary& summary, const std::vector<float*>& incoming);
    void ring(Space& space, const Summary& summary, const std::vector<float*>& incoming);
    void scatter_scan_gather(Space& space, const Summary& summary, const std::vector<float*>& incoming);
    void all_gather(Space& space, const Summary& summary, const std::vector<float*>& incoming);
    void all_gather_messages(Space& space, const Summary& summary, const std::vector<float*>& incoming);
    void pack(const Summary& summary, const Tile& tile, float* entry) const;
    bool fold(const Tile& tile, const float* entry, bool there, std::vector<float>& sum) const;
    [[nodiscard]] bool is_zero(const Summary& summary, const Tile& tile) const;
    void apply(const Tile& tile, const float* map, const float* before, const float* added, float* after) const;
    void receive(Space& space, int from, const Summary& summary, const std::vector<float*>& incoming) const;
    [[nodiscard]] int position(const Space& space) const { return at(space, space.rank()); }
    [[nodiscard]] int at(const Space& space, int rank) const { return reverse_ ? space.size() - 1 - rank : rank; }
    std::uint64_t begin(Space& space, Scheme scheme) const;

    std::vector<Field> fields_;
    std::vector<Tile> tiles_;
    std::uint64_t plan_;
    bool reverse_;
    std::size_t total_ = 0, entry_ = 0;  ///< numbers of all states; of a summary's tile with what is said of it
};

}  // namespace forge::dist::detail
