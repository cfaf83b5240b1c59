#include "capi/guard.h"

#include <cstdlib>
#include <cstring>

namespace forge::capi {
namespace {

std::string& last_message() {
    thread_local std::string message;
    return message;
}

}  // namespace

forge_status failed(forge_status status, const char* message) noexcept {
    try {
        last_message() = message;
    } catch (const std::bad_alloc&) {
        last_message().clear();  // the status alone must do
    }
    return status;
}

char* new_text(const std::string& text) {
    auto* copy =
        static_cast<char*>(std::malloc(text.size() + 1));  // NOLINT(cppcoreguidelines-no-malloc): C's callers free it
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

}  // namespace forge::capi

const char* forge_error(void) { return forge::capi::last_message().c_str(); }

void forge_free(char* text) { std::free(text); }  // NOLINT(cppcoreguidelines-no-malloc)

uint32_t forge_abi_version(void) { return FORGE_ABI_VERSION; }

const char* forge_build(void) { return FORGE_VERSION " (" __VERSION__ ")"; }

const char* forge_status_string(forge_status status) {
    switch (status) {
        case FORGE_OK:
            return "FORGE_OK";
        case FORGE_COMPILE_ERROR:
            return "FORGE_COMPILE_ERROR";
        case FORGE_RUNTIME_ERROR:
            return "FORGE_RUNTIME_ERROR";
        case FORGE_INVALID_ARGUMENT:
            return "FORGE_INVALID_ARGUMENT";
        case FORGE_OUT_OF_MEMORY:
            return "FORGE_OUT_OF_MEMORY";
        case FORGE_INTERNAL_ERROR:
            return "FORGE_INTERNAL_ERROR";
    }
    return "an unknown status";
}
