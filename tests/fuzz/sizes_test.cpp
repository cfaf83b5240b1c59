/// Sizes that nobody means, at random: in calls, in bounds of calls, in options and in definitions. Each is refused in
/// words, or served; arithmetic that overflows is for the sanitizer to find.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <string>

#include "check/problem.h"
#include "forge/runtime.h"
#include "ir/text.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

using Random = std::mt19937_64;

std::int64_t power(Random& random, unsigned least, unsigned most) {
    return std::int64_t{1} << (least + random() % (most - least + 1));
}

/// Few and many, powers of two and their neighbours.
std::int64_t extreme(Random& random) {
    switch (random() % 8) {
        case 0:
            return -power(random, 0, 62);
        case 1:
            return -kMost - 1;
        case 2:
            return kMost;
        case 3:
            return static_cast<std::int64_t>(random() % 4);
        case 4:
            return power(random, 0, 62) - 1;
        default:
            return power(random, 0, 62);
    }
}

/// Whether `run` returns; what it throws must be words about what is wrong.
template <class Run>
bool serves(const Run& run, const std::string& what) {
    try {
        run();
        return true;
    } catch (const CompileError&) {
    } catch (const RuntimeError&) {
    } catch (const std::exception& error) {
        ADD_FAILURE() << what << ": " << error.what();
    }
    return false;
}

CompileOptions options_for(const char* strategy, const char* on) {
    CompileOptions options{.dtype = on ? BF16 : F32, .sizes = {{"K", 64}, {"V", 64}}, .strategy = strategy};
    if (on) options.device = "cuda", options.on = on;
    else options.isa = "plain", options.threads = 2;
    options.tuned = false;
    return options;
}

/// On the CPU, and planned for GPUs, which takes no compiler.
const std::vector<Attention>& compiled() {
    static const std::vector<Attention> kAll = [] {
        std::vector<Attention> all;
        for (const char* strategy : {"one-pass", "segmented"})
            all.push_back(compile(variants::scalar_gla(), options_for(strategy, nullptr)));
        for (const char* strategy : {"auto", "decoupled", "segmented"})
            for (const char* on : {"h200", "a100"})
                all.push_back(compile(variants::scalar_gla(), options_for(strategy, on)));
        return all;
    }();
    return kAll;
}

TEST(ExtremeSizes, OfBoundsAreRefusedOrServed) {
    Random random(1);
    for (int i = 0; i < 20000; ++i) {
        const Attention& attention = compiled()[random() % compiled().size()];
        Bounds bounds{extreme(random), extreme(random), extreme(random), random() % 2 == 0};
        for (std::int64_t* n : {&bounds.sequences, &bounds.tokens, &bounds.heads})
            if (random() % 3 == 0) *n = static_cast<std::int64_t>(random() % 100);
        const std::string what =
            std::to_string(bounds.sequences) + " " + std::to_string(bounds.tokens) + " " + std::to_string(bounds.heads);
        std::size_t bytes = 0;
        if (!serves([&] { bytes = attention.workspace_bytes(bounds); }, what)) continue;
        Bounds fewer = bounds;  // the workspace does not fall when a bound rises
        fewer.heads /= 2, fewer.tokens -= fewer.tokens / 3;
        EXPECT_LE(attention.workspace_bytes(fewer), bytes) << what;
    }
}

TEST(ExtremeSizes, OfCallsAreRefusedOrServed) {
    const ir::Definition def = variants::scalar_gla().define();
    check::Problem problem;
    problem.B = 2, problem.T = 5, problem.H = 2, problem.sizes = {{"K", 64}, {"V", 64}}, problem.initial_state = true;
    const check::Buffers buffers(def, problem);
    problem.lengths = {3, 2};
    const check::Buffers packed(def, problem);
    Random random(2);
    const auto change = [&](std::vector<std::int64_t>& list) {
        if (!list.empty()) list[random() % list.size()] = extreme(random);
    };
    for (int i = 0; i < 20000; ++i) {
        Call call = (random() % 2 == 0 ? buffers : packed).call();
        const Attention& attention = compiled()[random() % compiled().size()];
        std::vector<TensorView*> views;
        for (auto* group : {&call.tensors, &call.initial_states, &call.final_states})
            for (auto& [name, view] : *group) views.push_back(&view);
        if (random() % 2 == 0) {  // one number of all tensors
            const std::size_t axis = random() % 2 + (call.cu_seqlens ? 0 : 1);
            const std::int64_t n = extreme(random);
            for (auto& [name, view] : call.tensors) view.shape[axis] = n;
            for (auto* states : {&call.initial_states, &call.final_states})
                for (auto& [name, view] : *states) view.shape[1] = n;
        } else {
            TensorView& view = *views[random() % views.size()];
            change(random() % 2 == 0 ? view.shape : view.strides);
        }
        if (call.cu_seqlens && random() % 4 == 0)
            call.cu_seqlens->shape[0] = std::min<std::int64_t>(3, extreme(random));
        if (call.cu_seqlens && random() % 4 == 0) call.cu_seqlens->data = nullptr;
        for (auto& [name, view] : call.tensors)
            if (!attention.isa().starts_with("sm_")) view.dtype = is_half(view.dtype) ? F32 : view.dtype;
        serves([&] { static_cast<void>(attention.workspace_bytes(call)); }, "a call");
    }
}

