#include "tests/diag/expect_errors.h"

#include <sstream>

#include "ir/definition.h"
#include "tests/support/expected.h"

namespace forge::tests {
namespace {

std::string source_line(const Location& where) {
    std::istringstream file(read_file(std::string(where.file)));
    std::string line;
    for (unsigned i = 0; i < where.line; ++i) std::getline(file, line);
    return line;
}

/// Whether the location lies in an occurrence of the text.
bool lies_in(const Location& where, const std::string& text) {
    const std::string line = source_line(where);
    for (std::size_t from = line.find(text); from != std::string::npos; from = line.find(text, from + 1))
        if (where.column > from && where.column <= from + text.size()) return true;
    return false;
}

void expect_error(const Diagnostic& got, const Wanted& wanted) {
    EXPECT_EQ(got.what, wanted.what) << to_string(got);
    if (!wanted.expected.empty()) {
        EXPECT_EQ(got.expected, wanted.expected) << to_string(got);
    }
    if (!wanted.got.empty()) {
        EXPECT_EQ(got.got, wanted.got) << to_string(got);
    }
    EXPECT_NE(got.hint.find(wanted.hint), std::string::npos) << to_string(got);
    EXPECT_TRUE(got.where.known()) << to_string(got);
    if (!wanted.at.empty()) {
        EXPECT_TRUE(lies_in(got.where, wanted.at))
            << to_string(got) << "\n  does not point into '" << wanted.at << "' but into\n"
            << source_line(got.where);
    }
}

}  // namespace

void expect_errors(const std::function<void()>& run, const std::vector<Wanted>& wanted) {
    try {
        run();
    } catch (const CompileError& error) {
        ASSERT_EQ(error.diagnostics().size(), wanted.size()) << error.what();
        for (std::size_t i = 0; i < wanted.size(); ++i) expect_error(error.diagnostics()[i], wanted[i]);
        return;
    }
    FAIL() << "no CompileError; wanted: " << wanted.at(0).what;
}

void expect_errors(const LinearAttention& attention, const std::vector<Wanted>& wanted) {
    expect_errors([&] { static_cast<void>(attention.define()); }, wanted);
}

LinearAttention declared(const std::string& name) {
    auto [T, H, K, V] = dims("T", "H", "K", "V");
    LinearAttention a(name);
    a.input("q", BF16, {T, H, K}).input("k", BF16, {T, H, K}).input("v", BF16, {T, H, V});
    a.input("beta", BF16, {T, H}).input("g", F32, {T, H});
    a.state("s", F32, {K, V});
    return a;
}

void add_chunk(LinearAttention& a) {
    a.chunk({"k", "v"}, [](Tensor k, Tensor v) { return matmul_out_fp32(transpose(k), v); });
}

void add_decay(LinearAttention& a) {
    a.decay({"prev_s", "chunk_state"}, [](Tensor prev, Tensor chunk) { return prev + chunk; });
}

void add_merge(LinearAttention& a) {
    a.merge({"q", "k", "v", "chunk_state"}, [](Tensor q, Tensor k, Tensor v, Tensor before) {
        return matmul(tril(matmul_out_fp32(q, transpose(k))), v.to(F32)) + matmul(q.to(F32), before);
    });
}

}  // namespace forge::tests
