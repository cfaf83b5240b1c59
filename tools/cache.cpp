#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "build/cache_entries.h"
#include "commands.h"
#include "json.h"
#include "support/environment.h"

namespace forge::tools {
namespace {

using build::CacheEntry;
using Kind = CacheEntry::Kind;

constexpr std::int64_t kDay = 86400, kHour = 3600;

std::string bytes_text(std::int64_t bytes) {
    if (bytes < 10'000) return fmt::format("{} B", bytes);
    return bytes < 10'000'000 ? fmt::format("{:.0f} kB", static_cast<double>(bytes) * 1e-3)
                              : fmt::format("{:.0f} MB", static_cast<double>(bytes) * 1e-6);
}

std::string age_text(std::int64_t seconds) {
    if (seconds < kHour) return fmt::format("{} min", seconds / 60);
    return seconds < 2 * kDay ? fmt::format("{} h", seconds / kHour) : fmt::format("{} days", seconds / kDay);
}

std::int64_t age_of(const CacheEntry& entry) {
    return std::max<std::int64_t>(
        0, std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()) - entry.changed);
}

CacheRow row_of(const CacheEntry& entry) {
    return {entry.name, build::to_string(entry.kind), entry.about, {}, entry.bytes, age_of(entry)};
}

CacheReport report_on(const CacheOptions& options) {
    CacheReport report;
    report.directory = options.directory.empty() ? support::default_cache_dir() : options.directory;
    return report;
}

std::string total(const CacheReport& report) {
    std::int64_t bytes = 0;
    for (const CacheRow& row : report.rows) bytes += row.bytes;
    return fmt::format("{} {} of {}", report.rows.size(), report.rows.size() == 1 ? "entry" : "entries",
                       bytes_text(bytes));
}

void print(const CacheReport& report) {
    if (report.rows.empty()) return;
    Table table({"entry", "kind", ">size", ">age", "what"});
    for (const CacheRow& row : report.rows)
        table.row({row.name, row.kind, bytes_text(row.bytes), age_text(row.age_seconds),
                   row.damage.empty() ? row.about : "DAMAGED: " + row.damage});
    fmt::print("{}\n", table.text());
}

bool is_built(const CacheEntry& entry) { return entry.kind == Kind::CpuKernels || entry.kind == Kind::GpuKernels; }

/// What goes: all that is of no use to this version, then what the options ask for, the oldest first.
std::vector<CacheEntry> outdated(std::vector<CacheEntry> entries, const CacheOptions& options) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const CacheEntry& a, const CacheEntry& b) { return a.changed < b.changed; });
    std::int64_t bytes = 0;
    for (const CacheEntry& entry : entries) bytes += entry.bytes;
    std::vector<CacheEntry> found;
    for (CacheEntry& entry : entries) {
        const bool useless = (entry.kind == Kind::Leftover && age_of(entry) > kHour) || entry.kind == Kind::OldHeaders;
        const bool old = options.older_than >= 0 && age_of(entry) > options.older_than * kDay;
        const bool too_many = options.max_size >= 0 && bytes > options.max_size;
        const bool asked = is_built(entry) && (options.all || old || too_many);
        if (!useless && !asked && !(options.all && entry.kind == Kind::Headers)) continue;
        bytes -= entry.bytes;
        found.push_back(std::move(entry));
    }
    return found;
}

}  // namespace

int list_cache(const CacheOptions& options) {
    CacheReport report = report_on(options);
    for (const CacheEntry& entry : build::cache_entries(report.directory)) report.rows.push_back(row_of(entry));
    if (options.json) {
        fmt::print("{}\n", json_of(report));
        return 0;
    }
    print(report);
    fmt::print("{}: {}\n", report.directory, total(report));
    return 0;
}

int verify_cache(const CacheOptions& options) {
    CacheReport all = report_on(options), damaged = all;
    for (const CacheEntry& entry : build::cache_entries(all.directory)) {
        all.rows.push_back(row_of(entry));
        all.rows.back().damage = build::damage_of(entry).value_or("");
        if (!all.rows.back().damage.empty()) damaged.rows.push_back(all.rows.back());
    }
    if (options.json) {
        fmt::print("{}\n", json_of(all));
    } else {
        print(damaged);
        fmt::print("{}: {}, {} damaged\n", all.directory, total(all), damaged.rows.size());
    }
    return damaged.rows.empty() ? 0 : 1;
}

int prune_cache(const CacheOptions& options) {
    CacheReport removed = report_on(options);
    for (const CacheEntry& entry : outdated(build::cache_entries(removed.directory), options)) {
        build::remove(entry);
        removed.rows.push_back(row_of(entry));
    }
    if (options.json) {
        fmt::print("{}\n", json_of(removed));
        return 0;
    }
    print(removed);
    fmt::print("{}: removed {}\n", removed.directory, total(removed));
    return 0;
}

}  // namespace forge::tools
