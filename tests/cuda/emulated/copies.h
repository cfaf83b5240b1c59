/// Copies that run beside computation: those of single threads (cp.async), and bulk and tensor copies. What one writes
/// is NaN from the moment it is asked for; it is carried out later, at the latest by the wait that covers it.
#pragma once

#include <random>
#include <vector>

#include "tests/cuda/emulated/async_view.h"
#include "tests/cuda/emulated/barriers.h"
#include "tests/cuda/emulated/global_memory.h"
#include "tests/cuda/emulated/hardware.h"

namespace forge::emulated {

class Copies {
  public:
    Copies(SharedMemory memory, const GlobalMemory& global, AsyncView& view, Barriers& barriers, int threads)
        : memory_(memory),
          global_(global),
          view_(view),
          barriers_(barriers),
          threads_(static_cast<std::size_t>(threads)) {}

    // By a thread.
    void start(int thread, unsigned shared, const void* global, int bytes, int valid);
    void commit(int thread);
    void wait(int thread, int pending);
    void start_bulk(unsigned shared, const void* global, unsigned bytes, unsigned barrier);
    void start_bulk_store(int thread, void* global, unsigned shared, unsigned bytes);
    void start_load(unsigned shared, const Hardware::Box& box, unsigned barrier);
    void start_store(int thread, const Hardware::Box& box, unsigned shared);
    void commit_stores(int thread);
    void wait_for_stores(int thread, int pending);

    /// Carries out one that is under way; whether there was any but those of single threads, which nobody but they wait
    /// for.
    bool carry_out_any(std::mt19937& random);
    /// std::runtime_error if any are under way that nobody has waited for.
    void expect_none() const;

  private:
    struct Piece {
        unsigned shared;
        const void* global;
        int bytes, valid;
    };
    struct Thread {
        std::vector<Piece> open;
        std::vector<std::vector<Piece>> groups;  ///< not yet waited for; empty once carried out
        int store_groups = 0;                    ///< committed
    };
    struct Bulk {
        bool is_store;
        unsigned shared, bytes, barrier;
        const void* global;  ///< null: a box, unless it is a store
        Hardware::Box box;
        int thread, group;
        void* to = nullptr;  ///< of a store; null: a box
    };
    void carry_out(std::vector<Piece>& group) const;
    void poison(unsigned shared, std::size_t bytes, std::size_t alignment) const;
    void carry_out_bulk(std::size_t n);
    void move_box(const Bulk& copy) const;

    SharedMemory memory_;
    const GlobalMemory& global_;
    AsyncView& view_;
    Barriers& barriers_;
    std::vector<Thread> threads_;
    std::vector<Bulk> bulk_;
};

}  // namespace forge::emulated
