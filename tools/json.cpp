#include "json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace forge::tools {
namespace {

using Json = nlohmann::ordered_json;

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json of(const check::Difference& d) {
    Json result = {{"name", d.name},
                   {"kind", d.is_state ? "state" : "output"},
                   {"relative_rms", number(d.relative_rms)},
                   {"max_abs", number(d.max_abs)},
                   {"ok", d.ok || d.coarse()}};
    if (d.coarse()) result["coarse"] = true;
    if (d.of_operands > 0) result["of_operands"] = number(d.of_operands);
    if (d.ok || d.head < 0) return result;
    if (!d.is_state) result["first_bad_token"] = d.first_bad_token;
    result["sequence"] = d.sequence;
    result["head"] = d.head;
    return result;
}

Json of(const std::optional<Sgemm>& sgemm) {
    return sgemm ? Json{{"gflops", sgemm->gflops}, {"kernels", sgemm->kernels}} : Json(nullptr);
}

template <class RESULT>
Json problem_of(const RESULT& result) {
    return {{"B", result.B}, {"T", result.T}, {"H", result.H},
            {"K", result.K}, {"V", result.V}, {"dtype", result.dtype}};
}

}  // namespace

std::string json_of(const std::vector<variants::Entry>& entries) {
    Json result = Json::array();
    for (const variants::Entry& e : entries)
        result.push_back({{"name", e.name}, {"recurrence", e.summary}, {"source", e.source}});
    return result.dump(2);
}

std::string json_of(const CacheReport& report) {
    Json rows = Json::array();
    std::int64_t bytes = 0;
    for (const CacheRow& row : report.rows) {
        rows.push_back({{"name", row.name},
                        {"kind", row.kind},
                        {"about", row.about},
                        {"bytes", row.bytes},
                        {"age_seconds", row.age_seconds}});
        if (!row.damage.empty()) rows.back()["damage"] = row.damage;
        bytes += row.bytes;
    }
    return Json{{"directory", report.directory}, {"bytes", bytes}, {"entries", rows}}.dump(
        2, ' ', false, Json::error_handler_t::replace);
}

std::string json_of(const CheckResult& result) {
    Json rows = Json::array(), failures = Json::array();
    bool ok = true;
    for (const CheckRow& row : result.rows) {
        Json tensors = Json::array();
        for (std::size_t i = 0; i < row.worst.size(); ++i) {
            tensors.push_back(of(row.worst[i]));
            tensors.back()["case"] = row.worst_case[i];
        }
        rows.push_back({{"variant", row.variant},
                        {"dtype", row.dtype},
                        {"strategy", row.strategy},
                        {"chunk", row.chunk},
                        {"cases", row.cases},
                        {"not_admitted", row.not_admitted},
                        {"tolerance", row.tolerance},
                        {"reference", row.against_step ? "step" : "phases"},
                        {"ok", row.ok},
                        {"worst", tensors}});
        if (!row.reason.empty()) rows.back()["error"] = row.reason;
        ok = ok && row.ok;
    }
    for (const CheckFailure& f : result.failures) {
        failures.push_back({{"variant", f.variant}, {"dtype", f.dtype}, {"strategy", f.strategy}, {"case", f.problem}});
        if (f.message.empty()) failures.back()["difference"] = of(f.difference);
        else failures.back()["error"] = f.message;
    }
    return Json{{"ok", ok}, {"rows", rows}, {"failures", failures}}.dump(2);
}

std::string json_of(const Attention& attention) {
    Json sources = Json::array();
    for (const GeneratedSource& source : attention.sources()) sources.push_back(source.name);
    Json refused = Json::array();
    for (const Refusal& r : attention.refused())
        refused.push_back({{"engine", r.engine}, {"reason", r.reason}, {"why", r.why}, {"way_out", r.way_out}});
    return Json{{"engine", attention.engine()},
                {"refused", refused},
                {"strategy", attention.strategy()},
                {"chunk", attention.chunk()},
                {"isa", attention.isa()},
                {"flops_per_token_and_head", attention.flops_per_token()},
                {"build_seconds", attention.build_seconds()},
                {"from_cache", attention.from_cache()},
                {"sources", sources},
                {"explanation", attention.explain()}}
        .dump(2);
}

std::string json_of(const BenchResult& result) {
    const auto& sgemm = result.ceilings.sgemm;
    Json rows = Json::array();
    for (const BenchRow& row : result.rows) {
        rows.push_back({{"variant", row.variant},
                        {"strategy", row.strategy},
                        {"chunk", row.chunk},
                        {"isa", row.isa},
                        {"seconds", row.seconds},
                        {"tokens_per_second", row.tokens_per_second},
                        {"gflops", row.gflops},
                        {"fraction_of_sgemm", sgemm ? Json(row.gflops / sgemm->gflops) : Json(nullptr)},
                        {"gbps", row.gbps},
                        {"fraction_of_copy", row.gbps / result.ceilings.copy_gbps},
                        {"others_share_of_cores", row.others},
                        {"under_load", row.others >= target::Measurement::kQuiet},
                        {"build_seconds", row.build_seconds},
                        {"from_cache", row.from_cache}});
    }
    Json problem = problem_of(result);
    problem["threads"] = result.threads;
    return Json{{"problem", problem},
                {"ceilings",
                 {{"sgemm", of(sgemm)},
                  {"sgemm_as_installed", of(result.ceilings.installed)},
                  {"copy_gbps", result.ceilings.copy_gbps}}},
                {"rows", rows}}
        .dump(2);
}

std::string json_of(const GpuBenchResult& result) {
    Json rows = Json::array();
    for (const GpuBenchRow& row : result.rows)
        rows.push_back({{"variant", row.variant},
                        {"strategy", row.strategy},
                        {"schedule", row.schedule},
                        {"kernels", row.kernels},
                        {"seconds", row.timing.seconds},
                        {"least_seconds", row.timing.least},
                        {"most_seconds", row.timing.most},
                        {"others_share_of_cores", row.others},
                        {"under_load", std::max(row.timing.lost(), result.others) >= target::Measurement::kQuiet},
                        {"end_to_end_seconds", row.timing.end_to_end_seconds},
                        {"host_seconds", row.timing.host_seconds},
                        {"floor_seconds", row.floor_seconds},
                        {"gbps", row.gbps},
                        {"tflops", row.tflops},
                        {"build_seconds", row.build_seconds},
                        {"from_cache", row.from_cache}});
    return Json{{"problem", problem_of(result)},        {"device", result.device},
                {"others_share_of_gpu", result.others}, {"memory_gbps", result.memory_gbps},
                {"copy_gbps", result.copy_gbps},        {"rows", rows}}
        .dump(2);
}

}  // namespace forge::tools
