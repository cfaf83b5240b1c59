/// Whatever a definition's user calls things, the kernels are the same but for their names: definitions whose inputs,
/// outputs, states, numbers and sizes have the names of everything that compilers, headers and emitters know.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "build/cache.h"
#include "build/nvrtc.h"
#include "emit/cpu/emit_cpu.h"
#include "emit/cuda/emit_cuda.h"
#include "frontend/join.h"
#include "graph/pipeline.h"
#include "ir/text.h"
#include "support/embedded.h"
#include "support/environment.h"
#include "support/files.h"
#include "support/process.h"
#include "target/channels/channels.h"
#include "target/hopper/warp_groups.h"
#include "target/simt/shared_memory.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

/// What emitters begin the user's names with.
constexpr const char* kPrefix = "t_";

const char* const kWords[] = {
    // of C and C++
    "alignas", "and", "and_eq", "asm", "auto", "bool", "break", "case", "catch", "char", "char8_t", "class", "compl",
    "concept", "const", "consteval", "constexpr", "const_cast", "continue", "co_await", "decltype", "default", "delete",
    "do", "double", "else", "enum", "explicit", "export", "extern", "false", "final", "float", "for", "friend", "goto",
    "if", "import", "inline", "int", "long", "module", "mutable", "namespace", "new", "noexcept", "not", "nullptr",
    "operator", "or", "override", "private", "public", "register", "requires", "restrict", "return", "short", "signed",
    "sizeof", "static", "static_assert", "struct", "switch", "template", "this", "thread_local", "throw", "true", "try",
    "typedef", "typeid", "typename", "typeof", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t",
    "while", "xor",
    // of their libraries and of the system
    "NULL", "errno", "assert", "min", "max", "abs", "isnan", "isinf", "signbit", "fpclassify", "INFINITY", "NAN",
    "HUGE_VAL", "M_PI", "M_E", "EOF", "INT_MAX", "FLT_MAX", "DBL_EPSILON", "EXIT_FAILURE", "EINTR", "CHAR_BIT", "I",
    "size_t", "int8_t", "uint64_t", "std", "main", "y0", "y1", "j0", "j1", "jn", "gamma", "signgam", "exp", "log",
    "linux", "unix", "i386", "__linux__", "__FILE__", "__LINE__", "__func__", "__cplusplus", "__FILE_", "_", "__",
    "_Bool", "_Complex", "_Float16", "__m512", "__attribute__", "__asm__", "__restrict__", "_mm512_add_ps",
    "_MM_HINT_T0", "_mm_prefetch", "offsetof", "va_arg", "FILE", "stdin", "stdout", "environ", "forge", "device", "cpu",
    // of CUDA
    "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "warp", "float4", "float2", "int4", "uint3", "dim3",
    "half", "half2", "bfloat16", "__half", "__nv_bfloat16", "cuda", "cudaStream_t", "ptx", "clock", "clock64", "printf",
    "malloc", "__global__", "__device__", "__shared__", "__launch_bounds__", "__CUDACC__", "__CUDA_ARCH__",
    "__syncthreads", "__shfl_sync", "atomicAdd", "surface", "texture", "tex1D", "saturate", "rsqrt", "rsqrtf",
    "make_float4", "CUDART_INF_F", "wmma", "nvcuda", "grid_constant",
    // of Forge's text form and language
    "input", "state", "output", "param", "role", "name", "loc", "func", "linear_attention", "scalar", "head", "pad",
    "range", "chunk", "decay", "merge", "step", "prev_s", "chunk_state", "f32", "bf16", "inf", "nan"};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// Identifiers and all else, in order.
std::vector<std::string> pieces_of(const std::string& text) {
    std::vector<std::string> pieces;
    for (std::size_t i = 0; i < text.size();) {
        std::size_t end = i + 1;
        while (is_word(text[i]) && end < text.size() && is_word(text[end])) ++end;
        pieces.push_back(text.substr(i, end - i));
        i = end;
    }
    return pieces;
}

using Renaming = std::map<std::string, std::string>;

std::string renamed(const std::string& text, const Renaming& names) {
    std::string out;
    for (const std::string& piece : pieces_of(text)) {
        const auto it = names.find(piece);
        out += it == names.end() ? piece : it->second;
    }
    return out;
}

std::string without_comments(const std::string& source) {
    std::string out;
    for (std::size_t i = 0; i < source.size(); ++i) {
        if (source.compare(i, 2, "//") == 0) i = source.find('\n', i);
        out += source[i];
    }
    return out;
}

/// An engine, a variant that it takes, and how that is emitted.
struct Target {
    const char* name;
    bool on_cpu;
    const char* variant;
    std::vector<std::string> named;  ///< in the variant's text
    std::string (*emitted)(const ir::Definition& def, const ir::Function& program, const tile::Sizes& sizes);
};

