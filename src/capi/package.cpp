// The part of the C ABI that compiles ahead of time.
#include <functional>
#include <map>
#include <sstream>

#include "capi/guard.h"
#include "capi/options.h"
#include "forge_c.h"
#include "graph/derive.h"
#include "ir/text.h"
#include "package/build.h"

using forge::capi::guarded;
using forge::capi::InvalidArgument;
using forge::capi::required;

namespace {

using forge::package::Request;

std::vector<std::string> parts_of(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
    return parts;
}

std::vector<std::int64_t> numbers_of(const std::string& name, const std::string& text) {
    std::vector<std::int64_t> numbers;
    for (const std::string& part : parts_of(text, ',')) numbers.push_back(forge::capi::parse_number(name, part));
    return numbers;
}

int number_of(const std::string& name, const std::string& text) {
    const std::int64_t number = forge::capi::parse_number(name, text);
    if (number < 0 || number > 1 << 16)
        throw InvalidArgument("option '" + name + "': expected 0 to 65536, got " + text);
    return static_cast<int>(number);
}

using Set = std::function<void(Request&, const std::string& name, const std::string& value)>;

Set text_of(std::string Request::* field) {
    return [field](Request& r, const std::string&, const std::string& value) { r.*field = value; };
}
Set numbers_in(std::vector<std::int64_t> Request::* field) {
    return
        [field](Request& r, const std::string& name, const std::string& value) { r.*field = numbers_of(name, value); };
}
Set number_in(int Request::* field) {
    return
        [field](Request& r, const std::string& name, const std::string& value) { r.*field = number_of(name, value); };
}

const std::map<std::string, Set>& setters() {
    static const std::map<std::string, Set> kSetters = {
        {"output", text_of(&Request::output)},
        {"name", text_of(&Request::name)},
        {"database", text_of(&Request::database)},
        {"cache_dir", text_of(&Request::cache_dir)},
        {"tokens", numbers_in(&Request::tokens)},
        {"tasks", numbers_in(&Request::tasks)},
        {"threads", number_in(&Request::threads)},
        {"jobs", number_in(&Request::jobs)},
        {"entries", [](Request& r, const std::string&, const std::string& value) { r.entries = parts_of(value, ';'); }},
        {"targets", [](Request& r, const std::string&, const std::string& value) { r.targets = parts_of(value, ','); }},
        {"dtypes",
         [](Request& r, const std::string&, const std::string& value) {
             r.dtypes.clear();
             for (const std::string& part : parts_of(value, ',')) r.dtypes.push_back(forge::capi::parse_dtype(part));
         }},
        {"state_dtype",
         [](Request& r, const std::string&, const std::string& value) {
             r.state_dtype = forge::capi::parse_dtype(value, "state_dtype");
         }},
        {"batch_invariant", [](Request& r, const std::string& name,
                               const std::string& value) { r.batch_invariant = number_of(name, value) != 0; }},
        {"chunk_states", [](Request& r, const std::string& name,
                            const std::string& value) { r.chunk_states = number_of(name, value) != 0; }},
        {"shared",
         [](Request& r, const std::string& name, const std::string& value) { r.shared = number_of(name, value) != 0; }},
    };
    return kSetters;
}

Request request_of(const forge_option* options, std::size_t count) {
    constexpr std::string_view kSize = "size.";
    Request request;
    for (std::size_t i = 0; i < count; ++i) {
        const std::string name = required(options[i].name, "option name"),
                          value = required(options[i].value, name.c_str());
        const auto setter = setters().find(name);
        if (name.starts_with(kSize))
            request.sizes.push_back(forge::package::parse_size_axis(name.substr(kSize.size()) + "=" + value));
        else if (setter != setters().end()) setter->second(request, name, value);
        else {
            std::string known = "size.<symbol>";
            for (const auto& [other, unused] : setters()) (known += ", ") += other;
            throw InvalidArgument("option '" + name + "': expected one of " + known);
        }
    }
    request.build = forge_build();
    return request;
}

}  // namespace

forge_status forge_package(const char* const* definitions, size_t definition_count, const forge_option* options,
                           size_t option_count, forge_progress progress, void* context, char** files) {
    return guarded([&] {
        required(definitions, "definitions"), required(options, "options");
        Request request = request_of(options, option_count);
        for (std::size_t i = 0; i < definition_count; ++i)
            request.definitions.push_back(
                forge::graph::with_phases(forge::ir::parse_definition(required(definitions[i], "definition"))));
        const auto summary =
            forge::package::build(request, [&](std::size_t done, std::size_t all, const std::string& what) {
                if (progress) progress(context, done, all, what.c_str());
            });
        if (!files) return;
        std::string text;
        for (const std::string& file : summary.files) text += file + "\n";
        *files = forge::capi::new_text(text);
    });
}
