#include "build/cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "build/device_sources.h"
#include "forge/error.h"
#include "support/hash.h"

namespace forge::build {

namespace fs = std::filesystem;

fs::path open_cache(const std::string& dir) {
    std::error_code failed;
    fs::create_directories(dir, failed);
    if (failed)
        throw RuntimeError(fmt::format(
            "cache directory '{}': cannot be made ({}); set FORGE_CACHE_DIR to a writable one", dir, failed.message()));
    return dir;
}

void publish(const fs::path& place, const std::string& content) {
    if (fs::exists(place)) return;
    const fs::path temporary = place.string() + fmt::format(".{}.tmp", getpid());
    std::ofstream(temporary, std::ios::binary) << content;
    fs::rename(temporary, place);
}

std::string read_file(const fs::path& place) {
    std::ostringstream content;
    content << std::ifstream(place, std::ios::binary).rdbuf();
    return content.str();
}

fs::path header_dir(const fs::path& cache) {
    std::string all;
    for (const DeviceSource& s : device_sources()) all += s.path + "\n" + s.text;
    const fs::path dir = cache / ("device-" + support::hash(all).substr(0, 16));
    for (const DeviceSource& s : device_sources()) {
        fs::create_directories((dir / s.path).parent_path());
        publish(dir / s.path, s.text);
    }
    return dir;
}

std::string file_identity(const std::string& path) {
    struct stat info{};
    stat(path.c_str(), &info);
    return fmt::format("{} {} {}", fs::canonical(path).string(), info.st_size, info.st_mtime);
}

}  // namespace forge::build
