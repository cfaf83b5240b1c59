#include "tune/database.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "build/cache.h"
#include "forge/error.h"
#include "support/files.h"

namespace forge::tune {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using target::Device;

fs::path tuning_file(const std::string& cache_dir) { return fs::path(cache_dir) / "tuning.jsonl"; }
fs::path device_file(const std::string& cache_dir, const std::string& isa, int threads) {
    return fs::path(cache_dir) / fmt::format("device-{}-{}.json", isa, threads);
}

std::int64_t power_of_two(std::int64_t n) {
    if (n <= 1) return 1;
    const auto up = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
    return up - n <= n - up / 2 ? up : up / 2;
}

plan::Engine engine_named(const std::string& name) {
    for (const plan::Engine engine :
         {plan::Engine::Tiles, plan::Engine::WarpGroups, plan::Engine::Warps, plan::Engine::Channels})
        if (plan::to_string(engine) == name) return engine;
    throw RuntimeError("engine: unknown '" + name + "'");
}

/// Every choice; a GPU's engine and threads too.
Json json_of(const plan::Schedule& s) {
    Json json = {{"strategy", plan::to_string(s.strategy)},
                 {"chunk", s.chunk},
                 {"tile_axis", s.tile_axis},
                 {"tiles", s.tiles},
                 {"segments", s.segments}};
    if (!s.shared_memory && s.engine == plan::Engine::Tiles) return json;
    json["engine"] = plan::to_string(s.engine);
    json["threads"] = s.block_threads;
    return json;
}

Entry entry_of(const Json& json) {
    Entry e;
    e.key = {json.at("program"), json.at("device"), json.at("shape")};
    e.name = json.value("name", "");
    const Json& s = json.at("schedule");
    plan::Schedule& schedule = e.measurement.schedule;
    schedule.strategy = plan::strategy_named(s.at("strategy"));
    schedule.chunk = s.at("chunk");
    schedule.tile_axis = s.value("tile_axis", "");
    schedule.tiles = s.value("tiles", std::int64_t{1});
    schedule.segments = s.value("segments", std::int64_t{1});
    schedule.engine = engine_named(s.value("engine", std::string(plan::to_string(plan::Engine::Tiles))));
    schedule.block_threads = s.value("threads", schedule.block_threads);
    e.measurement.seconds = json.at("seconds");
    if (!(e.measurement.seconds > 0)) throw RuntimeError("seconds: expected a positive number");
    e.measurement.others = json.value("others", 0.0);
    return e;
}

/// The fields of a device that are measured.
struct Field {
    const char* name;
    double Device::* value;
};
constexpr Field kFields[] = {{"product_flops", &Device::product_flops},
                             {"call_s", &Device::call_s},
                             {"vector_s", &Device::vector_s},
                             {"exp_s", &Device::exp_s},
                             {"hop_s", &Device::hop_s},
                             {"memory_bandwidth", &Device::memory_bandwidth},
                             {"slot_bandwidth", &Device::slot_bandwidth},
                             {"cache_bandwidth", &Device::cache_bandwidth}};

}  // namespace

std::string shape_class(const target::Problem& problem, DType dtype) {
    std::string text = fmt::format("T={} N={} H={} {}", power_of_two(problem.tokens), power_of_two(problem.sequences),
                                   power_of_two(problem.heads), to_string(dtype));
    for (const auto& [symbol, size] : problem.sizes) text += fmt::format(" {}={}", symbol, size);
    return text;
}

std::string device_class(const Device& device) { return fmt::format("{} x {}", device.name, device.slots); }

std::vector<target::Measurement> Database::find(const Key& key) const {
    std::vector<target::Measurement> found;
    for (const Entry& e : entries) {
        if (e.key != key) continue;
        if (!e.measurement.under_load()) std::erase_if(found, [](const auto& m) { return m.under_load(); });
        const auto same = std::find_if(found.begin(), found.end(), [&](const target::Measurement& m) {
            return target::same_choice(m.schedule, e.measurement.schedule);
        });
        if (same == found.end()) found.push_back(e.measurement);
        else *same = e.measurement;
    }
    return found;
}

bool Database::has_quiet(const Key& key) const {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const Entry& e) { return e.key == key && !e.measurement.under_load(); });
}

