// What an exchange costs by each scheme, and which is taken.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "forge/dist.h"

namespace forge::dist {
namespace {

const std::vector<Scheme> kSchemes = {Scheme::Direct,    Scheme::Ring,   Scheme::ScatterScanGather,
                                      Scheme::AllGather, Scheme::Serial, Scheme::Auto};

/// The one table of fitted numbers.
const std::vector<Link>& links() {
    static const std::vector<Link> kLinks = {
        // Not fitted: the order of magnitude of a hop between threads that yield and of one core's copies.
        {"shared-memory", true, 5, 5, 5000, 5, 5000, 400, 5, "assumed, not measured"},
        {"messages", false, 0, 0, 0, 100, 1000, 400, 5, "assumed, not measured"},
        {"nvlink", true, 5.5, 2.3, 350e3, 30, 319e3, 3.3, 6, "fitted to prototypes on 4 x H200"},
        {"infiniband", true, 8.5, 8.5, 47e3, 30, 47e3, 3.3, 6, "assumed: 400 Gb/s per GPU, not measured"},
    };
    return kLinks;
}

double microseconds(Scheme scheme, const Volume& v, const Link& link) {
    const double P = v.ranks, S = v.state_bytes, D = v.map_bytes, product = v.matrices ? link.combine_us : 0;
    switch (scheme) {
        case Scheme::Direct:
        case Scheme::Ring:
            return S / link.bytes_per_us + (P - 1) * (link.hop_us + product);
        case Scheme::ScatterScanGather:
            return 2 * link.step_us + (P - 1) / P * (2 * S + D) / link.bytes_per_us + (P - 2) * product / P;
        case Scheme::AllGather:
            return link.gather_us + (P - 1) * (S + D) / link.gathered_bytes_per_us + (P - 2) * product;
        case Scheme::Serial:
            return (P - 1) * (link.writes_peers ? link.hop_us + S / link.bytes_per_us
                                                : link.gather_us + P * S / link.gathered_bytes_per_us);
        case Scheme::Auto:
            break;
    }
    throw InternalError("price: no scheme");
}

std::string obstacle(Scheme scheme, const Volume& v, const Link& link) {
    if (scheme == Scheme::Serial) return "";
    if (!v.summed) return "a state has no summary";
    if (scheme == Scheme::AllGather) return "";
    if (!link.writes_peers) return "ranks do not share memory";
    if (scheme == Scheme::Direct && v.ranks != 2) return "for two ranks";
    if (v.ranks == 2 && scheme != Scheme::Direct) return "of two ranks it is direct";
    return "";
}

}  // namespace

const char* to_string(Scheme scheme) {
    switch (scheme) {
        case Scheme::Auto:
            return "auto";
        case Scheme::Direct:
            return "direct";
        case Scheme::Ring:
            return "ring";
        case Scheme::ScatterScanGather:
            return "scatter-scan-gather";
        case Scheme::AllGather:
            return "all-gather";
        case Scheme::Serial:
            return "serial";
    }
    return "?";
}

Scheme scheme_named(const std::string& name) {
    std::vector<std::string> names;
    for (const Scheme s : kSchemes) {
        if (name == to_string(s)) return s;
        names.emplace_back(to_string(s));
    }
    throw RuntimeError(fmt::format("scheme: expected one of {}, got '{}'", fmt::join(names, ", "), name));
}

const Link& link_named(const std::string& name) {
    std::vector<std::string> names;
    for (const Link& link : links()) {
        if (name == link.name) return link;
        names.push_back(link.name);
    }
    throw RuntimeError(fmt::format("link: expected one of {}, got '{}'", fmt::join(names, ", "), name));
}

std::vector<Priced> price(const Volume& volume, const Link& link) {
    std::vector<Priced> all;
    for (const Scheme scheme : kSchemes) {
        if (scheme == Scheme::Auto) continue;
        std::string why = obstacle(scheme, volume, link);
        const double us = why.empty() ? microseconds(scheme, volume, link) : 0;
        all.push_back({scheme, us, std::move(why)});
    }
    std::stable_sort(all.begin(), all.end(), [](const Priced& a, const Priced& b) {
        const auto order = [](const Priced& p) {
            return std::tuple(!p.why.empty(), p.scheme == Scheme::Serial, p.us);  // serial work is worse than any wire
        };
        return order(a) < order(b);
    });
    return all;
}

}  // namespace forge::dist
