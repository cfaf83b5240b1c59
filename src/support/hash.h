/// Content hashes: 128 bits, as hexadecimal text. For caches, not for secrets.
#pragma once

#include <string>

namespace forge::support {
std::string hash(const std::string& content);
}
