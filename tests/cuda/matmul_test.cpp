/// Products of tiles (portable/matmul.h): every way in which operands lie and are read, sizes that are no multiple of
/// anything, and nothing read or written that is no number of the matrices.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda/emulated/program.h"
#include "tests/cuda/emulated/warps.h"

namespace forge::tests {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

int odd_vectors(int columns) { return ((columns + 3) / 4 | 1) * 4; }

/// Where a matrix of rows x columns lies: its rows side by side, or its columns, from `skip` floats on.
struct Operand {
    int rows, columns;
    bool transposed;
    int skip;

    [[nodiscard]] int row_stride() const { return transposed ? 1 : odd_vectors(columns); }
    [[nodiscard]] int column_stride() const { return transposed ? odd_vectors(rows) : 1; }
    [[nodiscard]] std::size_t at(int r, int c) const {
        return static_cast<std::size_t>(skip + r * row_stride() + c * column_stride());
    }
    [[nodiscard]] std::size_t floats() const { return at(rows - 1, columns - 1) + 33; }
};

struct Case {
    Operand a, b;
    std::string acc, tri;
    int diagonal;
    bool precise;

    [[nodiscard]] int rows() const { return a.rows; }
    [[nodiscard]] int columns() const { return b.columns; }
    [[nodiscard]] int row_stride() const { return odd_vectors(columns()); }
    [[nodiscard]] std::string call() const {
        return fmt::format("matmul<{}, {}, {}, {}, {}, {}, {}, {}, Precision::{}, Acc::{}, Tri::{}, {}, {}>(a, b, c)",
                           rows(), columns(), a.columns, a.row_stride(), a.column_stride(), b.row_stride(),
                           b.column_stride(), row_stride(), precise ? "Float" : "Tf32", acc, tri, diagonal,
                           a.skip % 4 == 0 && b.skip % 4 == 0);
    }
    [[nodiscard]] bool is_zero(int i, int k) const {
        return (tri == "ALower" && k > i + diagonal) || (tri == "AUpper" && k < i + diagonal);
    }
    [[nodiscard]] bool is_wanted(int i, int j) const { return tri != "OutLower" || j <= i + diagonal; }
};

std::vector<Case> random_cases(std::mt19937& rng, int count) {
    const std::vector<int> sizes = {1, 3, 7, 16, 20, 32, 33, 60, 64, 100, 128, 192};
    const auto any = [&](const auto& list) { return list[rng() % list.size()]; };
    std::vector<Case> cases;
    while (static_cast<int>(cases.size()) < count) {
        const int m = any(sizes), n = any(sizes), k = any(sizes);
        if (m * n * k > 128 * 128 * 64) continue;
        const auto skip = [&] { return rng() % 4 == 0 ? static_cast<int>(rng() % 8) : 0; };
        cases.push_back({{m, k, rng() % 2 == 0, skip()},
                         {k, n, rng() % 2 == 0, skip()},
                         any(std::vector<std::string>{"Set", "Add", "Sub"}),
                         any(std::vector<std::string>{"None", "None", "OutLower", "ALower", "AUpper"}),
                         static_cast<int>(rng() % 3) - 1,
                         rng() % 3 == 0});
    }
    return cases;
}

std::string source_of(const std::vector<Case>& cases, int threads) {
    std::string text = fmt::format("#define FORGE_TENSORS 1\n#define FORGE_THREADS {}\n", threads);
    text += "#include \"cuda/portable/kernel.h\"\nusing namespace forge::cuda;\n";
    for (std::size_t n = 0; n < cases.size(); ++n)
        text += fmt::format("extern \"C\" void forge_case_{}(const float* a, const float* b, float* c) {{ {}; }}\n", n,
                            cases[n].call());
    return text;
}

struct alignas(16) Vector {
    float x[4] = {kNaN, kNaN, kNaN, kNaN};
};

/// Floats from 16 bytes on, none of which is a number yet.
class Memory {
  public:
    explicit Memory(std::size_t floats) : vectors_(floats / 4 + 1) {}
    float* data() { return vectors_.data()->x; }
    float& operator[](std::size_t n) { return data()[n]; }

  private:
    std::vector<Vector> vectors_;
};

void check(const Case& c, std::mt19937& rng, const emulated::Library& library, int threads,
           void (*kernel)(const float*, const float*, float*)) {
    std::normal_distribution<float> normal;
    Memory a(c.a.floats()), b(c.b.floats()), out(static_cast<std::size_t>(c.rows() * c.row_stride() + 32));
    for (int i = 0; i < c.rows(); ++i)
        for (int k = 0; k < c.a.columns; ++k) a[c.a.at(i, k)] = c.is_zero(i, k) ? 0 : normal(rng);
    for (int k = 0; k < c.a.columns; ++k)
        for (int j = 0; j < c.columns(); ++j) b[c.b.at(k, j)] = normal(rng);
    std::vector<double> expected, bound;
    const auto place = [&](int i, int j) { return static_cast<std::size_t>(i * c.row_stride() + j); };
    for (int i = 0; i < c.rows(); ++i)
        for (int j = 0; j < c.columns(); ++j) {
            double sum = 0, size = 0;
            for (int k = 0; k < c.a.columns; ++k) {
                const double product = static_cast<double>(a[c.a.at(i, k)]) * static_cast<double>(b[c.b.at(k, j)]);
                sum += product, size += std::abs(product);
            }
            const float before = c.acc == "Set" ? kNaN : normal(rng);
            out[place(i, j)] = before;
            expected.push_back(c.acc == "Set" ? sum : before + (c.acc == "Add" ? sum : -sum));
            bound.push_back((c.precise ? 0x1p-18 : 0x1p-8) * size + 0x1p-20);
        }
    const emulated::GlobalMemory none;
    emulated::run_warps(library.hardware(), {1, threads, library.memory(0), none},
                        [&] { kernel(a.data() + c.a.skip, b.data() + c.b.skip, out.data()); });
    for (int i = 0; i < c.rows(); ++i)
        for (int j = 0; j < c.columns(); ++j) {
            const auto n = static_cast<std::size_t>(i * c.columns() + j);
            if (c.is_wanted(i, j)) {
                ASSERT_NEAR(out[place(i, j)], expected[n], bound[n]) << c.call() << " at " << i << ", " << j;
            }
        }
    for (std::size_t n = place(c.rows() - 1, c.row_stride()); n < place(c.rows(), 32); ++n)
        ASSERT_TRUE(std::isnan(out[n])) << c.call() << " writes behind its last row";
}

class Matmul : public testing::TestWithParam<int> {};

TEST_P(Matmul, IsTheProduct) {
    std::mt19937 rng(static_cast<unsigned>(GetParam()));
    const std::vector<Case> cases = random_cases(rng, 48);
    const emulated::Device device;
    const emulated::Library library(device.build(fmt::format("matmul_{}", GetParam()), source_of(cases, GetParam())));
    emulated::connect(library);
    for (std::size_t n = 0; n < cases.size(); ++n)
        check(cases[n], rng, library, GetParam(),
              reinterpret_cast<void (*)(const float*, const float*, float*)>(  // NOLINT: dlsym
                  library.kernel(fmt::format("forge_case_{}", n))));
}

INSTANTIATE_TEST_SUITE_P(OfThreads, Matmul, testing::Values(128, 256, 512),
                         [](const auto& test) { return std::to_string(test.param); });

}  // namespace
}  // namespace forge::tests
