/// The tuning database and the measured description of this machine: files of the cache directory. One JSON object per
/// line; a line that cannot be read is left out and reported, never an error. Later lines replace earlier ones, and
/// each says how busy other processes were: what was measured on a quiet machine replaces what was measured under
/// load.
#pragma once

#include <optional>

#include "target/question.h"

namespace forge::tune {

/// What a measurement holds for.
struct Key {
    std::string program;  ///< support::hash of the printed optimised program
    std::string device;   ///< "avx512 x 2", "NVIDIA H200 x 132"
    std::string shape;    ///< see shape_class()
    friend bool operator==(const Key&, const Key&) = default;
};

/// "T=8192 N=1 H=4 bf16 K=128 V=128": tokens, sequences and heads rounded to powers of two; sizes as they are.
std::string shape_class(const target::Problem& problem, DType dtype);
std::string device_class(const target::Device& device);

struct Entry {
    Key key;
    std::string name;  ///< of the program, for people
    target::Measurement measurement;
};

struct Database {
    std::vector<Entry> entries;
    std::vector<std::string> warnings;  ///< "tuning.jsonl:7: not a measurement (…)"

    /// Of one key, at most one per schedule. Times under load stand only if nothing quiet follows them.
    [[nodiscard]] std::vector<target::Measurement> find(const Key& key) const;
    /// Whether something of this key was measured on a quiet machine, so that times under load would spoil it.
    [[nodiscard]] bool has_quiet(const Key& key) const;
};

std::string print(const Entry& entry);  ///< one line of JSON, without its end
/// `file` is for warnings only.
Database parse(const std::string& text, const std::string& file = "tuning.jsonl");

/// An absent file is an empty database.
Database load(const std::string& cache_dir);
/// The same of a file of one's own, which must be there; RuntimeError else.
Database load_file(const std::string& file);
/// Adds lines at the end of the file. RuntimeError if it cannot be written.
void append(const std::string& cache_dir, const std::vector<Entry>& entries);
/// Appends the measurements of one key, but not those under load where quiet ones are known, unless forced. Returns
/// what became of times under load, a sentence for people; nothing of quiet ones.
std::string remember(const std::string& cache_dir, const std::vector<Entry>& entries, bool force);
/// The same in a file of one's own, which need not be there yet.
std::string remember_in(const std::string& file, const std::vector<Entry>& entries, bool force);

/// The machine as `forge tune` measured it; nothing if it has not, or not for this instruction set and these threads.
std::optional<target::Device> load_device(const std::string& cache_dir, const std::string& isa, int threads);
void save_device(const std::string& cache_dir, const target::Device& device);
/// The same for the machine: `remember`s it, unless the known description was measured with fewer others about.
std::string remember(const std::string& cache_dir, const target::Device& device, bool force);

}  // namespace forge::tune
