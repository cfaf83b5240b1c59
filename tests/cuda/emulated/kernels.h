/// Emitted CUDA sources as libraries of this machine: the device library with ptx/ in place of its instructions.
#pragma once

#include <filesystem>
#include <string>

#include "tests/cuda/emulated/hardware.h"
#include "tests/cuda/emulated/machine.h"
#include "tests/cuda/emulated/shared_memory.h"

namespace forge::emulated {

/// The device library, in a directory that goes with this object.
class Device {
  public:
    Device();
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    /// Compiles an emitted source to a shared library. std::runtime_error with what the compiler says.
    [[nodiscard]] std::filesystem::path build(const std::string& name, const std::string& source) const;

  private:
    std::filesystem::path dir_;
};

/// The kernels of one source.
class Library {
  public:
    explicit Library(const std::filesystem::path& file);
    ~Library();
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    [[nodiscard]] void* kernel(const std::string& symbol) const;
    [[nodiscard]] Machine& machine() const { return *machine_; }
    [[nodiscard]] Hardware*& hardware() const { return *hardware_; }
    /// The first bytes of this OS thread's shared memory.
    [[nodiscard]] SharedMemory memory(std::size_t bytes) const;

  private:
    void* library_;
    Machine* machine_;
    Hardware** hardware_;
};

}  // namespace forge::emulated
