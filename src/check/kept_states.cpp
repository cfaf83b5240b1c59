#include "check/kept_states.h"

namespace forge::check {

std::map<std::string, OwnedTensor> kept_states(const Attention& forward, const ir::Definition& def,
                                               const Buffers& given) {
    Buffers buffers(def, given.problem());
    for (auto& [name, x] : buffers.inputs) x = given.inputs.at(name);
    for (auto& [name, x] : buffers.initial_states) x = given.initial_states.at(name);
    buffers.scalars = given.scalars;
    const Problem& problem = given.problem();
    const auto chunks_of = [&](std::int64_t tokens) { return (tokens + forward.chunk() - 1) / forward.chunk(); };
    std::int64_t chunks = problem.lengths.empty() ? chunks_of(problem.T) : 0;
    for (const std::int64_t length : problem.lengths) chunks += chunks_of(length);
    Call call = buffers.call();
    std::map<std::string, OwnedTensor> kept;
    for (const ir::StateDecl& s : def.states) {
        std::vector<std::int64_t> shape = buffers.final_states.at(s.name).shape;  // [sequences, heads, …]
        shape[0] = problem.lengths.empty() ? problem.B : 1;
        shape.insert(shape.begin() + 1, chunks);
        call.chunk_states[s.name] = kept.emplace(s.name, OwnedTensor(F32, shape, -1, false)).first->second.view();
    }
    forward(call);
    return kept;
}

}  // namespace forge::check
