/// The border between C++ and C, of both libraries: runs a function, turns what it throws into a status, and keeps the
/// message for the thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "forge/error.h"
#include "forge_call.h"
#include "runtime/arguments.h"

namespace forge::rt {

/// The C interface itself was misused.
class InvalidArgument : public std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

/// A package is damaged, foreign or newer, or lacks what is wanted of it.
class PackageError : public RuntimeError {
    using RuntimeError::RuntimeError;
};

/// Remembers the message for the thread and returns the status.
forge_status failed(forge_status status, const char* message) noexcept;
const char* last_message();
const char* to_string(forge_status status);

template <class Fn>
forge_status guarded(Fn fn) noexcept {
    try {
        fn();
        return FORGE_OK;
    } catch (const CompileError& error) {
        return failed(FORGE_COMPILE_ERROR, error.what());
    } catch (const PackageError& error) {
        return failed(FORGE_PACKAGE_ERROR, error.what());
    } catch (const RuntimeError& error) {
        return failed(FORGE_RUNTIME_ERROR, error.what());
    } catch (const InvalidArgument& error) {
        return failed(FORGE_INVALID_ARGUMENT, error.what());
    } catch (const std::bad_alloc&) {
        return failed(FORGE_OUT_OF_MEMORY, "out of memory");
    } catch (const std::length_error&) {  // of a container that would be larger than any memory
        return failed(FORGE_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception& error) {
        return failed(FORGE_INTERNAL_ERROR, error.what());
    } catch (...) {
        return failed(FORGE_INTERNAL_ERROR, "an unknown exception");
    }
}

template <class T>
T* required(T* pointer, const char* name) {
    if (!pointer) throw InvalidArgument(std::string(name) + ": expected a pointer, got NULL");
    return pointer;
}

/// A caller's struct as this library knows it: what the caller's lacks is zero. InvalidArgument if it says more.
template <class Struct>
Struct known_part(const Struct* given, const char* name) {
    const std::size_t size = required(given, name)->struct_size;
    constexpr std::size_t kMost = 4096;  // of any version to come
    if (size < sizeof(std::size_t) || size > kMost)
        throw InvalidArgument(std::string(name) + ": struct_size: expected sizeof of the struct, got " +
                              std::to_string(size));
    const char* bytes = reinterpret_cast<const char*>(given);  // NOLINT: of whatever version
    for (std::size_t i = sizeof(Struct); i < size; ++i)
        if (bytes[i] != 0)
            throw InvalidArgument(std::string(name) + ": uses fields that this version of the library does not know");
    Struct known{};
    std::memcpy(&known, given, std::min(size, sizeof(Struct)));
    return known;
}

/// InvalidArgument, with the argument's name, for none of forge_dtype.
DType dtype_of(std::int32_t dtype, const char* name);
/// rank 0: it is not given.
runtime::View view_of(const forge_tensor& tensor, const char* name);

}  // namespace forge::rt
