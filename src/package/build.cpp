#include "package/build.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "build/cpu_library.h"
#include "build/cuda_binary.h"
#include "compile/driver.h"
#include "compile/question.h"
#include "compile/request.h"
#include "forge/error.h"
#include "ir/text.h"
#include "package/table.h"
#include "rt/files.h"
#include "rt/manifest.h"
#include "rt/seal.h"
#include "support/environment.h"
#include "support/files.h"
#include "target/gpu_facts.h"

namespace forge::package {
namespace {

namespace fs = std::filesystem;
using compiler::Executable;
using Found = std::shared_ptr<const Executable>;
using Sizes = std::map<std::string, std::int64_t>;

/// A target in the terms of compile options.
struct Machine {
    std::string name, isa, on;  ///< an instruction set of CPUs, or a GPU's facts
    [[nodiscard]] bool is_gpu() const { return !on.empty(); }
};

Machine machine_of(const std::string& target) {
    constexpr std::pair<const char*, const char*> kCpus[] = {
        {"x86-64", "plain"}, {"x86-64-v3", "avx2"}, {"x86-64-v4", "avx512"}};  // the least first
    std::vector<std::string> known;
    for (const auto& [name, isa] : kCpus) {
        if (target == name || (target == "native" && isa == support::machine_isa())) return {name, isa, ""};
        known.emplace_back(name);
    }
    for (const target::FactsFile& file : target::known_facts()) {
        const std::string arch = target::facts_of(file.name).arch();
        if (target == arch) return {target, "", file.name};
        known.push_back(arch);
    }
    throw RuntimeError(
        fmt::format("target: expected one of {}, an architecture of which FORGE_FACTS has a GPU, or native; got "
                    "'{}'",
                    fmt::join(known, ", "), target));
}

/// What is compiled at once: an entry point of a definition for one target, element type and choice of sizes.
struct Point {
    int entry = 0, target = 0;  ///< of the manifest
    const ir::Definition* definition = nullptr;
    CompileOptions options;
    std::vector<std::int64_t> sizes;  ///< in the order of the entry point's symbols
};

/// The kernels of a point for some calls, and their binary.
struct Made {
    rt::Compiled compiled;
    std::string binary;  ///< an object file, or a cubin
};

/// All kernels of a point.
struct Done {
    std::vector<Made> made;
    std::vector<Cell> cells;  ///< with numbers in `made`
    std::size_t from_cache = 0, sources = 0;
};

/// All values of the sizes that a definition has, with all.
std::vector<Sizes> choices_of(const ir::Definition& definition, const std::vector<SizeAxis>& axes) {
    std::set<std::string> known;
    const auto add = [&](const ir::Type& type) {
        for (const Dim& d : type.shape)
            if (!d.is_constant()) known.insert(d.symbol);
    };
    for (const ir::InputDecl& in : definition.inputs) add(in.type);
    for (const ir::OutputDecl& out : definition.outputs) add(out.type);
    for (const ir::StateDecl& state : definition.states) add(state.type);
    std::vector<Sizes> choices = {{}};
    for (const SizeAxis& axis : axes) {
        if (std::none_of(axis.symbols.begin(), axis.symbols.end(), [&](const auto& s) { return known.contains(s); }))
            continue;
        std::vector<Sizes> longer;
        for (const Sizes& before : choices)
            for (const std::int64_t value : axis.values) {
                longer.push_back(before);
                for (const std::string& symbol : axis.symbols)
                    if (known.contains(symbol)) longer.back()[symbol] = value;
            }
        choices = std::move(longer);
    }
    return choices;
}

/// Where a call of an entry point shows a size: first on inputs and outputs, which are always there.
rt::Symbol symbol_of(const std::string& name, const ir::Definition& tensors, const runtime::Callable& callable) {
    std::map<std::string, const ir::Type*> types;
    for (const ir::InputDecl& in : tensors.inputs) types[in.name] = &in.type;
    for (const ir::OutputDecl& out : tensors.outputs) types[out.name] = &out.type;
    for (std::size_t i = 0; i < callable.tensors.size(); ++i) {
        const runtime::TensorOfCall& tensor = callable.tensors[i];
        const auto type = types.find(tensor.name);
        if (tensor.is_state() || type == types.end()) continue;
        for (std::size_t axis = 0; axis < type->second->shape.size(); ++axis)
            if (const Dim& d = type->second->shape[axis]; d.symbol == name)
                return {name, static_cast<int>(i), static_cast<int>(axis), d.factor};
    }
    return {name, -1, 0, 1};
}

/// One call to expect of each kind. Decoding has a token at a time.
std::vector<std::pair<std::int64_t, std::int64_t>> calls_of(const Request& request, const std::string& entry) {
    const std::vector<std::int64_t> one = {1};
    std::vector<std::pair<std::int64_t, std::int64_t>> calls;
    for (const std::int64_t tokens : entry == "decode" ? one : request.tokens)
        for (const std::int64_t tasks : request.tasks) calls.emplace_back(tokens, tasks);
    return calls;
}

std::vector<std::string> kernels_of(const runtime::Callable& callable) {
    std::vector<std::string> names;
    for (const runtime::KernelOfCall& kernel : callable.kernels) names.push_back(kernel.symbol);
    if (!callable.last_rows_symbol.empty()) names.push_back(callable.last_rows_symbol);
    return names;
}

/// Compiles the kernels of a plan, and names them as they are named in the package.
void compile(Made& made, const Executable& plan, const Machine& machine, Done& done) {
    const std::string& name = plan.plan.definition.name;
    const std::string& source = plan.sources[0].text;
    ++done.sources;
    if (machine.is_gpu()) {
        build::CudaBinary binary = build::build_cuda_binary(name, source, plan.isa, plan.cache_dir);
        done.from_cache += binary.from_cache ? 1 : 0;
        made.binary = std::move(binary.cubin);
        made.compiled.file = fmt::format("{}-{}-{}.cubin", name, machine.name, rt::fingerprint(made.binary));
        return;
    }
    runtime::Callable& callable = made.compiled.callable;
    build::CpuObject object = build::build_cpu_object(name, source, plan.isa, plan.cache_dir, kernels_of(callable));
    done.from_cache += object.from_cache ? 1 : 0;
    made.binary = std::move(object.content);
    for (runtime::KernelOfCall& kernel : callable.kernels) kernel.symbol = object.symbol(kernel.symbol);
    if (!callable.last_rows_symbol.empty()) callable.last_rows_symbol = object.symbol(callable.last_rows_symbol);
}

Done compile(const Request& request, const Point& point, const program::Module& module, const Machine& machine) {
    Done done;
    std::vector<std::pair<runtime::Callable, std::string>> known;  // what is the same is compiled once
    for (const auto& [tokens, tasks] : calls_of(request, point.options.entry)) {
        CompileOptions options = point.options;
        options.expected_tokens = tokens, options.expected_heads = std::min<std::int64_t>(tasks, 32);
        options.expected_sequences = std::max<std::int64_t>(1, tasks / options.expected_heads);
        const std::shared_ptr<Executable> plan = compiler::emitted(module, options);
        std::pair<runtime::Callable, std::string> key = {plan->callable, plan->sources[0].text};
        auto same = std::find(known.begin(), known.end(), key);
        if (same == known.end()) {
            Made made;
            made.compiled = {point.entry,
                             point.target,
                             options.dtype,
                             point.sizes,
                             plan::to_string(plan->plan.schedule),
                             plan->choice.candidates[0].measured_s > 0 ? "measured" : "",
                             "",
                             plan->callable};
            compile(made, *plan, machine, done);
            done.made.push_back(std::move(made));
            same = known.insert(known.end(), std::move(key));
        }
        Cell cell;
        cell.features = {static_cast<std::int64_t>(options.dtype)};
        cell.features.insert(cell.features.end(), point.sizes.begin(), point.sizes.end());
        cell.features.push_back(tokens), cell.features.push_back(tasks);
        cell.kernels = static_cast<int>(same - known.begin());
        done.cells.push_back(std::move(cell));
    }
    return done;
}

/// Runs body(i) for each i on several threads; the first exception ends all of it.
template <class Body>
void in_parallel(std::size_t count, int jobs, const Body& body) {
    std::atomic<std::size_t> next{0};
    std::exception_ptr error;
    std::mutex mutex;
    const auto work = [&] {
        for (std::size_t i = next++; i < count; i = next++) try {
                body(i);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!error) error = std::current_exception();
                next = count;
            }
    };
    std::vector<std::thread> threads;
    for (int t = 1; t < jobs; ++t) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
}

class Builder {
  public:
    Builder(const Request& request, const Progress& progress) : request_(request), progress_(progress) { check(); }

