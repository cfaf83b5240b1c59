// The part of the C ABI that works on definitions: the zoo, lowering, type rules, compiling and describing.
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "capi/guard.h"
#include "capi/handle.h"
#include "capi/options.h"
#include "compile/request.h"
#include "forge/compose.h"
#include "frontend/join.h"
#include "graph/derive.h"
#include "graph/pipeline.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "program/entry_point.h"
#include "variants/variants.h"

using forge::capi::guarded;
using forge::capi::InvalidArgument;
using forge::capi::new_text;
using forge::capi::required;

namespace {

/// The states of which calls have those before chunks: results of a forward pass, or what a backward pass begins with.
std::vector<forge::ir::StateDecl> chunk_states_of(const forge::ir::Definition& declared,
                                                  const forge::CompileOptions& options) {
    const bool has_them = options.chunk_states || forge::program::is_from_states(options.entry);
    return has_them ? declared.states : std::vector<forge::ir::StateDecl>();
}

/// The zoo's definitions as texts, made once.
const std::map<std::string, std::string>& variant_texts() {
    static const std::map<std::string, std::string> kTexts = [] {
        std::map<std::string, std::string> texts;
        for (const auto& entry : forge::variants::listed())
            texts[entry.name] = forge::ir::print(entry.make().define(), {.locations = true});
        return texts;
    }();
    return kTexts;
}

std::string lowered(const forge::ir::Definition& definition, const std::string& stage) {
    if (stage == "definition") return forge::ir::print(definition);
    const forge::ir::Function joined = forge::frontend::join(definition);
    if (stage == "joined") return forge::ir::print(joined);
    if (stage == "optimized") return forge::ir::print(forge::graph::optimize(joined));
    throw InvalidArgument("stage: expected definition, joined or optimized, got '" + stage + "'");
}

}  // namespace

const char* forge_variant_name(size_t index) {
    return index < forge::variants::listed().size() ? forge::variants::listed()[index].name.c_str() : nullptr;
}

const char* forge_variant_summary(size_t index) {
    return index < forge::variants::listed().size() ? forge::variants::listed()[index].summary.c_str() : nullptr;
}

forge_status forge_variant_definition(const char* name, const char** text) {
    return guarded([&] {
        const auto it = variant_texts().find(required(name, "name"));
        if (it == variant_texts().end()) throw InvalidArgument(std::string("name: there is no variant '") + name + "'");
        *required(text, "text") = it->second.c_str();
    });
}

forge_status forge_composition_parts(char** json) {
    return guarded([&] {
        char*& out = *required(json, "json");
        auto parts = nlohmann::ordered_json::array();
        for (const forge::CompositionPart& part : forge::composition_parts()) {
            auto choices = nlohmann::ordered_json::array();
            for (const auto& c : part.choices) choices.push_back({{"name", c.name}, {"meaning", c.meaning}});
            parts.push_back({{"name", part.name}, {"meaning", part.meaning}, {"choices", choices}});
        }
        out = new_text(parts.dump());
    });
}

forge_status forge_compose(const forge_option* choices, size_t choice_count, char** definition) {
    return guarded([&] {
        char*& out = *required(definition, "definition");
        if (choice_count > 0) required(choices, "choices");
        std::vector<std::pair<std::string, std::string>> chosen;
        for (size_t i = 0; i < choice_count; ++i)
            chosen.emplace_back(required(choices[i].name, "choices: name"),
                                required(choices[i].value, "choices: value"));
        try {
            out = new_text(forge::ir::print(forge::compose(forge::composition_of(chosen)).define()));
        } catch (const forge::RuntimeError& refused) {
            throw InvalidArgument(refused.what());
        }
    });
}

forge_status forge_lower(const char* definition, const char* dtype, const char* stage, char** text) {
    return guarded([&] {
        const auto parsed = forge::graph::with_phases(forge::ir::parse_definition(required(definition, "definition")));
        const auto typed = forge::frontend::with_dtype(parsed, forge::capi::parse_dtype(required(dtype, "dtype")));
        char*& out = *required(text, "text");  // before there is anything to hand over
        out = new_text(lowered(typed, required(stage, "stage")));
    });
}

