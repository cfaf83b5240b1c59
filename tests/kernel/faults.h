/// Planted faults: a kernel's statements with one of them dropped or changed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace forge::tests {

/// The place of a statement: which of each block's.
using Place = std::vector<std::size_t>;

/// All that do nothing but synchronise, those in lines of several one by one.
std::vector<Place> synchronising_statements(const std::vector<kernel::Statement>& statements);
std::vector<Place> places_of(const std::vector<kernel::Statement>& statements,
                             const std::function<bool(const kernel::Statement&)>& is_one);
const kernel::Statement& at(const std::vector<kernel::Statement>& statements, const Place& place);
kernel::Statement& at(std::vector<kernel::Statement>& statements, const Place& place);
void drop(std::vector<kernel::Statement>& statements, const Place& place);
/// For people: the kinds on the way to it.
std::string described(const std::vector<kernel::Statement>& statements, const Place& place);

}  // namespace forge::tests