std::string emit_with(const plan::Schedule& schedule, const ir::Definition& def, const ir::Function& program,
                      const tile::Sizes& sizes) {
    const plan::Plan plan = plan::make_plan(def, program, sizes, schedule);
    return schedule.shared_memory ? emit::emit_cuda(plan) : emit::emit_cpu(plan);
}

const Target kTargets[] = {
    {"cpu",
     true,
     "gated_delta_net",
     {"q", "k", "v", "g", "beta", "scale", "s", "o", "K", "V", "H", "HV"},
     [](const auto& def, const auto& program, const auto& sizes) {
         plan::Schedule schedule;
         schedule.chunk = 16, schedule.vector_width = 16, schedule.strategy = plan::Strategy::Decoupled;
         return emit_with(schedule, def, program, sizes);
     }},
    {"cpu_rows",
     true,
     "hawk",
     {"x", "r", "i", "lambda", "h", "o", "D", "H"},
     [](const auto& def, const auto& program, const auto& sizes) {
         plan::Schedule schedule;
         schedule.chunk = 16, schedule.vector_width = 16;
         return emit_with(schedule, def, program, sizes);
     }},
    {"portable",
     false,
     "gated_delta_net",
     {"q", "k", "v", "g", "beta", "scale", "s", "o", "K", "V", "H", "HV"},
     [](const auto& def, const auto& program, const auto& sizes) {
         return emit_with(target::fit_shared_memory(def, program, sizes, {220 * 1024, 132}, {}), def, program, sizes);
     }},
    {"warp_groups",
     false,
     "scalar_gla",
     {"q", "k", "v", "g", "scale", "s", "o", "K", "V", "H", "HV"},
     [](const auto& def, const auto& program, const auto& sizes) {
         target::FitWishes wishes;
         wishes.expected_tasks = 32, wishes.expected_tokens = 32768;
         const auto schedule = target::fit_warp_groups(def, program, sizes, {220 * 1024, 132, 227 * 1024}, wishes);
         return emit_with(schedule, def, program, sizes);
     }},
    {"channels",
     false,
     "hgrn",
     {"q", "v", "g", "h", "o", "D", "H"},
     [](const auto& def, const auto& program, const auto& sizes) {
         return emit_with(target::fit_channels(def, program, sizes, {}, 256, 1), def, program, sizes);
     }}};

std::string definition_of(const Target& target) {
    return ir::print(frontend::with_dtype(variants::find(target.variant)->make().define(), BF16));
}

/// The source of a definition's text, without comments.
std::string source_of(const Target& target, const std::string& text, const Renaming& names) {
    const ir::Definition def = ir::parse_definition(text);
    tile::Sizes sizes;
    for (const char* size : {"K", "V", "D"})
        if (std::find(target.named.begin(), target.named.end(), size) != target.named.end())
            sizes[renamed(size, names)] = 64;
    return without_comments(target.emitted(def, graph::optimize(frontend::join(def)), sizes));
}

/// With every one of the names somewhere, as many at a time as there is room for. Values that the text gives such a
/// name are called something else.
template <class Use>
void for_names(const Target& target, const std::set<std::string>& all, const Use& use) {
    const std::vector<std::string> names(all.begin(), all.end());
    const std::string text = definition_of(target);
    for (std::size_t first = 0; first < names.size(); first += target.named.size()) {
        Renaming renaming;
        for (std::size_t i = 0; i < target.named.size(); ++i) {
            const std::string& name = names[(first + i) % names.size()];
            if (text.find("%" + name + ":") != std::string::npos) renaming.emplace(name, "other_" + name);
            renaming[target.named[i]] = name;
        }
        renaming[target.variant] = names[first];
        use(renaming);
    }
}

/// What stands in the library's headers and in emitted kernels, and what users could call things to meet names that
/// emitters make.
std::set<std::string> all_names() {
    std::set<std::string> names(std::begin(kWords), std::end(kWords));
    std::vector<std::string> texts;
    for (const EmbeddedFile& file : device_sources()) texts.push_back(without_comments(file.text));
    for (const Target& target : kTargets) texts.push_back(source_of(target, definition_of(target), {}));
    for (const std::string& text : texts)
        for (const std::string& word : pieces_of(text)) {
            if (!ir::is_identifier(word)) continue;
            names.insert(word);
            if (word.starts_with(kPrefix)) names.insert(word.substr(2)), names.insert(word.substr(2) + "_");
        }
    for (const std::string& own : {ir::kTokenSymbol, ir::kChunkSymbol, ir::kTokenMaskName}) names.erase(own);
    return names;
}