    Summary run() {
        for (const std::string& target : request_.targets) machines_.push_back(machine_of(target));
        // Of what all objects of a library define the first one's stays: that of the least instruction set.
        std::stable_sort(machines_.begin(), machines_.end(), [](const Machine& a, const Machine& b) {
            return std::pair(a.is_gpu(), a.name) < std::pair(b.is_gpu(), b.name);
        });
        manifest_.name = request_.name, manifest_.build = request_.build;
        for (const Machine& machine : machines_)
            manifest_.targets.push_back({machine.name, machine.is_gpu() ? "" : machine.name + ".so"});
        for (const ir::Definition& definition : request_.definitions) add_points(definition);
        compile_points();
        add_kernels();
        write();
        return summary_;
    }

  private:
    void check() const {
        const auto some = [](const auto& list, const char* what) {
            if (list.empty()) throw RuntimeError(fmt::format("build: expected {}, got none", what));
        };
        some(request_.definitions, "definitions"), some(request_.entries, "entry points");
        some(request_.targets, "targets"), some(request_.dtypes, "element types");
        some(request_.tokens, "numbers of tokens"), some(request_.tasks, "numbers of tasks");
        for (const auto* list : {&request_.tokens, &request_.tasks})
            for (const std::int64_t n : *list)
                if (n < 1) throw RuntimeError(fmt::format("build: expected tokens and tasks of at least 1, got {}", n));
        for (const std::string& entry : request_.entries)  // a table leads each call to chunks of its own
            if (program::is_to_inputs(entry))
                throw RuntimeError(
                    fmt::format("build: entries: expected forward, decode, backward or 'backward of' inputs, got '{}', "
                                "whose calls have no gradients of states; take backward, without them",
                                entry));
            else if (program::is_from_states(entry))
                throw RuntimeError(
                    fmt::format("build: entries: expected forward, decode, backward or 'backward of' inputs, got '{}', "
                                "whose chunks "
                                "are those of another call",
                                entry));
        if (!ir::is_identifier(request_.name))
            throw RuntimeError(
                fmt::format("build: name: expected letters, digits and underscores, got '{}'", request_.name));
        std::set<std::string> names;
        for (const ir::Definition& definition : request_.definitions)
            if (!names.insert(definition.name).second)
                throw RuntimeError(fmt::format("build: two definitions have the name '{}'", definition.name));
    }

