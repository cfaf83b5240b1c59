/// What the commands share: finding a variant by name or file, compiling it, tables, and progress that shows on a
/// terminal only. No command line parsing (command_options.h) and no JSON (json.h) here.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "check/problem.h"
#include "forge/runtime.h"
#include "ir/definition.h"
#include "target/choose.h"

namespace forge::tools {

/// The shape of a call, from the command line.
struct ShapeOptions {
    std::int64_t B = 1, T = 4096, H = 4, HV = 0, K = 128, V = 128;
    std::vector<std::string> sizes;  ///< "D=64": sizes of other symbols
    std::string dtype = "f32";
    std::uint64_t seed = 1;
};

/// How to compile, from the command line.
struct BuildOptions {
    std::string device = "cpu", engine = "auto";
    std::string on;  ///< a GPU that need not be there; device is then cuda
    std::string entry = "forward", state_dtype = "f32";
    std::string strategy = "auto", isa = "auto", cache_dir;
    std::int64_t chunk = 0, tiles = 0, segments = 0;
    std::string rule = "cost";
    bool untuned = false;  ///< leave the tuning database aside
    int threads = 0;
    bool load = true;  ///< whether kernels are compiled, to be called; no option of users, but of the command
};

/// What begins the name of a variant of parts.
inline const std::string kComposed = "compose:";
/// The variant of these parts; of "functions" the file.
ir::Definition composed(std::vector<std::pair<std::string, std::string>> chosen);
/// A name of the zoo, parts of a variant (compose:decay=vector,update=delta), or the path of a definition in text form;
/// RuntimeError if it is none of these.
ir::Definition find_variant(const std::string& name_or_path);
std::string read_file(const std::string& path);  ///< RuntimeError if it cannot be read
DType dtype_named(const std::string& name);

check::Problem problem_of(const ShapeOptions& shape);
/// … of calls of what is built so.
check::Problem problem_of(const ShapeOptions& shape, const BuildOptions& build);
CompileOptions compile_options(const ir::Definition& definition, const check::Problem& problem,
                               const BuildOptions& options);
Attention build(const ir::Definition& definition, const check::Problem& problem, const BuildOptions& options);
/// The number of threads that 0 stands for.
int thread_count(int asked);

/// Columns as wide as their widest cell; numbers to the right. Cells are UTF-8.
class Table {
  public:
    /// A header that starts with '>' is aligned to the right.
    explicit Table(std::vector<std::string> headers);
    void row(std::vector<std::string> cells);
    [[nodiscard]] std::string text() const;

  private:
    std::vector<bool> right_;
    std::vector<std::vector<std::string>> rows_;
};

/// One line on stderr that follows the work; nothing at all if stderr is not a terminal.
class Progress {
  public:
    explicit Progress(std::size_t total);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void step(const std::string& what);

  private:
    void clear() const;
    std::size_t total_, done_ = 0;
    bool terminal_;
};

/// How much of the machine other processes used since it was made: what makes a measurement worth little.
class Contention {
  public:
    Contention();
    /// Their share of all cores, 0 to 1; 0 where the system does not tell. Waits until enough time has passed to tell.
    [[nodiscard]] double others() const;
    /// A sentence to print below measurements; empty if the machine was quiet.
    [[nodiscard]] static std::string warning(double others);

  private:
    struct Seconds {
        double busy = 0, all = 0, own = 0;
    };
    static Seconds now();
    Seconds start_;
    std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
};

struct Timing {
    double seconds = 0;
    double others = 0;  ///< what other processes used of the cores meanwhile
};
/// Median of at least three runs and about half a second, after one to warm up. While other processes are busy this is
/// done again, up to `attempts` times in all, and the quietest result is kept.
Timing time_runs(const std::function<void()>& run, int attempts = 6);

std::string seconds_text(double seconds);  ///< "3.21 ms"

}  // namespace forge::tools
