/// Fuzzing of the parser: whatever stands in a text, it is parsed or refused with a CompileError; and what is
/// taken as a definition goes through the compiler. Inputs are mutations of valid texts, from a fixed seed.
#include <gtest/gtest.h>

#include <random>

#include "forge/error.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "tests/novel/novel.h"

namespace forge::tests {
namespace {

constexpr int kInputs = 10000;
constexpr unsigned kSeed = 20240607;

std::vector<std::string> valid_texts() {
    std::vector<std::string> texts;
    for (const auto* entries : {&variants::all(), &novel::all()})
        for (const variants::Entry& entry : *entries) {
            const ir::Definition def = entry.make().define();
            texts.push_back(ir::print(def, {.locations = true}));
            texts.push_back(ir::print(graph::optimize(frontend::join(def))));
        }
    return texts;
}

class Mutator {
  public:
    explicit Mutator(const std::vector<std::string>& texts) : texts_(texts) {}

    std::string next() {
        std::string text = texts_[below(texts_.size())];
        for (std::size_t n = 1 + below(4); n > 0; --n) mutate(text);
        return text;
    }

  private:
    std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

    void mutate(std::string& text) {
        if (text.empty()) return;
        const std::size_t at = below(text.size()), length = 1 + below(std::min<std::size_t>(text.size() - at, 40));
        switch (below(7)) {
            case 0:
                text.erase(at, length);
                return;
            case 1:
                text[at] = static_cast<char>(below(256));
                return;
            case 2:
                text.insert(at, kPieces[below(std::size(kPieces))]);
                return;
            case 3:
                text.replace(at, length, kPieces[below(std::size(kPieces))]);
                return;
            case 4:
                text.insert(at, text.substr(below(text.size()), length));
                return;
            case 5:
                text.resize(at);
                return;
            default:
                swap_lines(text);
        }
    }

    void swap_lines(std::string& text) {
        const auto line = [&](std::size_t at) {
            const std::size_t begin = text.rfind('\n', at) + 1, end = text.find('\n', at);
            return std::pair{begin, (end == std::string::npos ? text.size() : end) - begin};
        };
        const auto [from, length] = line(below(text.size()));
        const std::string moved = text.substr(from, length);
        text.erase(from, length);
        if (!text.empty()) text.insert(line(below(text.size())).first, moved + "\n");
    }

    static constexpr const char* kPieces[] = {"%",
                                              "@",
                                              "{",
                                              "}",
                                              "(",
                                              ")",
                                              "[",
                                              "]",
                                              ",",
                                              "=",
                                              ":",
                                              "\"",
                                              "\n",
                                              "//",
                                              "-",
                                              "0",
                                              "-1",
                                              "1e999",
                                              "9223372036854775807",
                                              "-9223372036854775808",
                                              "99999999999999999999",
                                              "nan",
                                              "inf",
                                              "func",
                                              "return",
                                              "linear_attention",
                                              "loc",
                                              "tile(0, [1, 1])",
                                              "f32[C, K]",
                                              "bool[]",
                                              "i64[4]",
                                              "0*C",
                                              "-3*K",
                                              "dim=-9",
                                              "perm=[1, 1]",
                                              "step=0",
                                              "step=-1",
                                              "count=-1",
                                              "start=99",
                                              "diagonal=-9223372036854775808",
                                              "matmul",
                                              "inverse",
                                              "decay_matmul",
                                              "linear_scan",
                                              "expand",
                                              "identity",
                                              "prev_token",
                                              "param",
                                              "constant",
                                              "role=state"};
    const std::vector<std::string>& texts_;
    std::mt19937_64 random_{kSeed};
};

void parse(const std::string& text) {
    if (ir::is_definition(text)) static_cast<void>(ir::parse_definition(text));
    else static_cast<void>(ir::parse_function(text));
}

/// Parses a definition, runs it in the interpreter and takes it through the passes.
void compile(const std::string& text) {
    const ir::Definition def = ir::parse_definition(text);
    static_cast<void>(interp::check_semantics(def));
    static_cast<void>(graph::optimize(frontend::join(def)));
}

/// Runs `run` on mutations of the texts; returns how many were refused.
template <class Run>
int fuzz(const std::vector<std::string>& texts, Run run) {
    for (const std::string& text : texts) EXPECT_NO_THROW(run(text));
    Mutator mutator(texts);
    int refused = 0;
    for (int i = 0; i < kInputs; ++i) {
        const std::string text = mutator.next();
        try {
            run(text);
        } catch (const CompileError& error) {
            ++refused;
            EXPECT_FALSE(error.diagnostics().empty());
        } catch (const std::exception& error) {
            ADD_FAILURE() << "input " << i << ": " << error.what() << "\n" << text;
        }
        if (testing::Test::HasFailure()) break;
    }
    return refused;
}

TEST(Parser, NeverCrashesOrHangs) {
    const int refused = fuzz(valid_texts(), parse);
    EXPECT_GT(refused, kInputs / 2) << "the mutations hardly change anything";
}

TEST(Definitions, ThatParseCompile) {
    std::vector<std::string> definitions;
    for (std::string& text : valid_texts())
        if (ir::is_definition(text)) definitions.push_back(std::move(text));
    fuzz(definitions, compile);
}

}  // namespace
}  // namespace forge::tests
