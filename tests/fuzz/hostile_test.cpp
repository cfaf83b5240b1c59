/// Texts that want their own code in emitted sources. Whatever stands where a definition has a name, a file, a size, a
/// number or a location, it is refused, or what is emitted holds nothing of it but comments.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "emit/cpu/emit_cpu.h"
#include "emit/cuda/emit_cuda.h"
#include "forge/error.h"
#include "forge/language.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "interp/semantics.h"
#include "ir/text.h"
#include "plan/plan.h"
#include "target/simt/shared_memory.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

constexpr const char* kMark = "forge_planted";

const char* const kPayloads[] = {
    "forge_planted();",
    "\"); forge_planted(); (\"",
    "1*\"; forge_planted(); \"",
    "x\rforge_planted();//",
    "x\nforge_planted();//",
    "x\\\nforge_planted();//",
    "x\\",
    "x\v\fforge_planted",
    "*/ forge_planted(); /*",
    "x?\?/\nforge_planted();",
    "x%d%s%n forge_planted",
    "{} {0} {{forge_planted}}",
    "../../forge_planted",
    "/etc/forge_planted",
    "x\x01\x7f\x1b[31mforge_planted",
    "x\xe2\x80\xa8"
    "forge_planted();",
    "-forge_planted",
    "%forge_planted",
    "x.forge_planted()",
    "forge_planted+1",
};

/// Lines as the compiler sees them: ended by a line feed, a carriage return or both, continued by a backslash.
std::string without_comments(const std::string& source) {
    std::string out;
    bool comment = false;
    for (std::size_t i = 0; i < source.size(); ++i) {
        const char c = source[i];
        if (c == '\\' && i + 1 < source.size() && (source[i + 1] == '\n' || source[i + 1] == '\r')) {
            ++i;
            continue;
        }
        if (c == '\n' || c == '\r') comment = false;
        else if (c == '/' && i + 1 < source.size() && source[i + 1] == '/') comment = true;
        if (!comment) out += c;
    }
    return out;
}

const tile::Sizes kSizes = {{"K", 16}, {"V", 16}, {"D", 16}, {"H", 2}, {"HV", 2}};

std::vector<std::string> sources_of(const ir::Definition& def) {
    if (!interp::check_semantics(def).empty()) return {};
    const ir::Function program = graph::optimize(frontend::join(def));
    plan::Schedule schedule;
    schedule.chunk = 16;
    std::vector<std::string> sources = {emit::emit_cpu(plan::make_plan(def, program, kSizes, schedule))};
    const target::SharedMemory gpu{99 * 1024, 108, 99 * 1024};
    sources.push_back(emit::emit_cuda(
        plan::make_plan(def, program, kSizes, target::fit_shared_memory(def, program, kSizes, gpu, {}))));
    return sources;
}

void expect_harmless(const std::string& text) {
    std::vector<std::string> sources;
    try {
        const ir::Definition def = ir::parse_definition(text, "a\r\n\"file\\");
        EXPECT_EQ(ir::print(ir::parse_definition(ir::print(def, {.locations = true})), {.locations = true}),
                  ir::print(def, {.locations = true}));
        sources = sources_of(def);
    } catch (const CompileError&) {
    } catch (const RuntimeError&) {  // sizes of its own
    } catch (const std::exception& error) {
        FAIL() << error.what() << "\n" << text;
    }
    for (const std::string& source : sources)
        EXPECT_EQ(without_comments(source).find(kMark), std::string::npos) << text << "\n" << source;
}

std::vector<std::string> texts() {
    std::vector<std::string> all;
    for (const char* name : {"scalar_gla", "gated_delta_net", "hgrn", "retnet"})
        all.push_back(ir::print(variants::find(name)->make().define(), {.locations = true}));
    return all;
}

/// Where words, numbers and strings of a text begin, and their lengths.
std::vector<std::pair<std::size_t, std::size_t>> pieces_of(const std::string& text) {
    std::vector<std::pair<std::size_t, std::size_t>> pieces;
    const auto is_part = [&](std::size_t i) {
        return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        const std::size_t begin = i;
        while (is_part(i)) ++i;
        if (i > begin) pieces.emplace_back(begin, i - begin);
    }
    return pieces;
}

// Every word of a definition in turn, and the same word everywhere, becomes each payload: with quotes and without.
TEST(HostileTexts, PlantNothing) {
    std::mt19937 random(7);
    for (const std::string& text : texts())
        for (const auto& [at, length] : pieces_of(text)) {
            const std::string payload = kPayloads[random() % std::size(kPayloads)];
            const std::string planted =
                random() % 2 == 0 ? payload : ir::escaped(payload);  // what the text form itself would write
            std::string once = text;
            once.replace(at, length, planted);
            expect_harmless(once);
            const std::string word = text.substr(at, length);
            std::string everywhere;
            std::size_t from = 0;
            for (const auto& [other, size] : pieces_of(text))
                if (text.compare(other, size, word) == 0) {
                    everywhere += text.substr(from, other - from) + planted;
                    from = other + size;
                }
            expect_harmless(everywhere + text.substr(from));
            if (testing::Test::HasFailure()) return;
        }
}

std::string message_of(const std::function<void()>& run) {
    try {
        run();
    } catch (const CompileError& error) {
        return error.what();
    }
    return "";
}

TEST(HostileTexts, AreRefusedByTheLanguageToo) {
    const auto with = [](const std::string& name, const std::string& input, const std::string& symbol, double number) {
        const auto [T, H, K] = dims("T", "H", "K");
        const Dim V(symbol);
        LinearAttention a(name);
        a.input(input, F32, {T, H, K}).input("v", F32, {T, H, V});
        a.state("s", F32, {K, V});
        a.chunk({input, "v"}, [](Tensor k, Tensor v) { return matmul(transpose(k), v); });
        a.decay({"prev_s", "chunk_state"}, [=](Tensor s, Tensor c) { return s * number + c; });
        a.merge({input, "chunk_state"}, [](Tensor k, Tensor s) { return matmul(k, s); });
        return message_of([&] { static_cast<void>(a.define()); });
    };
    EXPECT_EQ(with("fine", "k", "V", 1.0), "");
    for (const char* payload : kPayloads) {
        EXPECT_NE(with(payload, "k", "V", 1.0).find("definition: not a name"), std::string::npos) << payload;
        EXPECT_NE(with("a", payload, "V", 1.0).find("input: not a name"), std::string::npos) << payload;
        EXPECT_NE(with("a", "k", payload, 1.0).find("size: not a name"), std::string::npos) << payload;
    }
    EXPECT_NE(with("a", "k", "V", 1e39).find("constant: beyond float32's range"), std::string::npos);
}

TEST(HostileTexts, StayWhatTheyAreInStrings) {
    std::string all;
    for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
    const std::string text =
        fmt::format("func @f {{\n  %0: f32[] = constant() {{value=1}} loc(\"{}\":1:2)\n  return input \"o\" = %0\n}}\n",
                    ir::escaped(all));
    const ir::Function fn = ir::parse_function(text);
    EXPECT_EQ(fn.op(0).where.file, all);
    EXPECT_EQ(ir::print(fn, {.locations = true}), text);
}

}  // namespace
}  // namespace forge::tests