std::string print(const Entry& e) {
    return Json{{"name", e.name},
                {"program", e.key.program},
                {"device", e.key.device},
                {"shape", e.key.shape},
                {"schedule", json_of(e.measurement.schedule)},
                {"seconds", e.measurement.seconds},
                {"others", std::round(e.measurement.others * 1e3) / 1e3}}
        .dump();
}

Database parse(const std::string& text, const std::string& file) {
    Database database;
    std::istringstream lines(text);
    std::size_t number = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        if (line.empty()) continue;
        try {
            database.entries.push_back(entry_of(Json::parse(line)));
        } catch (const std::exception& error) {
            database.warnings.push_back(
                fmt::format("{}:{}: not a measurement, left out ({})", file, number, error.what()));
        }
    }
    return database;
}

Database load(const std::string& cache_dir) {
    const fs::path file = tuning_file(cache_dir);
    return parse(support::read_file(file).value_or(""), file.string());
}

Database load_file(const std::string& file) {
    const auto text = support::read_file(file);
    if (!text) throw RuntimeError(fmt::format("database: expected a file that forge tune wrote, got '{}'", file));
    return parse(*text, file);
}

void append(const std::string& cache_dir, const std::vector<Entry>& entries) {
    std::string text;
    for (const Entry& e : entries) text += print(e) + "\n";
    build::Cache(cache_dir).append(tuning_file("").string(), text);
}

namespace {

template <class Append>
std::string remember_by(const Database& known, const std::vector<Entry>& entries, bool force,
                        const Append& append_all) {
    const bool under_load =
        std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.measurement.under_load(); });
    if (under_load && !force && known.has_quiet(entries.front().key))
        return "Not stored: times of a quiet machine are known for this. Measure again when it is quiet, or store "
               "these with --force.\n";
    append_all();
    return under_load ? "Stored, marked as measured under load: the next times of a quiet machine replace them.\n" : "";
}

}  // namespace

std::string remember(const std::string& cache_dir, const std::vector<Entry>& entries, bool force) {
    return remember_by(load(cache_dir), entries, force, [&] { append(cache_dir, entries); });
}

std::string remember_in(const std::string& file, const std::vector<Entry>& entries, bool force) {
    std::string text;
    for (const Entry& e : entries) text += print(e) + "\n";
    return remember_by(parse(support::read_file(file).value_or(""), file), entries, force,
                       [&] { support::append_to_file(file, text); });
}

std::optional<Device> load_device(const std::string& cache_dir, const std::string& isa, int threads) {
    const auto text = support::read_file(device_file(cache_dir, isa, threads));
    if (!text) return std::nullopt;
    const Json json = Json::parse(*text, nullptr, false);
    if (!json.is_object()) return std::nullopt;
    Device device = target::cpu_device(isa, threads);
    for (const Field& f : kFields) {
        const auto it = json.find(f.name);
        if (it == json.end() || !it->is_number() || !(it->get<double>() > 0)) return std::nullopt;
        device.*f.value = it->get<double>();
    }
    device.cache_bytes = json.value("cache_bytes", device.cache_bytes);
    device.on_chip_bytes = json.value("on_chip_bytes", device.on_chip_bytes);
    device.others = json.value("others", 0.0);
    device.about = device.others < target::Measurement::kQuiet ? "measured" : "measured under load";
    return device;
}

void save_device(const std::string& cache_dir, const Device& device) {
    Json json;
    for (const Field& f : kFields) json[f.name] = device.*f.value;
    json["cache_bytes"] = device.cache_bytes;
    json["on_chip_bytes"] = device.on_chip_bytes;
    json["others"] = device.others;
    build::Cache(cache_dir).publish(device_file("", device.name, device.slots).string(), json.dump(2) + "\n");
}

std::string remember(const std::string& cache_dir, const Device& device, bool force) {
    const bool under_load = device.others >= target::Measurement::kQuiet;
    const auto known = load_device(cache_dir, device.name, device.slots);
    if (under_load && known && known->others <= device.others && !force)
        return "The machine's speeds were measured under load and not stored: quieter ones are known. --force stores "
               "them.\n";
    save_device(cache_dir, device);
    return under_load ? "The machine's speeds were measured under load, and stored so marked: the next `forge tune` "
                        "measures them again.\n"
                      : "";
}

}  // namespace forge::tune
