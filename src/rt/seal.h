/// What is at the end of every file of a package: that it is whole, in a line. Loaders of programs do not look there.
#pragma once

#include <string>
#include <string_view>

namespace forge::rt {

/// A hash of 64 bits, as hexadecimal text; the same in every build of Forge. Against accidents, not against intent.
std::string fingerprint(std::string_view content);

std::string sealed(std::string content);
/// The length of what was sealed; RuntimeError, which names the file, if it is not whole.
std::size_t check_seal(std::string_view content, const std::string& file);

}  // namespace forge::rt