    void add_points(const ir::Definition& definition) {
        compiler::check_meaning(definition);
        const int number = static_cast<int>(manifest_.definitions.size());
        manifest_.definitions.push_back({definition.name, ir::print(definition)});
        const std::vector<Sizes> choices = choices_of(definition, request_.sizes);
        for (const std::string& entry : request_.entries) {
            const int entry_number = static_cast<int>(manifest_.entries.size());
            manifest_.entries.push_back({number, entry, {}, -1});
            for (const auto& [symbol, unused] : choices[0])
                manifest_.entries.back().symbols.push_back({symbol, -1, 0, 1});
            for (std::size_t m = 0; m < machines_.size(); ++m)
                for (const DType dtype : request_.dtypes)
                    for (const Sizes& sizes : choices)
                        points_.push_back({entry_number, static_cast<int>(m), &definition,
                                           options_of(entry, machines_[m], dtype, sizes), values_of(sizes)});
        }
    }

    static std::vector<std::int64_t> values_of(const Sizes& sizes) {
        std::vector<std::int64_t> values;
        for (const auto& [symbol, value] : sizes) values.push_back(value);
        return values;
    }

    [[nodiscard]] CompileOptions options_of(const std::string& entry, const Machine& machine, DType dtype,
                                            const Sizes& sizes) const {
        CompileOptions options;
        options.entry = entry, options.dtype = dtype, options.sizes = sizes;
        options.chunk_states = request_.chunk_states && (entry == "forward" || entry == "decode");
        if (entry == "decode") options.state_dtype = request_.state_dtype;
        options.batch_invariant = request_.batch_invariant;
        options.database = request_.database, options.cache_dir = request_.cache_dir;
        if (machine.is_gpu()) options.device = "cuda", options.on = machine.on;
        else options.isa = machine.isa, options.threads = request_.threads;
        compiler::check_options(options);
        return options;
    }

