#include "rt/package.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "rt/border.h"
#include "runtime/cpu_kernels.h"
#include "runtime/cuda_program.h"
#include "support/environment.h"

namespace forge::rt {

using runtime::Arguments;
using runtime::CpuKernels;
using runtime::KernelOfCall;

namespace {

/// Of CPUs, the best first, with the instruction sets that they stand for.
constexpr struct {
    const char* name;
    const char* isa;
} kCpuTargets[] = {{"x86-64-v4", "avx512"}, {"x86-64-v3", "avx2"}, {"x86-64", "plain"}};

/// Compute capability 9.0 runs sm_90a and sm_90, 8.9 what was made for 8.9 and 8.0; what ends in a letter runs on that
/// capability alone. 0: not at all; else the more, the better.
int fitness(const std::string& target, int major, int minor) {
    int number = 0;
    char special = 0;
    if (std::sscanf(target.c_str(), "sm_%d%c", &number, &special) < 1) return 0;  // NOLINT: numbers of two digits
    const int of_major = number / 10, of_minor = number % 10;
    if (of_major != major || of_minor > minor || (special && of_minor != minor)) return 0;
    return 2 * (of_minor + 1) + (special ? 1 : 0);
}

Manifest parsed(const std::string& text, const std::string& path) try {
    return parse_manifest(text, path);
} catch (const RuntimeError& error) {
    throw PackageError(error.what());
}

std::string names_of(const Manifest& manifest) {
    std::vector<std::string> names;
    for (const Target& target : manifest.targets) names.push_back(target.name);
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

EntryPoint::EntryPoint(const Manifest& manifest, const Table& table, const std::vector<Loaded>& loaded)
    : manifest_(manifest),
      table_(table),
      entry_(manifest.entries[static_cast<std::size_t>(table.entry)]),
      definition_(manifest.definitions[static_cast<std::size_t>(entry_.definition)].name),
      loaded_(loaded),
      any_(*std::find_if(manifest.kernels.begin(), manifest.kernels.end(), [&](const Compiled& kernels) {
          return kernels.entry == table.entry && kernels.target == table.target;
      })) {}

const std::string& EntryPoint::text() const {
    return manifest_.definitions[static_cast<std::size_t>(entry_.definition)].text;
}

const std::string& EntryPoint::target() const {
    return manifest_.targets[static_cast<std::size_t>(table_.target)].name;
}

const Loaded& EntryPoint::select(const Arguments& call) const {
    const Features features = features_of(entry_, any_, call);
    const std::size_t found = look_up(table_, features);
    if (are_for(manifest_.kernels[found], features)) return loaded_[found];
    std::vector<std::string> there;
    for (const Loaded& loaded : loaded_)
        if (loaded.about && loaded.about->entry == table_.entry) {
            std::string text =
                shown(entry_, static_cast<std::int64_t>(loaded.about->dtype), loaded.about->sizes.data());
            if (std::find(there.begin(), there.end(), text) == there.end()) there.push_back(std::move(text));
        }
    throw PackageError(fmt::format("{}: {}: the package has no kernels for {}; it has those for {}", definition_,
                                   entry_.name, shown(entry_, features.dtype(), features.values + 1),
                                   fmt::join(there, "; ")));
}

void EntryPoint::launch(const Arguments& call) const {
    refuse_missing(any_.callable, call);
    const Loaded& loaded = select(call);
    if (!loaded.calls && !call.workspace)
        refuse_argument(any_.callable, "workspace", "a pointer (see forge_rt_workspace_bytes)", "NULL");
    if (loaded.calls) loaded.calls->launch(call);
    else loaded.kernels->run(call);
}

std::size_t EntryPoint::workspace_bytes(const Arguments* like, const Bounds& bounds) const {
    if (like) refuse_missing(any_.callable, *like);
    if (like) static_cast<void>(select(*like));  // says what there is, where there is nothing for it
    std::size_t most = 0;
    for (const Loaded& loaded : loaded_) {
        if (!loaded.about || loaded.about->entry != table_.entry) continue;
        if (like && !are_for(*loaded.about, features_of(entry_, any_, *like))) continue;
        most = std::max(most, loaded.kernels->workspace_bytes(bounds));
    }
    return most;
}

std::size_t EntryPoint::alignment() const {
    return is_gpu(manifest_.targets[static_cast<std::size_t>(table_.target)]) ? runtime::kDeviceAlignment
                                                                              : runtime::kHostAlignment;
}

void Package::dump_calls(const std::string& folder) {
    for (EntryPoint& entry : entries_) entry.dump_folder = folder;
}

void Package::mark_launches() {
    const Ranges ranges = load_ranges();
    for (EntryPoint& entry : entries_)
        entry.ranges = ranges, entry.label = entry.definition() + " " + entry.entry().name;
}

Package::Package(const std::string& path, const std::string& device, int threads)
    : files_(open_files(path)), text_(files_->read(kManifestFile)), manifest_(parsed(text_, path)) {
    loaded_.resize(manifest_.kernels.size());
    if (device == "cpu") load_for_cpu(threads > 0 ? threads : support::core_count());
    else load_for_gpu(device);
    for (const Table& table : manifest_.tables)
        if (static_cast<std::size_t>(table.target) == target_) entries_.emplace_back(manifest_, table, loaded_);
}

void Package::load_for_cpu(int threads) {
    const std::string isa = support::machine_isa();
    bool can_run = false, found = false;
    for (const auto& target : kCpuTargets) {
        can_run = can_run || isa == target.isa;
        for (std::size_t i = 0; i < manifest_.targets.size() && can_run && !found; ++i)
            if (manifest_.targets[i].name == target.name) target_ = i, found = true;
    }
    if (!found)
        throw PackageError(fmt::format("package '{}' has no kernels for this machine's CPU ({}): it has those for {}",
                                       manifest_.name, isa, names_of(manifest_)));
    const Library& library = files_->library(target().file);
    const auto function = [&](const std::string& symbol) {
        return reinterpret_cast<CpuKernels::Function>(library.symbol(symbol));  // NOLINT: dlsym
    };
    for (std::size_t i = 0; i < manifest_.kernels.size(); ++i) {
        const Compiled& compiled = manifest_.kernels[i];
        if (static_cast<std::size_t>(compiled.target) != target_) continue;
        std::vector<CpuKernels::Function> kernels;
        for (const KernelOfCall& kernel : compiled.callable.kernels) kernels.push_back(function(kernel.symbol));
        const std::string& last_rows = compiled.callable.last_rows_symbol;
        loaded_[i] = {&compiled,
                      std::make_unique<CpuKernels>(compiled.callable, std::move(kernels),
                                                   last_rows.empty() ? nullptr : function(last_rows), nullptr, threads),
                      nullptr};
    }
    runtime::parallel_for(threads, threads, [](std::int64_t, int) {});  // starts them
}

void Package::load_for_gpu(const std::string& name) {
    const runtime::CudaDevice& device = runtime::cuda_device(name);
    int best = 0;
    for (std::size_t i = 0; i < manifest_.targets.size(); ++i)
        if (const int fit = fitness(manifest_.targets[i].name, device.major, device.minor); fit > best)
            target_ = i, best = fit;
    if (best == 0)
        throw PackageError(
            fmt::format("package '{}' has no kernels for {} (compute capability {}.{}): it has those "
                        "for {}",
                        manifest_.name, device.name, device.major, device.minor, names_of(manifest_)));
    for (std::size_t i = 0; i < manifest_.kernels.size(); ++i) {
        const Compiled& compiled = manifest_.kernels[i];
        if (static_cast<std::size_t>(compiled.target) != target_) continue;
        for (const KernelOfCall& kernel : compiled.callable.kernels)
            if (kernel.how.shared_bytes > device.shared_bytes)
                throw PackageError(fmt::format("package '{}': kernels for {} take {} bytes of shared memory; {} has {}",
                                               manifest_.name, target().name, kernel.how.shared_bytes, device.name,
                                               device.shared_bytes));
        auto program =
            std::make_unique<runtime::CudaProgram>(compiled.callable, std::string(files_->read(compiled.file)), device);
        auto calls = std::make_unique<GpuCalls>(compiled.callable, *program);
        loaded_[i] = {&compiled, std::move(program), std::move(calls)};
    }
}

const EntryPoint& Package::find(const std::string& definition, const std::string& entry) const {
    std::vector<std::string> there;
    for (const EntryPoint& known : entries_) {
        if (known.definition() == definition && known.entry().name == entry) return known;
        there.push_back(known.definition() + " " + known.entry().name);
    }
    throw PackageError(fmt::format("package '{}' has no {} {} for {}; it has {}", manifest_.name, definition, entry,
                                   target().name,
                                   there.empty() ? "nothing" : fmt::format("{}", fmt::join(there, ", "))));
}

Manifest read_manifest(const std::string& path) {
    const std::unique_ptr<Files> files = open_files(path);
    return parsed(std::string(files->read(kManifestFile)), path);
}

bool is_package(const std::string& path) {
    struct stat about{};
    if (stat(path.c_str(), &about) != 0) return false;
    return S_ISDIR(about.st_mode) ? access((path + "/" + kManifestFile).c_str(), F_OK) == 0 : path.ends_with(".so");
}

}  // namespace forge::rt
