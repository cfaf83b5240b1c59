/// Variants and novel programs as parameters of tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "tests/novel/novel.h"
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

/// One of them, which must exist.
inline const Entry& program_named(const std::string& name) {
    static const std::vector<Entry> kAll = all_programs();
    return *std::find_if(kAll.begin(), kAll.end(), [&](const Entry& e) { return e.name == name; });
}

}  // namespace forge::tests