    void compile_points() {
        std::map<std::pair<const ir::Definition*, DType>, std::unique_ptr<program::Module>> modules;
        for (const Point& point : points_) {
            auto& module = modules[{point.definition, point.options.dtype}];
            if (!module) module = std::make_unique<program::Module>(*point.definition, point.options.dtype);
            compiler::check_sizes(module->definition(), point.options.sizes);
        }
        done_.resize(points_.size());
        std::mutex mutex;
        std::size_t ready = 0;
        const int jobs = request_.jobs > 0 ? request_.jobs : support::core_count();
        in_parallel(points_.size(), jobs, [&](std::size_t i) {
            const Point& point = points_[i];
            const Machine& machine = machines_[static_cast<std::size_t>(point.target)];
            done_[i] = compile(request_, point, *modules.at({point.definition, point.options.dtype}), machine);
            const std::lock_guard lock(mutex);
            if (progress_)
                progress_(++ready, points_.size(),
                          fmt::format("{} {} {} for {}", point.definition->name, point.options.entry,
                                      to_string(point.options.dtype), machine.name));
        });
    }

    void add_kernels() {
        std::map<std::pair<int, int>, std::vector<Cell>> cells;  // by entry point and target
        for (std::size_t i = 0; i < points_.size(); ++i) {
            const int first = static_cast<int>(manifest_.kernels.size());
            summary_.sources += done_[i].sources, summary_.from_cache += done_[i].from_cache;
            for (Cell& cell : done_[i].cells) {
                cell.kernels += first;
                cells[{points_[i].entry, points_[i].target}].push_back(std::move(cell));
            }
            for (Made& made : done_[i].made) add(std::move(made));
        }
        summary_.kernels = manifest_.kernels.size();
        for (std::size_t e = 0; e < manifest_.entries.size(); ++e) find_symbols(static_cast<int>(e));
        for (const auto& [of, list] : cells) {
            rt::Table table = table_of(list, manifest_.entries[static_cast<std::size_t>(of.first)].symbols.size() + 3);
            table.entry = of.first, table.target = of.second;
            manifest_.tables.push_back(std::move(table));
        }
    }

    void add(Made made) {
        const Machine& machine = machines_[static_cast<std::size_t>(made.compiled.target)];
        if (machine.is_gpu()) cubins_[made.compiled.file] = std::move(made.binary);
        else if (linked_.insert(made.compiled.callable.kernels[0].symbol).second)
            objects_[machine.name].push_back(std::move(made.binary));
        manifest_.kernels.push_back(std::move(made.compiled));
    }

    /// Where calls of an entry point show their sizes and their element type.
    void find_symbols(int number) {
        rt::Entry& entry = manifest_.entries[static_cast<std::size_t>(number)];
        std::vector<const rt::Compiled*> kernels;
        for (const rt::Compiled& compiled : manifest_.kernels)
            if (compiled.entry == number) kernels.push_back(&compiled);
        const runtime::Callable& any = kernels.front()->callable;
        const ir::Definition tensors =
            program::tensors_of(entry.name, request_.definitions[static_cast<std::size_t>(entry.definition)]);
        for (std::size_t s = 0; s < entry.symbols.size(); ++s) {
            entry.symbols[s] = symbol_of(entry.symbols[s].name, tensors, any);
            const bool varies = std::any_of(kernels.begin(), kernels.end(), [&](const rt::Compiled* k) {
                return k->sizes[s] != kernels.front()->sizes[s];
            });
            if (entry.symbols[s].tensor < 0 && varies)
                throw RuntimeError(
                    fmt::format("build: {}: no input and no output of {} shows the size {}, so that a "
                                "package can have one value of it",
                                any.name, entry.name, entry.symbols[s].name));
        }
        for (std::size_t i = 0; i < any.tensors.size() && entry.dtype_tensor < 0; ++i)
            if (!any.tensors[i].is_state() && std::all_of(kernels.begin(), kernels.end(), [&](const rt::Compiled* k) {
                    return k->callable.tensors[i].dtype == k->dtype;
                }))
                entry.dtype_tensor = static_cast<int>(i);
        if (entry.dtype_tensor < 0 && request_.dtypes.size() > 1)
            throw RuntimeError(
                fmt::format("build: {}: no input and no output has the element type that is asked for, "
                            "so that a package can have one",
                            any.name));
    }

