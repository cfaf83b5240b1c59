/// What the pages that Forge writes share.
#pragma once

#include <string>

namespace forge::compiler {

/// The style sheet; light or dark as the reader's system is.
const char* page_style();
/// A text as HTML shows it.
std::string escaped(const std::string& text);

}  // namespace forge::compiler
