#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "frontend/join.h"
#include "graph/pipeline.h"
#include "ir/text.h"
#include "tests/novel/novel.h"

namespace forge::fuzz {
namespace {

constexpr const char* kPieces[] = {"%",
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

/// What may stand in place of any word.
constexpr const char* kWords[] = {"0",          "1",       "-1",   "2",       "3",     "16",     "1e-30",   "1e30",
                                  "0.5",        "-2",      "T",    "C",       "K",     "V",      "H",       "D",
                                  "true",       "false",   "f32",  "bf16",    "f16",   "add",    "sub",     "mul",
                                  "div",        "exp",     "log",  "neg",     "sqrt",  "max",    "min",     "sum",
                                  "cumsum",     "tril",    "triu", "permute", "relu",  "matmul", "reverse", "sigmoid",
                                  "prev_token", "softmax", "abs",  "tanh",    "l2norm"};

struct Span {
    std::size_t at, length;
};

bool is_part(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-'; }

/// The word at or after a place; empty at the end.
Span word_at(const std::string& text, std::size_t at) {
    while (at > 0 && is_part(text[at]) && is_part(text[at - 1])) --at;
    while (at < text.size() && !is_part(text[at])) ++at;
    std::size_t end = at;
    while (end < text.size() && is_part(text[end])) ++end;
    return {at, end - at};
}

}  // namespace

const std::vector<std::string>& valid_definitions() {
    static const std::vector<std::string> kTexts = [] {
        std::vector<std::string> texts;
        for (const auto* entries : {&variants::all(), &novel::all()})
            for (const variants::Entry& entry : *entries) texts.push_back(ir::print(entry.make().define()));
        return texts;
    }();
    return kTexts;
}

const std::vector<std::string>& valid_texts() {
    static const std::vector<std::string> kTexts = [] {
        std::vector<std::string> texts;
        for (const auto* entries : {&variants::all(), &novel::all()})
            for (const variants::Entry& entry : *entries) {
                const ir::Definition def = entry.make().define();
                texts.push_back(ir::print(def, {.locations = true}));
                texts.push_back(ir::print(graph::optimize(frontend::join(def))));
            }
        return texts;
    }();
    return kTexts;
}

std::int64_t extreme_number(Dice& dice) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t kNumbers[] = {0,
                                         -1,
                                         std::int64_t{1} << 31,
                                         std::int64_t{1} << 32,
                                         (std::int64_t{1} << 40) + 16,
                                         kMost / 2,
                                         kMost - 1,
                                         kMost,
                                         -kMost,
                                         -kMost - 1};
    return kNumbers[dice.below(std::size(kNumbers))];
}

std::string Mutator::next() {
    std::string text = dice_.element_of(texts_);
    const bool words = dice_.one_in(2);
    for (std::size_t n = 1 + dice_.below(4); n > 0 && !text.empty(); --n) words ? replace_word(text) : change(text);
    return text;
}

void Mutator::change(std::string& text) {
    const std::size_t at = dice_.below(text.size());
    const std::size_t length = 1 + dice_.below(std::min<std::size_t>(text.size() - at, 40));
    const char* const piece = kPieces[dice_.below(std::size(kPieces))];
    switch (dice_.below(8)) {
        case 0:
            text.erase(at, length);
            return;
        case 1:
            text[at] = static_cast<char>(dice_.below(256));
            return;
        case 2:
            text.insert(at, piece);
            return;
        case 3:
            text.replace(at, length, piece);
            return;
        case 4:
            text.insert(at, text.substr(dice_.below(text.size()), length));
            return;
        case 5:
            text.resize(at);
            return;
        case 6:
            return replace_word(text);
        default:
            swap_lines(text);
    }
}

void Mutator::replace_word(std::string& text) {
    const Span old = word_at(text, dice_.below(text.size()));
    if (old.length == 0) return;
    std::string word = kWords[dice_.below(std::size(kWords))];
    if (!dice_.one_in(3)) {
        const std::string& from = dice_.one_in(4) ? dice_.element_of(texts_) : text;
        const Span other = word_at(from, dice_.below(from.size()));
        word = from.substr(other.at, other.length);
    }
    if (!word.empty()) text.replace(old.at, old.length, word);
}

void Mutator::swap_lines(std::string& text) {
    const auto line = [&](std::size_t at) {
        const std::size_t begin = text.rfind('\n', at) + 1, end = text.find('\n', at);
        return std::pair{begin, (end == std::string::npos ? text.size() : end) - begin};
    };
    const auto [from, length] = line(dice_.below(text.size()));
    const std::string moved = text.substr(from, length);
    text.erase(from, length);
    if (!text.empty()) text.insert(line(dice_.below(text.size())).first, moved + "\n");
}

}  // namespace forge::fuzz
