/// What the threads of a block ask of the hardware of compute capability 9.0a: the functions that stand in for its
/// instructions (ptx/) call it, warps.cpp answers. `shared` and `barrier` are addresses in shared memory, counted from
/// its beginning. std::runtime_error for what no GPU would do.
#pragma once

#include <array>

namespace forge::emulated {

constexpr int kLanes = 32, kWarpGroup = 128;

/// One wgmma instruction as a warp sees it: 16 of the 64 rows. See device/cuda/ptx/wgmma.h.
struct Product {
    int columns = 64, sign = 1;
    bool accumulate = false, bf16 = true, rows_a = false, rows_b = false, from_registers = false;
    unsigned long long a = 0, b = 0;  ///< descriptors
    std::array<std::array<unsigned, 4>, kLanes> registers{};
    std::array<float*, kLanes> d{};
};

class Hardware {
  public:
    Hardware() = default;
    Hardware(const Hardware&) = delete;
    Hardware& operator=(const Hardware&) = delete;
    virtual ~Hardware() = default;

    [[nodiscard]] virtual int block() const = 0;
    [[nodiscard]] virtual int blocks() const = 0;
    [[nodiscard]] virtual int thread() const = 0;
    [[noreturn]] virtual void fail(const char* what) const = 0;

    using Act = void (*)(void* const* brought);
    /// Until all lanes of the warp are here, with the same `act`; the last one calls it with what each has brought.
    virtual void together(void* mine, Act act) = 0;
    /// Barrier `number` of the block, for so many threads; 0: all.
    virtual void sync(unsigned number, unsigned threads) = 0;
    virtual void set_registers(int count) = 0;
    virtual void fence_async() = 0;
    virtual void wait_for_kernel_before() = 0;

    virtual void barrier_begin(unsigned barrier, unsigned arrivals) = 0;
    virtual void barriers_begun() = 0;
    virtual void barrier_arrive(unsigned barrier) = 0;
    virtual void barrier_expect(unsigned barrier, unsigned bytes) = 0;
    virtual void barrier_wait(unsigned barrier, unsigned parity) = 0;

    // Copies of one thread, in groups.
    virtual void copy(unsigned shared, const void* global, int bytes, int valid) = 0;
    virtual void copy_commit() = 0;
    virtual void copy_wait(int pending) = 0;

    /// A box of a tensor that begins there.
    struct Box {
        const void* map;
        std::array<int, 4> at;
    };
    virtual void bulk_load(unsigned shared, const void* global, unsigned bytes, unsigned barrier) = 0;
    virtual void bulk_store(void* global, unsigned shared, unsigned bytes) = 0;
    virtual void tensor_load(unsigned shared, const Box& box, unsigned barrier) = 0;
    virtual void tensor_store(const Box& box, unsigned shared) = 0;
    virtual void bulk_commit() = 0;
    virtual void bulk_wait(int pending) = 0;

    // Of a warp: called once for all its lanes.
    virtual void issue(const Product& product) = 0;
    virtual void commit_products() = 0;
    virtual void wait_for_products(int pending) = 0;
};

}  // namespace forge::emulated
