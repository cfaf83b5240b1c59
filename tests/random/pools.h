/// A problem's call as a server makes it: states lie in slots of pools, in place or not; some sequences are skipped,
/// some start without a state, some final states are not wanted. The results of the plain call are known: they must
/// come out here too, and nothing else may be written.
#pragma once

#include <deque>
#include <functional>
#include <optional>

#include "check/random.h"
#include "tests/random/oracle.h"

namespace forge::fuzz {

/// What a call reads and writes on the host beside a problem's buffers: for copies on a device.
struct HostBlock {
    std::vector<std::byte> bytes;
};
/// What lies in slots that are nobody's, and would spoil any result: NaN.
constexpr std::byte kSpoilt{0xff};
/// 0, 1, … in a random order.
std::vector<std::int64_t> shuffled(std::int64_t count, check::Random& random);
/// As i32, or as i64.
HostBlock numbers(const std::vector<std::int64_t>& slots, bool wide);

class PooledCall {
  public:
    /// Nothing where there is nothing to put into slots, tensors are not dense, or another kind of call is decided.
    static std::optional<PooledCall> of(Decisions& d, const std::string& name, check::Buffers& solved);

    /// On memory of the host; valid as long as this and the buffers are. Results are cleared.
    [[nodiscard]] Call call();
    /// What the call has left: final states go from their slots to the buffers, and what it was not to make
    /// comes from the plain call. Returns what is written that should not be, or has other bits, if `same_bits`.
    std::vector<std::string> take(bool same_bits);

    /// Outputs are zeros before the call, as a runtime makes them whose kernels leave skipped sequences alone.
    void clear_outputs();

    std::deque<HostBlock> blocks;
    [[nodiscard]] std::string text() const;

  private:
    /// One state's, before the call as after it.
    struct Pool {
        HostBlock* now = nullptr;
        std::vector<std::byte> before = {};
        std::vector<std::int64_t> shape = {};
        std::size_t of_slot = 0;  ///< bytes
    };
    enum class Place : std::uint8_t { Apart, InPlace, OtherSlots };

    PooledCall(Decisions& d, const std::string& name, check::Buffers& solved);
    void choose_slots(Decisions& d, const std::string& name);
    void make_pools(Decisions& d, const std::string& name);
    Pool& add_pool(const check::OwnedTensor& states);
    void fill(Pool& pool, const check::OwnedTensor& initial);
    [[nodiscard]] TensorView indices(const std::vector<std::int64_t>& slots);
    [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(sequences_); }
    [[nodiscard]] bool is_skipped(std::size_t n) const { return (reads_ && initial_[n] < 0) || final_[n] < 0; }
    /// A sequence's part of an output, in bytes of its storage.
    struct Part {
        std::size_t begin = 0, size = 0;
    };
    [[nodiscard]] Part part_of(const check::OwnedTensor& output, std::size_t n) const;
    void take_outputs(std::vector<std::string>& found);
    void take_states(std::vector<std::string>& found);

    check::Buffers& solved_;
    check::Problem shape_;
    std::map<std::string, check::OwnedTensor> outputs_, final_states_;  ///< of the plain call
    std::int64_t sequences_, slots_;
    bool wide_ = false;
    bool numbered_ = false;  ///< the call has no slots: each sequence has that of its number
    bool reads_ = false;     ///< whether there are initial states
    Place place_ = Place::Apart;
    std::vector<std::int64_t> initial_, final_;
    std::vector<bool> has_state_;  ///< empty: not said
    std::deque<Pool> pools_;
    std::map<std::string, Pool*> from_, to_;  ///< by state; of `to_` those that are wanted
};

/// The call that has solved the buffers once more, with states in pools, if that is decided. RuntimeError for what it
/// has written that it should not, and for other bits. `wants_zeros`: outputs are cleared ahead.
void call_in_pools(Decisions& d, const std::string& name, check::Buffers& solved, bool wants_zeros,
                   const std::function<void(const Call&)>& run);

}  // namespace forge::fuzz
