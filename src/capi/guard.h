/// The border between C++ and C: runs a function, turns what it throws into a status, and keeps the message for the
/// thread.
#pragma once

#include <new>
#include <stdexcept>
#include <string>

#include "forge/error.h"
#include "forge_c.h"

namespace forge::capi {

/// The C interface itself was misused.
class InvalidArgument : public std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

/// Remembers the message for forge_error() and returns the status.
forge_status failed(forge_status status, const char* message) noexcept;

template <class Fn>
forge_status guarded(Fn fn) noexcept {
    try {
        fn();
        return FORGE_OK;
    } catch (const CompileError& error) {
        return failed(FORGE_COMPILE_ERROR, error.what());
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

/// A copy that forge_free frees.
char* new_text(const std::string& text);

}  // namespace forge::capi
