/// Writes one line for every program x element type x engine x strategy: what was asked for, and a hash of the sources
/// that are emitted for it, or the words of the refusal. Nothing is compiled, and no GPU is needed. Two versions of the
/// compiler that give the same lines give the same kernels; scripts/record-sources compares.
///
///   record_sources [--quick] [--digest] [--match=TEXT] [--against=FILE] [--sources=FOLDER] [--checked] [--jobs=N]
///
/// --quick: bf16 alone, and the strategy that is chosen; --digest: one line per program, a hash of its lines; --match:
/// only lines whose name contains the text; --against: prints, instead of all lines, those that are others than in the
/// file, status 1 if there are any; --sources: writes the sources too, one file each;
/// --checked: what is not legal on its level is a failure (ir/levels.h).
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "check/problem.h"
#include "compile/driver.h"
#include "compile/request.h"
#include "forge/error.h"
#include "ir/pass.h"
#include "support/hash.h"
#include "tests/novel/novel.h"

namespace forge::tests {
namespace {

std::vector<variants::Entry> all_programs() {
    std::vector<variants::Entry> list = variants::all();
    list.insert(list.end(), novel::all().begin(), novel::all().end());
    return list;
}

struct Asked {
    variants::Entry program;
    std::string name;
    CompileOptions options;
};

/// As compile() emits it, but without compiling it.
std::string source_of(const ir::Definition& definition, const CompileOptions& options) {
    compiler::check_options(options);
    const program::Module module(definition, options.dtype);
    const auto made = compiler::emitted(module, options);
    std::string text;
    for (const GeneratedSource& source : made->sources) text += source.text;
    return text;
}

/// One line, without the folder in which the compiler or this program was built.
std::string plain(std::string words) {
    const std::string root = std::string(FORGE_ROOT) + "/";
    for (std::size_t at = words.find(root); at != std::string::npos; at = words.find(root))
        words.erase(at, root.size());
    for (std::size_t at = words.find("../"); at != std::string::npos; at = words.find("../")) words.erase(at, 3);
    std::replace(words.begin(), words.end(), '\n', '|');
    return words;
}

class Record {
  public:
    explicit Record(std::filesystem::path folder) : folder_(std::move(folder)) {}

    /// The hash, or why there are no sources.
    [[nodiscard]] std::string of(const Asked& asked) const {
        try {
            const std::string source = source_of(asked.program.make().define(), asked.options);
            if (!folder_.empty()) write(asked.name, source);
            return support::hash(source);
        } catch (const InternalError& bug) {
            return fmt::format("failed: {}", plain(bug.what()));
        } catch (const std::exception& refusal) {
            return fmt::format("refused: {}", plain(refusal.what()));
        }
    }

  private:
    void write(std::string name, const std::string& source) const {
        std::replace(name.begin(), name.end(), '/', '.');
        std::ofstream(folder_ / name) << source;
    }
    std::filesystem::path folder_;
};

/// All that is asked of one program.
class Questions {
  public:
    Questions(variants::Entry program, bool quick) : program_(std::move(program)), quick_(quick) {}

    std::vector<Asked> all() {
        for (const DType dtype : {BF16, F32, F16}) {
            if (quick_ && dtype != BF16) continue;
            dtype_ = dtype;
            for (const char* machine : {"cpu", "h200", "a100", "rtx4090"}) ask_of(machine);
        }
        return std::move(list_);
    }

  private:
    void ask_of(const std::string& machine) {
        const bool cpu = machine == "cpu", hopper = machine == "h200";
        CompileOptions base;
        base.dtype = dtype_, base.tuned = false;
        if (cpu) base.isa = "avx512", base.threads = 4;
        else base.device = "cuda", base.on = machine;
        const auto add = [&](const std::string& what, auto change) {
            CompileOptions o = base;
            change(o);
            ask(machine, what, std::move(o));
        };
        add("auto", [](CompileOptions&) {});
        add("decode", [](CompileOptions& o) { o.entry = "decode"; });
        if (cpu || hopper) add("chunk-states", [](CompileOptions& o) { o.chunk_states = true; });
        if (hopper) add("portable", [](CompileOptions& o) { o.engine = "portable"; });
        if (quick_) return;
        for (const char* strategy : {"one-pass", "fused", "decoupled", "segmented"}) {
            add(strategy, [&](CompileOptions& o) { o.strategy = strategy; });
            if (hopper)
                add(fmt::format("portable-{}", strategy),
                    [&](CompileOptions& o) { o.engine = "portable", o.strategy = strategy; });
        }
        for (const auto& [k, v] : {std::pair{60, 100}, {64, 64}, {64, 128}, {256, 256}})
            add(fmt::format("{}x{}", k, v), [&](CompileOptions& o) { o.sizes = {{"K", k}, {"V", v}}; });
        if (cpu)
            for (const char* isa : {"avx2", "plain"}) add(isa, [&](CompileOptions& o) { o.isa = isa; });
        if (cpu || machine == "a100")
            for (const int chunk : {16, 32, 128})
                add(fmt::format("chunk-{}", chunk), [&](CompileOptions& o) { o.chunk = chunk; });
        if (hopper && dtype_ != F32) add("warp-groups", [](CompileOptions& o) { o.engine = "warp-groups"; });
        if (hopper) {
            add("many-heads", [](CompileOptions& o) { o.expected_heads = 512; });
            add("threads-128", [](CompileOptions& o) { o.threads = 128; });
            add("two-tiles", [](CompileOptions& o) { o.tiles = 2; });
        }
        add("long", [](CompileOptions& o) { o.expected_tokens = 65536, o.expected_heads = 2; });
    }