/// Empty if two sources differ in nothing but what the names that begin with the prefix are, the same one in all of a
/// kernel; a state's name in one kernel may lead to that of an output in another.
std::string difference(const std::string& a, const std::string& b) {
    const std::vector<std::string> before = pieces_of(a), after = pieces_of(b);
    if (before.size() != after.size()) return "not as many words";
    Renaming there, back;
    for (std::size_t i = 0; i < before.size(); ++i) {
        const std::string &x = before[i], &y = after[i];
        if (x.starts_with("FORGE_KERNEL")) there.clear(), back.clear();
        const bool own = x.starts_with(kPrefix) && y.starts_with(kPrefix);
        const bool symbol = x.starts_with("forge_") && y.starts_with("forge_");  // of a kernel
        if (!own && !symbol && x != y) return fmt::format("'{}' for '{}'", y, x);
        if (there.emplace(x, y).first->second != y || back.emplace(y, x).first->second != x)
            return fmt::format("'{}' for '{}' and for '{}'", y, x, back[y]);
    }
    return "";
}

class EmittedNames : public testing::TestWithParam<Target> {};

TEST_P(EmittedNames, ChangeNothingElse) {
    const std::string text = definition_of(GetParam()), before = source_of(GetParam(), text, {});
    for_names(GetParam(), all_names(), [&](const Renaming& names) {
        const std::string source = source_of(GetParam(), renamed(text, names), names);
        EXPECT_EQ(difference(before, source), "") << renamed(text, names);
    });
}

// Every axis by the names of all axes that the compiler knows, not only by the one that is its turn above.
TEST_P(EmittedNames, MayBeThoseOfAxes) {
    const std::string text = definition_of(GetParam()), before = source_of(GetParam(), text, {});
    for (const char* axis : {"K", "V", "D", "H", "HV"}) {
        if (std::find(GetParam().named.begin(), GetParam().named.end(), axis) == GetParam().named.end()) continue;
        for (const char* name : {"heads", "tokens", "channels", "rows", "chunks", "B", "N"}) {
            const Renaming names = {{axis, name}};
            EXPECT_EQ(difference(before, source_of(GetParam(), renamed(text, names), names)), "")
                << axis << " " << name;
        }
    }
}

/// The macros that emitted kernels see on a CPU.
std::string macros(const build::Cache& cache) {
    support::publish_file(cache.place("macros.cpp"),
                          "#include <cmath>\n#include <errno.h>\n#include <immintrin.h>\n#include <limits>\n"
                          "#include \"common/call.h\"\n#include \"cpu/kernel.h\"\n#include \"cpu/last_rows.h\"\n");
    return support::run_process({support::find_program("c++"), "-std=c++20", "-dM", "-E", "-mavx512f", "-iquote",
                                 cache.headers().string(), cache.place("macros.cpp").string()})
        .output;
}

TEST(EmittedNames, BeginLikeNothingElse) {
    const build::Cache cache(support::default_cache_dir());
    std::string all = macros(cache);
    EXPECT_NE(all.find("#define NULL"), std::string::npos) << all;
    for (const EmbeddedFile& file : device_sources()) all += file.text;
    for (const std::string& word : pieces_of(all)) EXPECT_FALSE(word.starts_with(kPrefix)) << word;
}

/// All of a target's sources with the names of kWords as one.
std::string sources(const Target& target) {
    std::string all;
    const std::string text = definition_of(target);
    for_names(target, {std::begin(kWords), std::end(kWords)},
              [&](const Renaming& names) { all += source_of(target, renamed(text, names), names); });
    return all;
}

TEST_P(EmittedNames, AreCompiled) {
    const build::Cache cache(support::default_cache_dir());
    const std::string all = sources(GetParam());
    if (!GetParam().on_cpu) {
        if (!build::Nvrtc::find()) GTEST_SKIP() << "no libnvrtc on this machine";
        // Only the front end: --device-debug and --Ofast-compile make NVRTC write worse code of all that the process
        // compiles afterwards.
        const auto made = build::Nvrtc::find()->compile(
            "names.cu", all,
            {"-std=c++20", "--gpu-architecture=compute_90a", "--fdevice-syntax-only", "-I" + cache.headers().string()});
        EXPECT_TRUE(made.ok) << made.log;
        return;
    }
    const auto file = cache.place(fmt::format("names_{}.cpp", GetParam().name));
    support::publish_file(file, all);
    const support::Finished done = support::run_process(
        {support::find_program("c++"), "-std=c++20", "-fsyntax-only", "-w", "-mavx512f", "-mavx512bw", "-mavx512vl",
         "-mavx512dq", "-mfma", "-mf16c", "-iquote", cache.headers().string(), file.string()});
    EXPECT_EQ(done.status, 0) << done.output;
}

INSTANTIATE_TEST_SUITE_P(All, EmittedNames, testing::ValuesIn(kTargets),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace forge::tests