    void write() {
        const fs::path folder = request_.output;
        std::error_code error;
        fs::create_directories(folder, error);
        if (error) throw RuntimeError(fmt::format("cannot make '{}': {}", folder.string(), error.message()));
        std::map<std::string, std::string> files = cubins_;
        files[rt::kManifestFile] = rt::print(manifest_);
        const std::map<std::string, std::string> embedded = files;
        const std::string cache = compiler::cache_dir(options_of("forward", machines_[0], request_.dtypes[0], {}));
        for (const auto& [target, objects] : objects_) files[target + ".so"] = build::link_library(objects, "", cache);
        std::string seals;
        for (const auto& [name, content] : files)
            seals += fmt::format("{} {} {}\n", rt::fingerprint(content), content.size(), name);
        files[rt::kSealsFile] = rt::sealed(seals);
        files[request_.name + ".h"] = header_of(request_.name, request_.definitions, request_.entries);
        if (request_.shared) files["lib" + request_.name + ".so"] = shared_library(embedded, cache);
        for (const auto& [name, content] : files) {
            support::publish_file(folder / name, content);
            fs::permissions(folder / name, fs::perms(0644), error);
            summary_.files.push_back((folder / name).string());
        }
    }

    /// Everything in one library: the objects of all instruction sets, and the other files as data.
    [[nodiscard]] std::string shared_library(const std::map<std::string, std::string>& embedded,
                                             const std::string& cache) const {
        const support::ScratchDirectory scratch{fs::path(cache)};
        std::string assembly, declarations, blobs;
        std::size_t n = 0;
        for (const auto& [name, content] : embedded) {
            const std::string file = (scratch.path() / name).string();
            support::publish_file(file, content);
            assembly += fmt::format("\".balign 64\\nforge_blob_{}: .incbin \\\"{}\\\"\\n\"\n", n, file);
            declarations += fmt::format("extern const char forge_blob_{}[];\n", n);
            blobs += fmt::format("    {{\"{}\", forge_blob_{}, {}}},\n", name, n, content.size());
            ++n;
        }
        const std::string source = fmt::format(
            "// SPDX-License-Identifier: Apache-2.0\n#include <cstddef>\n"
            "asm(\".section .rodata\\n\"\n{}\".byte 0\\n.previous\\n\");\nextern \"C\" {{\n{}"
            "struct Blob {{\n    const char* name;\n    const void* data;\n    std::size_t size;\n}};\n"
            "struct Package {{\n    const Blob* blobs;\n    std::size_t count;\n}};\n"
            "static const Blob forge_blobs[] = {{\n{}}};\n"
            "extern __attribute__((visibility(\"default\"))) const Package forge_package;\n"
            "const Package forge_package = {{forge_blobs, {}}};\n}}\n",
            assembly, declarations, blobs, n);
        std::vector<std::string> objects;
        for (const Machine& machine : machines_)
            if (const auto of = objects_.find(machine.name); of != objects_.end())
                objects.insert(objects.end(), of->second.begin(), of->second.end());
        return rt::sealed(build::link_library(objects, source, cache));
    }

    const Request& request_;
    const Progress& progress_;
    std::vector<Machine> machines_;
    std::vector<Point> points_;
    std::vector<Done> done_;
    rt::Manifest manifest_;
    std::map<std::string, std::string> cubins_;                ///< by file
    std::map<std::string, std::vector<std::string>> objects_;  ///< by target
    std::set<std::string> linked_;                             ///< kernels whose object is among them
    Summary summary_;
};

}  // namespace

SizeAxis parse_size_axis(const std::string& text) {
    SizeAxis axis;
    std::string rest = text;
    for (std::size_t equals = rest.find('='); equals != std::string::npos; equals = rest.find('=')) {
        axis.symbols.push_back(rest.substr(0, equals));
        rest = rest.substr(equals + 1);
    }
    const auto refuse = [&] {
        throw RuntimeError(
            fmt::format("size: expected a size and its values, such as K=64,128 or K=V=64,128; got '{}'", text));
    };
    const char *at = rest.data(), *const end = at + rest.size();
    do {
        std::int64_t value = 0;
        const auto read = std::from_chars(at, end, value);
        if (read.ec != std::errc() || value < 1 || (read.ptr != end && *read.ptr != ',')) refuse();
        axis.values.push_back(value);
        at = read.ptr == end ? end : read.ptr + 1;
        if (read.ptr != end && at == end) refuse();
    } while (at != end);
    for (const std::string& symbol : axis.symbols)
        if (!ir::is_identifier(symbol)) refuse();
    if (axis.symbols.empty()) refuse();
    return axis;
}

Summary build(const Request& request, const Progress& progress) { return Builder(request, progress).run(); }

}  // namespace forge::package
