// What a rank's call is said to cost, of up to many ranks in nodes: a model, beside the prices of an exchange alone.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "forge/cost.h"
#include "forge/dist.h"

namespace forge::dist {
namespace {

constexpr int kPerNode = 8;  ///< GPUs that reach each other by NVLink
constexpr double kMicro = 1e6;

bool is_matrix(const Carried& c) { return c.map == Carried::Map::Left || c.map == Carried::Map::Right; }
bool has_map(const Carried& c) { return is_matrix(c) || c.map == Carried::Map::Factors; }

double bytes_of(const std::vector<std::int64_t>& shape, std::int64_t lanes) {
    const auto size = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    return sizeof(float) * static_cast<double>(lanes) * static_cast<double>(size);
}

Volume volume_of(const Attention& attention, int ranks, std::int64_t lanes) {
    Volume volume{ranks, 0, 0, false, true};
    for (const Carried& c : attention.carried()) {
        volume.state_bytes += bytes_of(c.shape, lanes),
            volume.map_bytes += has_map(c) ? bytes_of(c.map_shape, lanes) : 0;
        volume.matrices = volume.matrices || is_matrix(c);
        volume.summed = volume.summed && c.map != Carried::Map::None;
    }
    return volume;
}

double exchange_of(const Volume& volume, const Link& link) {
    if (volume.ranks == 1) return 0;
    if (link.name == "nvlink" && volume.ranks > kPerNode)
        return microseconds_over_nodes(volume, link, link_named("infiniband"), kPerNode);
    return price(volume, link).front().us;
}

/// The pass that ranks have: in segments where summaries apart have no fast kernels, as in dist/run.cpp.
Attention pass_of(const Attention& attention, const Volume& volume) {
    const bool gains = attention.device() != "cpu" && volume.ranks > 2 && volume.matrices;
    return gains ? attention.in_segments().value_or(attention) : attention;
}

/// One more of the summaries that the call makes of all segments but the last; 0 where it makes none.
double microseconds_of_last_summary(const Attention& attention) {
    const std::int64_t segments = attention.summarised_segments();
    if (segments < 2) return 0;
    for (const StageCost& kernel : attention.cost().kernels)
        if (kernel.name.ends_with("_summaries")) return kMicro * kernel.seconds / static_cast<double>(segments - 1);
    return 0;
}

/// A pass of its own, of GPUs in two halves; the first rank's state begins there, so that two ranks need one half.
double microseconds_of_summary(const Attention& attention, int ranks, const Volume& volume) {
    if (attention.device() == "cpu") return kMicro * attention.entry("summary").cost().seconds;
    const double states = attention.entry("states of summary").cost().seconds;
    const bool maps = volume.map_bytes > 0 && ranks > 2;
    return kMicro * (states + (maps ? attention.entry("transitions of summary").cost().seconds : 0));
}

std::string row_of(const Scaled& call, const Scaled& one) {
    return fmt::format("//   {:>4} {:>12.1f} us {:>12.1f} us {:>10.0f} %\n", call.ranks, call.exchange_us, call.call_us,
                       100 * call.efficiency(one));
}

std::string text_of(const Attention& attention, const Scaling& scaling, const Link& link) {
    std::string text = "// A rank's summary of its tokens, modelled:\n";
    const char* const of_segments = attention.summarised_segments() > 0
                                        ? "of the segments that the pass has anyway"
                                        : "of the segments of a pass that is cut for it";
    if (scaling.by_segments)
        text += fmt::format("//   {} {}: {:.1f} us more\n", scaling.by_segments ? "*" : " ", of_segments,
                            scaling.segments_us);
    else text += fmt::format("//     {}: not: the pass is not in segments\n", of_segments);
    text += fmt::format("//   {} by a pass of its own: {:.1f} us\n", scaling.by_segments ? " " : "*", scaling.apart_us);
    text += fmt::format(
        "// Weak scaling of the forward pass, modelled{}:\n//   ranks      exchange            call   efficiency\n",
        link.name == "nvlink" && scaling.calls.back().ranks > kPerNode
            ? fmt::format(", in nodes of {} with {} between them ({}); such an exchange is not there yet", kPerNode,
                          "infiniband", link_named("infiniband").source)
            : "");
    for (const Scaled& call : scaling.calls) text += row_of(call, scaling.calls.front());
    return text;
}

}  // namespace

double microseconds_over_nodes(const Volume& v, const Link& within, const Link& between, int per_node) {
    const double G = per_node, N = std::max(1, (v.ranks + per_node - 1) / per_node), S = v.state_bytes, D = v.map_bytes;
    const double product = v.matrices ? within.combine_us : 0;
    const double there = within.step_us + (G - 1) / G * (S + D) / within.bytes_per_us + (G - 1) * product / G,
                 back = within.step_us + (G - 1) / G * S / within.bytes_per_us;
    const double steps =
                     2 * between.step_us + (N - 1) / N * (2 * S + D) / G / between.bytes_per_us + (N - 2) * product / N,
                 ring = (N - 1) * (between.hop_us + product) + S / G / between.bytes_per_us;
    return there + std::min(steps, ring) + back;
}

Scaling scaling(const Attention& attention, const std::vector<int>& ranks, std::int64_t lanes, const Link& link) {
    Scaling made;
    const double pass = kMicro * attention.cost().seconds;
    const int most = *std::max_element(ranks.begin(), ranks.end());
    const auto more = [&](const Attention& of) {
        return kMicro * of.cost().seconds - pass + microseconds_of_last_summary(of) + link.fold_us;
    };
    const Attention of_most = pass_of(attention, volume_of(attention, most, lanes));
    made.by_segments = of_most.summarised_segments() > 0;
    if (made.by_segments) made.segments_us = more(of_most);
    made.apart_us = microseconds_of_summary(attention, most, volume_of(attention, most, lanes));
    for (const int n : ranks) {
        const Volume volume = volume_of(attention, n, lanes);
        Scaled call{n, exchange_of(volume, link), pass};
        if (n > 1) {
            const Attention of = pass_of(attention, volume);
            call.call_us += call.exchange_us +
                            (of.summarised_segments() > 0 ? more(of) : microseconds_of_summary(attention, n, volume));
        }
        made.calls.push_back(call);
    }
    return made;
}

std::string explain(const Attention& attention, int ranks, std::int64_t lanes, const Link& link) {
    if (ranks < 1) throw RuntimeError(fmt::format("ranks: expected 1 or more, got {}", ranks));
    std::string text = fmt::format("// Over {} ranks, of which each has a part of the sequence.\n", ranks);
    const Volume volume = volume_of(attention, ranks, lanes);
    for (const Carried& c : attention.carried())
        text += fmt::format("//   {}: {:.0f} bytes at a border, its transition ({}) {:.0f}{}\n", c.state,
                            bytes_of(c.shape, lanes), c.transition, has_map(c) ? bytes_of(c.map_shape, lanes) : 0,
                            c.obstacle.empty() ? "" : "; no summary because of " + c.obstacle);
    if (ranks == 1) return text + "//   one rank exchanges nothing\n";
    text += fmt::format("// Exchange by {} ({}):\n", link.name, link.source);
    bool first = true;
    for (const Priced& p : price(volume, link)) {
        const std::string cost = p.why.empty() ? fmt::format("{:.1f} us", p.us) : "not: " + p.why;
        text += fmt::format("//   {} {:<20} {}{}\n", first ? "*" : " ", to_string(p.scheme), cost,
                            p.scheme == Scheme::Serial && p.why.empty() ? ", and ranks work one after the other" : "");
        first = false;
    }
    if (attention.entry() != "forward" || !volume.summed || volume.state_bytes == 0) return text;
    std::vector<int> counts;
    for (int n = 1; n < ranks; n *= 2) counts.push_back(n);
    counts.push_back(ranks);
    return text + text_of(attention, scaling(attention, counts, lanes, link), link);
}

}  // namespace forge::dist