forge_status forge_infer(const char* operation, char* type, size_t bytes) {
    return guarded([&] {
        const std::string result = to_string(forge::ir::infer_text(required(operation, "operation")));
        if (result.size() + 1 > bytes)
            throw InvalidArgument("bytes: expected at least " + std::to_string(result.size() + 1));
        std::memcpy(required(type, "type"), result.c_str(), result.size() + 1);
    });
}

forge_status forge_verify(const char* definition, const char* file, const forge_option* options, size_t option_count) {
    return guarded([&] {
        if (option_count > 0) required(options, "options");
        const forge::CompileOptions parsed = forge::capi::parse_options(options, option_count);
        forge::compiler::verify(forge::ir::parse_definition(required(definition, "definition"), file ? file : "<text>"),
                                parsed);
    });
}

forge_status forge_compile(const char* definition, const char* file, const forge_option* options, size_t option_count,
                           forge_attention** attention) {
    return guarded([&] {
        required(attention, "attention");
        if (option_count > 0) required(options, "options");
        const forge::CompileOptions parsed = forge::capi::parse_options(options, option_count);
        forge::ir::Definition declared = forge::graph::with_phases(
            forge::ir::parse_definition(required(definition, "definition"), file ? file : "<text>"));
        forge::compiler::check_known(declared, parsed.sizes);
        forge::Attention compiled = forge::compile(declared, parsed);
        auto slots =
            forge::capi::slots_of(compiled.definition(), chunk_states_of(declared, parsed), parsed.state_dtype);
        auto scalars = forge::capi::scalars_of(compiled.definition());
        std::string description = forge::capi::describe(compiled, parsed, slots, scalars);
        const std::size_t tensor_count = slots.size(), scalar_count = scalars.size();
        *attention = new forge_attention{std::move(compiled),
                                         std::move(declared),
                                         parsed,
                                         std::move(slots),
                                         std::move(scalars),
                                         std::move(description),
                                         {tensor_count, scalar_count},
                                         {},
                                         {}};
    });
}

void forge_destroy(forge_attention* attention) { delete attention; }

const char* forge_describe(const forge_attention* attention) {
    return attention ? attention->description.c_str() : nullptr;
}

const char* forge_explain(const forge_attention* attention) {
    const forge_status status = guarded([&] {
        required(attention, "attention");
        std::call_once(attention->explained, [&] { attention->explanation = attention->attention.explain(); });
    });
    return status == FORGE_OK ? attention->explanation.c_str() : nullptr;
}

forge_status forge_cost(const forge_attention* attention, const char* form, char** text) {
    return guarded([&] {
        const std::string asked = required(form, "form");
        const auto print = asked == "json"   ? forge::cost_json
                           : asked == "text" ? forge::cost_text
                           : asked == "html" ? forge::cost_page
                                             : nullptr;
        if (!print) throw forge::RuntimeError("form: expected json, text or html, got '" + asked + "'");
        char*& out = *required(text, "text");
        out = new_text(print({required(attention, "attention")->attention.cost()}));
    });
}

forge_status forge_source(const forge_attention* attention, size_t index, const char** name, const char** text) {
    return guarded([&] {
        const auto& sources = required(attention, "attention")->attention.sources();
        const bool there = index < sources.size();
        *required(name, "name") = there ? sources[index].name.c_str() : nullptr;
        *required(text, "text") = there ? sources[index].text.c_str() : nullptr;
    });
}

forge_status forge_resources(const forge_attention* attention, char** json) {
    return guarded([&] {
        required(attention, "attention");
        char*& out = *required(json, "json");
        out = new_text(forge::capi::resources(attention->attention));
    });
}

forge_status forge_check(const forge_attention* attention, char** report) {
    return guarded([&] {
        required(attention, "attention");
        char*& out = *required(report, "report");
        out = new_text(forge::capi::check_report(attention->attention, attention->declared, attention->options));
    });
}
