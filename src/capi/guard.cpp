#include "capi/guard.h"

#include <cstdlib>
#include <cstring>

namespace forge::capi {

char* new_text(const std::string& text) {
    auto* copy =
        static_cast<char*>(std::malloc(text.size() + 1));  // NOLINT(cppcoreguidelines-no-malloc): C's callers free it
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, text.c_str(), text.size() + 1);
    return copy;
}

}  // namespace forge::capi

const char* forge_error(void) { return forge::rt::last_message(); }

void forge_free(char* text) { std::free(text); }  // NOLINT(cppcoreguidelines-no-malloc)

uint32_t forge_abi_version(void) { return FORGE_ABI_VERSION; }

const char* forge_build(void) { return FORGE_VERSION " (" __VERSION__ ")"; }

const char* forge_status_string(forge_status status) { return forge::rt::to_string(status); }
