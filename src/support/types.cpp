#include "forge/types.h"

#include <array>
#include <atomic>
#include <charconv>
#include <functional>
#include <memory>

#include "forge/error.h"

namespace forge {

std::string to_string(DType dtype) {
    switch (dtype) {
        case DType::Bool:
            return "bool";
        case DType::I32:
            return "i32";
        case DType::I64:
            return "i64";
        case DType::F16:
            return "f16";
        case DType::BF16:
            return "bf16";
        case DType::F32:
            return "f32";
        case DType::F64:
            return "f64";
    }
    return "?";
}

std::size_t size_in_bytes(DType dtype) {
    switch (dtype) {
        case DType::Bool:
            return 1;
        case DType::I32:
            return 4;
        case DType::I64:
            return 8;
        case DType::F16:
        case DType::BF16:
            return 2;
        case DType::F32:
            return 4;
        case DType::F64:
            return 8;
    }
    return 0;
}

bool is_half(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }
bool is_float(DType dtype) { return is_half(dtype) || dtype == DType::F32 || dtype == DType::F64; }

std::string to_string(const Dim& dim) {
    if (dim.is_constant()) return std::to_string(dim.factor);
    const std::string given = dim.symbol.substr(0, dim.symbol.find('\''));  // as its user knows it (frontend/axes.h)
    std::int64_t number = 0;
    if (const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), number);
        error == std::errc() && end == given.data() + given.size())
        return std::to_string((number * dim).factor);
    return dim.factor == 1 ? given : std::to_string(dim.factor) + "*" + given;
}

std::string to_string(const Shape& shape) {
    std::string text = "[";
    for (const Dim& d : shape) text += (text.size() > 1 ? ", " : "") + to_string(d);
    return text + "]";
}

std::string_view Location::lasting(std::string_view text) {
    // Never destroyed: static definitions, and threads that still run as the process ends, have places too. Lists that
    // only grow, by hash: a child forked while another thread looks here finds no lock held.
    struct Text {
        std::string text;
        const Text* next;
    };
    static std::array<std::atomic<const Text*>, 64> lists{};
    std::atomic<const Text*>& list = lists.at(std::hash<std::string_view>{}(text) % lists.size());
    std::unique_ptr<Text> made;
    for (const Text* first = list.load();;) {
        for (const Text* t = first; t; t = t->next)
            if (t->text == text) return t->text;
        if (!made) made = std::make_unique<Text>(Text{std::string(text), nullptr});
        made->next = first;
        if (list.compare_exchange_weak(first, made.get())) return made.release()->text;
    }
}

std::string to_string(const Location& loc) {
    if (!loc.known()) return "<unknown>";
    return std::string(loc.file) + ":" + std::to_string(loc.line) + ":" + std::to_string(loc.column);
}

}  // namespace forge
