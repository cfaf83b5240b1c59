/// Runs something that must fail with a CompileError and compares what it says with what is wanted. A wanted place is a
/// piece of the test's own source: the error must point into it, in this file.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "forge/error.h"
#include "forge/language.h"

namespace forge::tests {

struct Wanted {
    std::string what;
    std::string expected = {}, got = {};
    std::string at = {};    ///< source text that the location must lie in; empty: not checked
    std::string hint = {};  ///< part of the hint
};

void expect_errors(const std::function<void()>& run, const std::vector<Wanted>& wanted);
/// The errors of define().
void expect_errors(const LinearAttention& attention, const std::vector<Wanted>& wanted);

/// q, k [C, K], v [C, V], beta, g [C] and one state s [K, V]; no phases yet.
LinearAttention declared(const std::string& name = "test");
/// Phases of plain linear attention, for tests that break another one.
void add_chunk(LinearAttention& attention);
void add_decay(LinearAttention& attention);
void add_merge(LinearAttention& attention);

/// A whole definition whose chunk phase is `fn` of q, k, v, g, with its result as the state if it is one.
template <class Fn>
void expect_chunk_errors(Fn fn, const std::vector<Wanted>& wanted) {
    LinearAttention a = declared();
    a.chunk({"q", "k", "v", "g"}, fn);
    add_decay(a);
    add_merge(a);
    expect_errors(a, wanted);
}

}  // namespace forge::tests
