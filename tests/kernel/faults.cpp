#include "tests/kernel/faults.h"

#include "emit/statements.h"

namespace forge::tests {
namespace {

using kernel::Kind;
using kernel::Statement;
using List = std::vector<Statement>;

void find(const List& statements, Place& way, const std::function<bool(const Statement&)>& is_one,
          std::vector<Place>& found) {
    for (std::size_t n = 0; n < statements.size(); ++n) {
        way.push_back(n);
        if (is_one(statements[n])) found.push_back(way);
        find(statements[n].body, way, is_one, found);
        way.pop_back();
    }
}

}  // namespace

std::vector<Place> places_of(const List& statements, const std::function<bool(const Statement&)>& is_one) {
    std::vector<Place> found;
    Place way;
    find(statements, way, is_one, found);
    return found;
}

std::vector<Place> synchronising_statements(const List& statements) {
    return places_of(statements, [](const Statement& s) {
        return (emit::is_synchronising(s) && s.kind != Kind::Line && s.kind != Kind::Keep) || s.kind == Kind::Begin;
    });
}

const Statement& at(const List& statements, const Place& place) {
    const List* list = &statements;
    for (std::size_t n = 0; n + 1 < place.size(); ++n) list = &(*list)[place[n]].body;
    return list->at(place.back());
}
Statement& at(List& statements, const Place& place) {
    return const_cast<Statement&>(at(const_cast<const List&>(statements), place));  // NOLINT: it is not const
}

void drop(List& statements, const Place& place) {
    List* list = &statements;
    for (std::size_t n = 0; n + 1 < place.size(); ++n) list = &(*list)[place[n]].body;
    list->erase(list->begin() + static_cast<std::ptrdiff_t>(place.back()));
}

std::string described(const List& statements, const Place& place) {
    std::string text;
    const List* list = &statements;
    for (const std::size_t n : place) {
        const Statement& s = (*list)[n];
        text += (text.empty() ? "" : " > ") + std::string(kernel::to_string(s.kind)) +
                (s.channel.empty() ? "" : " " + s.channel + (s.side == kernel::Side::Filled ? ".filled" : ".empty")) +
                (s.what.empty() ? "" : " '" + s.what + "'");
        list = &s.body;
    }
    return text;
}

}  // namespace forge::tests
