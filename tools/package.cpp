#include <fmt/format.h>

#include <filesystem>

#include "commands.h"
#include "package/build.h"
#include "variants/variants.h"

namespace forge::tools {

int build_package(const PackageOptions& options) {
    package::Request request;
    request.output = options.output;
    request.name = options.name;
    if (request.name.empty()) {
        const std::filesystem::path folder = std::filesystem::path(options.output).lexically_normal();
        request.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
    }
    for (const std::string& variant : options.variants) request.definitions.push_back(find_variant(variant));
    if (options.all)
        for (const auto& entry : variants::all()) request.definitions.push_back(entry.make().define());
    request.entries = options.entries, request.targets = options.targets;
    request.dtypes.clear();
    for (const std::string& name : options.dtypes) request.dtypes.push_back(dtype_named(name));
    for (const std::string& text : options.sizes) request.sizes.push_back(package::parse_size_axis(text));
    request.state_dtype = dtype_named(options.state_dtype);
    request.tokens = options.tokens, request.tasks = options.tasks;
    request.threads = options.threads, request.jobs = options.jobs;
    request.database = options.database, request.cache_dir = options.cache_dir;
    request.shared = options.shared;
    request.chunk_states = options.chunk_states, request.batch_invariant = options.batch_invariant;
    request.build = FORGE_VERSION " (" __VERSION__ ")";
    const auto begin = std::chrono::steady_clock::now();
    const package::Summary made =
        package::build(request, [](std::size_t done, std::size_t all, const std::string& what) {
            fmt::print(stderr, "[{}/{}] {}\n", done, all, what);
        });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (const std::string& file : made.files) fmt::print("{}\n", file);
    fmt::print("{} sets of kernels, {} compilations ({} from the cache), {}\n", made.kernels, made.sources,
               made.from_cache, seconds_text(seconds));
    return 0;
}

}  // namespace forge::tools