    void ask(const std::string& machine, const std::string& what, CompileOptions options) {
        const ir::Definition def = program_.make().define();
        check::Problem problem;
        problem.sizes =
            options.sizes.empty() ? std::map<std::string, std::int64_t>{{"K", 128}, {"V", 128}} : options.sizes;
        options.sizes = check::sizes_for(def, problem);
        list_.push_back({program_, fmt::format("{}/{}/{}/{}", program_.name, forge::to_string(dtype_), machine, what),
                         std::move(options)});
    }

    variants::Entry program_;
    bool quick_;
    DType dtype_ = BF16;
    std::vector<Asked> list_;
};

struct Arguments {
    bool quick = false, digest = false;
    int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    std::string match, sources, against;
};

Arguments arguments_of(const std::vector<std::string>& words) {
    Arguments a;
    for (const std::string& word : words) {
        const std::string name = word.substr(0, word.find('='));
        const std::string value = word.size() > name.size() ? word.substr(name.size() + 1) : "";
        if (word == "--quick") a.quick = true;
        else if (word == "--digest") a.digest = true;
        else if (word == "--checked") ir::checks_levels() = true;
        else if (name == "--match") a.match = value;
        else if (name == "--sources") a.sources = value;
        else if (name == "--against") a.against = value;
        else if (name == "--jobs") std::from_chars(value.data(), value.data() + value.size(), a.jobs);
        else
            throw RuntimeError(
                fmt::format("record_sources: expected --quick, --digest, --match=, --against=, --sources=, --checked "
                            "or --jobs=, got '{}'",
                            word));
    }
    return a;
}

/// Calls body(i) for every i below n, in so many threads.
template <class Body>
void for_all(std::size_t n, int jobs, const Body& body) {
    std::atomic<std::size_t> next = 0;
    std::vector<std::jthread> threads;
    for (int t = 0; t < std::max(1, jobs); ++t)
        threads.emplace_back([&] {
            for (std::size_t i = next++; i < n; i = next++) body(i);
        });
}

/// Name and rest of every line that is asked for, in order.
using Lines = std::vector<std::pair<std::string, std::string>>;

Lines recorded(const Arguments& a) {
    std::vector<Asked> asked;
    for (const variants::Entry& entry : all_programs())
        for (Asked& one : Questions(entry, a.quick).all())
            if (one.name.find(a.match) != std::string::npos) asked.push_back(std::move(one));
    Lines lines(asked.size());
    if (!a.sources.empty()) std::filesystem::create_directories(a.sources);
    const Record record(a.sources);
    for_all(asked.size(), a.jobs, [&](std::size_t i) { lines[i] = {asked[i].name, record.of(asked[i])}; });
    if (!a.digest) return lines;
    Lines digests;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (i == 0 || asked[i].program.name != asked[i - 1].program.name)
            digests.push_back({asked[i].program.name, ""});
        digests.back().second += lines[i].first + ' ' + lines[i].second + '\n';
    }
    for (auto& [name, text] : digests) text = support::hash(text);
    return digests;
}

/// How many lines are others than in the file. What the file alone has was recorded with other options.
int compare(const Lines& lines, const std::string& path) {
    std::ifstream file(path);
    if (!file) throw RuntimeError(fmt::format("record_sources: cannot read '{}'", path));
    std::map<std::string, std::string> before;
    for (std::string name, rest; file >> name && std::getline(file >> std::ws, rest);) before[name] = rest;
    int others = 0;
    for (const auto& [name, rest] : lines) {
        const auto it = before.find(name);
        if (it != before.end() && it->second == rest) continue;
        ++others;
        fmt::print("{}\n    before: {}\n    now:    {}\n", name, it == before.end() ? "none" : it->second, rest);
    }
    fmt::print("{} of {} lines are as in {}\n", lines.size() - static_cast<std::size_t>(others), lines.size(), path);
    return others;
}

int run(const Arguments& a) {
    const Lines lines = recorded(a);
    if (!a.against.empty()) return compare(lines, a.against) == 0 ? 0 : 1;
    for (const auto& [name, rest] : lines) fmt::print("{} {}\n", name, rest);
    return 0;
}

}  // namespace
}  // namespace forge::tests

int main(int argc, char** argv) try {
    return forge::tests::run(forge::tests::arguments_of({argv + 1, argv + argc}));
} catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
}
