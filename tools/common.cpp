#include "common.h"

#include <fmt/format.h>
#include <sys/times.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "forge/compose.h"
#include "graph/derive.h"
#include "ir/text.h"
#include "variants/variants.h"

namespace forge::tools {
namespace {

/// Code points, which is columns for the letters and symbols that we print.
std::size_t width_of(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::pair<std::string, std::int64_t> parse_size(const std::string& text) {
    const std::size_t equals = text.find('=');
    std::int64_t value = 0;
    const char *const end = text.data() + text.size(), *const begin =
                                                           equals == std::string::npos ? end : &text[equals + 1];
    if (const auto read = std::from_chars(begin, end, value); read.ec != std::errc() || read.ptr != end) value = 0;
    if (value <= 0) throw RuntimeError(fmt::format("--size: expected SYMBOL=NUMBER, such as D=64; got '{}'", text));
    return {text.substr(0, equals), value};
}

/// A variant of named parts: compose:decay=vector,update=delta, of functions in a file: compose:functions=FILE.
ir::Definition composed_of_text(const std::string& spec) {
    std::vector<std::pair<std::string, std::string>> chosen;
    std::istringstream list(spec.substr(kComposed.size()));
    for (std::string item; std::getline(list, item, ',');) {
        const std::size_t equals = item.find('=');
        if (equals == std::string::npos)
            throw RuntimeError(fmt::format("{}: expected PART=CHOICE, such as update=delta; got '{}'", spec, item));
        chosen.emplace_back(item.substr(0, equals), item.substr(equals + 1));
    }
    return composed(std::move(chosen));
}

constexpr double kQuiet = target::Measurement::kQuiet;

Timing time_once(const std::function<void()>& run) {
    constexpr std::size_t kLeast = 3, kMost = 1000;
    constexpr double kEnough = 0.5;
    const Contention contention;
    std::vector<double> times;
    double total = 0;
    while (times.size() < kLeast || (total < kEnough && times.size() < kMost)) {
        const auto start = std::chrono::steady_clock::now();
        run();
        times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        total += times.back();
    }
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return {times[times.size() / 2], contention.others()};
}

}  // namespace

std::string read_file(const std::string& path) {
    const std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (!file || !(text << file.rdbuf())) throw RuntimeError(fmt::format("cannot read '{}'", path));
    return text.str();
}

ir::Definition composed(std::vector<std::pair<std::string, std::string>> chosen) {
    for (auto& [part, choice] : chosen)
        if (part == "functions") choice = read_file(choice);
    return compose(composition_of(chosen)).define();
}

namespace {

/// Definitions are files in text form: those of other languages are told so.
void refuse_source(const std::string& path) {
    const std::string extension = std::filesystem::path(path).extension().string();
    for (const char* other : {".py", ".cpp", ".cc", ".cxx", ".h", ".ipynb"})
        if (extension == other)
            throw RuntimeError(fmt::format(
                "'{}': expected a definition in text form, got {}; `forge compose … -o FILE` and `forge derive "
                "VARIANT` "
                "write such; in Python a variant has check(), cost() and benchmark(), and forge.search takes it",
                path, extension == ".py" || extension == ".ipynb" ? "Python" : "C++"));
}

}  // namespace

ir::Definition find_variant(const std::string& name_or_path) {
    if (const variants::Entry* entry = variants::find(name_or_path)) return entry->make().define();
    if (name_or_path.starts_with(kComposed)) return graph::with_phases(composed_of_text(name_or_path));
    if (std::ifstream(name_or_path).good()) refuse_source(name_or_path);
    if (std::ifstream(name_or_path).good())
        return graph::with_phases(ir::parse_definition(read_file(name_or_path), name_or_path));
    throw RuntimeError(fmt::format(
        "'{}' is neither a variant nor a file with a definition; `forge list` prints the variants", name_or_path));
}

DType dtype_named(const std::string& name) {
    for (const DType dtype : {F32, BF16, F16})
        if (to_string(dtype) == name) return dtype;
    throw RuntimeError(fmt::format("--dtype: expected f32, bf16 or f16; got '{}'", name));
}

check::Problem problem_of(const ShapeOptions& shape) {
    check::Problem problem;
    problem.B = shape.B, problem.T = shape.T, problem.H = shape.H, problem.HV = shape.HV;
    problem.sizes = {{"K", shape.K}, {"V", shape.V}};
    for (const std::string& text : shape.sizes)
        problem.sizes.insert_or_assign(parse_size(text).first, parse_size(text).second);
    problem.dtype = dtype_named(shape.dtype);
    problem.seed = shape.seed;
    return problem;
}

check::Problem problem_of(const ShapeOptions& shape, const BuildOptions& build) {
    check::Problem problem = problem_of(shape);
    problem.state_dtype = dtype_named(build.state_dtype);
    return problem;
}

CompileOptions compile_options(const ir::Definition& definition, const check::Problem& problem,
                               const BuildOptions& options) {
    CompileOptions o;
    o.dtype = problem.dtype;
    o.sizes = check::sizes_for(definition, problem);
    o.device = options.device;
    o.on = options.on;
    o.engine = options.engine;
    o.strategy = options.strategy;
    o.entry = options.entry;
    o.state_dtype = dtype_named(options.state_dtype);
    o.chunk = options.chunk;
    o.tiles = options.tiles;
    o.segments = options.segments;
    o.rule = options.rule;
    o.tuned = !options.untuned;
    o.load = options.load;
    o.isa = options.isa;
    o.threads = options.threads;
    o.cache_dir = options.cache_dir;
    o.expected_tokens = std::max<std::int64_t>(problem.T, 1);
    o.expected_sequences = problem.sequences();
    o.expected_heads = std::max(problem.H, problem.HV);
    return o;
}

Attention build(const ir::Definition& definition, const check::Problem& problem, const BuildOptions& options) {
    return compile(definition, compile_options(definition, problem, options));
}

int thread_count(int asked) {
    return asked > 0 ? asked : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

Table::Table(std::vector<std::string> headers) {
    for (std::string& header : headers) {
        right_.push_back(header.starts_with('>'));
        if (right_.back()) header.erase(0, 1);
    }
    rows_.push_back(std::move(headers));
}

void Table::row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::text() const {
    std::vector<std::size_t> widths(right_.size(), 0);
    for (const auto& cells : rows_)
        for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width_of(cells[i]));
    std::string out;
    for (const auto& cells : rows_) {
        std::string line;
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string space(widths[i] - width_of(cells[i]), ' ');
            line += (i == 0 ? "" : "  ") + (right_[i] ? space + cells[i] : cells[i] + space);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + '\n';
    }
    return out;
}

Progress::Progress(std::size_t total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { clear(); }

void Progress::clear() const {
    if (terminal_) fmt::print(stderr, "\r\x1b[K");
}

void Progress::step(const std::string& what) {
    ++done_;
    if (!terminal_) return;
    clear();
    fmt::print(stderr, "[{}/{}] {}", done_, total_, what);
    std::fflush(stderr);
}

/// The first line of /proc/stat is in ticks: user nice system idle iowait irq softirq steal. `own` counts children too:
/// the sgemm ceiling is measured in one.
Contention::Seconds Contention::now() {
    std::ifstream stat("/proc/stat");
    std::string cpu;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft_irq = 0, steal = 0;
    if (!(stat >> cpu >> user >> nice >> system >> idle >> wait >> irq >> soft_irq >> steal)) return {};
    const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    tms times{};
    ::times(&times);
    const double busy = user + nice + system + irq + soft_irq + steal;
    const auto own = static_cast<double>(times.tms_utime + times.tms_stime + times.tms_cutime + times.tms_cstime);
    return {busy / ticks, (busy + idle + wait) / ticks, own / ticks};
}

Contention::Contention() : start_(now()) {}

double Contention::others() const {
    constexpr double kEnough = 0.2;  // seconds: ticks are 10 ms
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - made_;
    if (passed.count() < kEnough) std::this_thread::sleep_for(std::chrono::duration<double>(kEnough) - passed);
    const Seconds end = now();
    const double all = end.all - start_.all, others = (end.busy - start_.busy) - (end.own - start_.own);
    return all > 0 ? std::clamp(others / all, 0.0, 1.0) : 0;
}

std::string Contention::warning(double others) {
    if (others < kQuiet) return "";
    return fmt::format(
        "Other processes used up to {:.0f} % of the cores meanwhile: these times are not the machine's best.\n",
        100 * others);
}

Timing time_runs(const std::function<void()>& run, int attempts) {
    run();
    Timing best = time_once(run);
    for (int i = 1; i < attempts && best.others >= kQuiet; ++i) {
        const Timing again = time_once(run);
        if (again.others < best.others) best = again;
    }
    return best;
}

std::string seconds_text(double seconds) {
    if (seconds < 1e-3) return fmt::format("{:.1f} µs", seconds * 1e6);
    return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

}  // namespace forge::tools
