#include "capi/options.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <map>
#include <set>

#include "capi/guard.h"

namespace forge::capi {

std::int64_t parse_number(const std::string& name, const std::string& value) {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || end != value.data() + value.size())
        throw InvalidArgument(fmt::format("option '{}': expected an integer of 64 bits, got '{}'", name, value));
    return n;
}

namespace {

using Setter = std::function<void(CompileOptions&, const std::string& name, const std::string& value)>;

Setter text_of(std::string CompileOptions::* field) {
    return [field](CompileOptions& o, const std::string&, const std::string& value) { o.*field = value; };
}

template <class T>
Setter number_of(T CompileOptions::* field) {
    return [field](CompileOptions& o, const std::string& name, const std::string& value) {
        const std::int64_t n = parse_number(name, value);
        o.*field = static_cast<T>(n);
        if (o.*field != n) throw InvalidArgument(fmt::format("option '{}': {} is beyond all that it can be", name, n));
    };
}

const std::map<std::string, Setter>& setters() {
    static const std::map<std::string, Setter> kSetters = {
        {"device", text_of(&CompileOptions::device)},
        {"on", text_of(&CompileOptions::on)},
        {"entry", text_of(&CompileOptions::entry)},
        {"dtype",
         [](CompileOptions& o, const std::string&, const std::string& value) { o.dtype = parse_dtype(value); }},
        {"state_dtype", [](CompileOptions& o, const std::string&,
                           const std::string& value) { o.state_dtype = parse_dtype(value, "state_dtype"); }},
        {"strategy", text_of(&CompileOptions::strategy)},
        {"chunk", number_of(&CompileOptions::chunk)},
        {"tiles", number_of(&CompileOptions::tiles)},
        {"segments", number_of(&CompileOptions::segments)},
        {"threads", number_of(&CompileOptions::threads)},
        {"expected_tokens", number_of(&CompileOptions::expected_tokens)},
        {"expected_sequences", number_of(&CompileOptions::expected_sequences)},
        {"expected_heads", number_of(&CompileOptions::expected_heads)},
        {"isa", text_of(&CompileOptions::isa)},
        {"engine", text_of(&CompileOptions::engine)},
        {"rule", text_of(&CompileOptions::rule)},
        {"tuned", [](CompileOptions& o, const std::string& name,
                     const std::string& value) { o.tuned = parse_number(name, value) != 0; }},
        {"batch_invariant", [](CompileOptions& o, const std::string& name,
                               const std::string& value) { o.batch_invariant = parse_number(name, value) != 0; }},
        {"chunk_states", [](CompileOptions& o, const std::string& name,
                            const std::string& value) { o.chunk_states = parse_number(name, value) != 0; }},
        {"cache_dir", text_of(&CompileOptions::cache_dir)},
    };
    return kSetters;
}

constexpr std::string_view kSizePrefix = "size.";

void set(CompileOptions& options, const std::string& name, const std::string& value) {
    if (name.starts_with(kSizePrefix)) {
        options.sizes[name.substr(kSizePrefix.size())] = parse_number(name, value);
        return;
    }
    const auto setter = setters().find(name);
    if (setter == setters().end()) {
        std::string known = "size.<symbol>";
        for (const auto& [other, unused] : setters()) known += ", " + other;
        throw InvalidArgument(fmt::format("option '{}': expected one of {}", name, known));
    }
    setter->second(options, name, value);
}

}  // namespace

DType parse_dtype(const std::string& name, const char* option) {
    for (const DType dtype : {BF16, F16, F32})
        if (to_string(dtype) == name) return dtype;
    throw InvalidArgument(fmt::format("option '{}': expected bf16, f16 or f32, got '{}'", option, name));
}

CompileOptions parse_options(const forge_option* options, std::size_t count) {
    CompileOptions parsed;
    std::set<std::string> seen;
    for (std::size_t i = 0; i < count; ++i) {
        const std::string name = required(options[i].name, "option name");
        if (!seen.insert(name).second) throw InvalidArgument(fmt::format("option '{}': given twice", name));
        set(parsed, name, required(options[i].value, name.c_str()));
    }
    return parsed;
}

}  // namespace forge::capi