TEST(ExtremeSizes, OfOptionsAreRefusedOrServed) {
    Random random(3);
    for (int i = 0; i < 150; ++i) {
        CompileOptions options =
            options_for(random() % 2 == 0 ? "auto" : "segmented", random() % 2 == 0 ? "h200" : "a100");
        const auto some = [&](auto& field) {
            if (random() % 4 == 0) field = static_cast<std::remove_reference_t<decltype(field)>>(extreme(random));
        };
        some(options.sizes["K"]), some(options.sizes["V"]), some(options.tiles), some(options.segments);
        some(options.threads), some(options.expected_tokens), some(options.expected_sequences);
        some(options.expected_heads);
        serves([&] { static_cast<void>(compile(variants::scalar_gla(), options)); },
               "K = " + std::to_string(options.sizes["K"]) + ", V = " + std::to_string(options.sizes["V"]) +
                   ", tiles " + std::to_string(options.tiles));
    }
}

bool is_word(const std::string& text, std::size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
}

/// The text with every word changed that `change` gives another text for.
template <class Change>
std::string with_words(const std::string& text, const Change& change) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        std::size_t end = i + 1;
        while (is_word(text, i) && is_word(text, end)) ++end;
        const std::string piece = text.substr(i, end - i);
        const bool value = i > 0 && text[i - 1] == '%';
        out += value ? piece : change(piece);
        i = end;
    }
    return out;
}

// An axis as long as a multiple of its symbol, everywhere; or one of all numbers.
// On a GPU three tiles of 21 left out the last of 64 columns.
TEST(Tiles, DivideTheirAxis) {
    const ir::Definition def = variants::find("linear_attention")->make().define();
    for (const char* on : {"", "h200", "a100"})
        for (const std::int64_t tiles : {3, 65, 1 << 12}) {
            CompileOptions options = options_for("one-pass", *on ? on : nullptr);
            options.engine = *on ? "portable" : "auto";
            options.tiles = tiles;
            EXPECT_THROW(static_cast<void>(compile(def, options)), RuntimeError) << on << " " << tiles;
        }
}

TEST(ExtremeSizes, OfDefinitionsAreRefusedOrServed) {
    Random random(4);
    int served = 0;
    for (int i = 0; i < 150; ++i) {
        const char* name = std::array{"scalar_gla", "kda", "hgrn", "hawk"}[random() % 4];
        const std::string text = ir::print(variants::find(name)->make().define());
        const std::string symbol(1, "KVDC"[random() % 4]);
        std::int64_t n = random() % 2 == 0 ? power(random, 24, 31) - 1 : extreme(random);
        if (n < 1 << 24 && n > 0) n = static_cast<std::int64_t>(1 + random() % 16);  // others are served, and take long
        std::size_t wanted = random() % 60;
        const std::string changed =
            random() % 2 == 0
                ? with_words(text, [&](const std::string& w) { return w == symbol ? std::to_string(n) + "*" + w : w; })
                : with_words(text, [&](const std::string& w) {
                      const bool number = w.find_first_not_of("0123456789") == std::string::npos;
                      return number && wanted-- == 0 ? std::to_string(n) : w;
                  });
        CompileOptions options = options_for("auto", "a100");
        options.sizes["D"] = 64;
        served += serves([&] { static_cast<void>(compile(ir::parse_definition(changed), options)); }, changed);
    }
    EXPECT_GT(served, 10);
}

}  // namespace
}  // namespace forge::tests
