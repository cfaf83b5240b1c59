#include "tests/random/decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "check/random.h"

namespace forge::fuzz {

int Decisions::pick(const std::string& name, std::initializer_list<double> weights) {
    const auto most = static_cast<int>(weights.size()) - 1;
    const auto note = [&](int value) { return taken_[name] = value; };
    if (const auto it = forced_.find(name); it != forced_.end()) return note(std::clamp(it->second, 0, most));
    double left =
        check::Random(check::mix(seed_, name)).uniform() * std::accumulate(weights.begin(), weights.end(), 0.0);
    int index = 0;
    for (const double weight : weights) {
        if (left < weight) return note(index);
        left -= weight;
        ++index;
    }
    return note(most);
}

int Decisions::below(const std::string& name, int n) {
    if (const auto it = forced_.find(name); it != forced_.end()) return taken_[name] = std::clamp(it->second, 0, n - 1);
    return taken_[name] = static_cast<int>(check::Random(check::mix(seed_, name)).uniform() * n);
}

std::string to_string(std::uint64_t seed, const Decisions::Forced& forced) {
    std::string text = fmt::format("{}", seed);
    char separator = ':';
    for (const auto& [name, value] : forced) {
        text += fmt::format("{}{}={}", separator, name, value);
        separator = ',';
    }
    return text;
}

Decisions parse_decisions(const std::string& text) {
    const std::size_t colon = text.find(':');
    Decisions::Forced forced;
    if (colon != std::string::npos) {
        std::istringstream list(text.substr(colon + 1));
        for (std::string part; std::getline(list, part, ',');) {
            const std::size_t equals = part.find('=');
            if (equals == std::string::npos) throw std::invalid_argument("expected NAME=NUMBER, got '" + part + "'");
            forced[part.substr(0, equals)] = std::stoi(part.substr(equals + 1));
        }
    }
    return Decisions(std::stoull(text.substr(0, colon)), std::move(forced));
}

}  // namespace forge::fuzz
