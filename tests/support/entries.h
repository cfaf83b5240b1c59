/// Variants and novel programs as parameters of tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/novel/novel.h"
#include "tests/novel/recurrences.h"
#include "variants/variants.h"

namespace forge::variants {
inline void PrintTo(const Entry& entry, std::ostream* out) { *out << entry.name; }  // found by GoogleTest
}  // namespace forge::variants

namespace forge::tests {

using variants::Entry;

inline std::string name_of(const testing::TestParamInfo<Entry>& entry) { return entry.param.name; }

/// The variants, then the novel programs.
inline std::vector<Entry> all_programs() {
    std::vector<Entry> list = variants::all();
    list.insert(list.end(), novel::all().begin(), novel::all().end());
    return list;
}

/// Without those whose kernels take a minute to compile in every way: tests/numerics/objectives_test.cpp has them in
/// one.
inline std::vector<Entry> programs_in_every_way() {
    std::vector<Entry> list = all_programs();
    std::erase_if(list, [](const Entry& e) { return e.name == "mamba3"; });
    return list;
}

/// One of them, of the objectives, or of the recurrences of the literature, which must exist.
inline const Entry& program_named(const std::string& name) {
    static const std::vector<Entry> kAll = [] {
        std::vector<Entry> list = all_programs();
        for (const auto* more : {&variants::objectives(), &novel::recurrences()})
            list.insert(list.end(), more->begin(), more->end());
        return list;
    }();
    const auto found = std::find_if(kAll.begin(), kAll.end(), [&](const Entry& e) { return e.name == name; });
    if (found == kAll.end()) throw std::invalid_argument("no program is called " + name);
    return *found;
}

}  // namespace forge::tests
