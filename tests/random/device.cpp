#include <fmt/format.h>

#include <cstring>
#include <deque>
#include <utility>

#include "forge/error.h"
#include "gpu/session.h"
#include "program/entry_point.h"
#include "tests/random/gradients.h"
#include "tests/random/served.h"

namespace forge::fuzz {
namespace {

/// The entry points and engines that compile options ask for, with the heads that a schedule is to expect: few give
/// several warp groups per task, many one.
struct Way {
    const char *entry, *engine;
    std::int64_t heads;
};
constexpr Way kWays[] = {
    {"forward", "auto", 32}, {"forward", "auto", 512}, {"forward", "portable", 32}, {"decode", "auto", 32}};

std::string choose_strategy(Decisions& d, const std::string& name) {
    constexpr const char* kStrategies[] = {"auto", "one-pass", "fused", "decoupled", "segmented"};
    return kStrategies[d.pick(name + ".strategy", {2, 1, 1, 1, 1})];
}

std::string name_of(std::size_t way) { return fmt::format("device{}", way); }

bool keeps_states(Subject& s, const Way& way, const std::string& name) {
    constexpr double kSeldom = 0.15;
    return !s.program.def.states.empty() && way.engine == std::string("auto") && s.d.flip(name + ".kept", kSeldom);
}

DType state_dtype(Subject& s, const Way& way, const std::string& name) {
    const bool halves =
        way.entry == std::string("decode") && is_half(s.program.dtype) && s.d.flip(name + ".half_states", 0.5);
    return halves ? s.program.dtype : F32;
}

std::optional<Attention> build(Subject& s, const std::string& device, const Way& way, const std::string& name,
                               Tally& tally) {
    CompileOptions options{.device = device, .dtype = s.program.dtype, .sizes = s.program.sizes, .tuned = false};
    options.engine = way.engine, options.expected_heads = way.heads, options.expected_tokens = 32768;
    options.entry = way.entry;
    if (options.entry == "forward") options.strategy = choose_strategy(s.d, name);
    if (options.strategy == "segmented") options.segments = 3;
    options.chunk_states = keeps_states(s, way, name);
    options.state_dtype = state_dtype(s, way, name);
    try {
        return compile(s.program.def, options);
    } catch (const CompileError& error) {
        if (error.diagnostics()[0].what.find("is not affine") == std::string::npos) throw;
        ++tally["device: segmented, but not affine"];
    }
    return std::nullopt;
}

/// A call on memory of the host, with copies on the device of the buffers' and of all that lies in blocks.
void run(const gpu::Session& session, const Attention& attention, check::Buffers& buffers, const Call& host,
         const std::vector<HostBlock*>& blocks) {
    const gpu::DeviceBuffers arguments(buffers);
    Call call = arguments.without_workspace(session.stream());
    std::deque<gpu::Memory> copies;
    std::map<const void*, void*> places;
    for (const HostBlock* block : blocks) {
        const gpu::Memory& copy = copies.emplace_back(std::max<std::size_t>(block->bytes.size(), 16));
        copy.upload(block->bytes.data(), block->bytes.size());
        places[block->bytes.data()] = copy.data();
    }
    const auto place = [&](TensorView view) {
        if (const auto at = places.find(view.data); at != places.end()) view.data = at->second;
        return view;
    };
    const auto place_states = [&](std::map<std::string, TensorView>& states, const auto& on_host) {
        const std::map<std::string, TensorView> given = std::exchange(states, {});
        for (const auto& [name, view] : on_host)
            states[name] = places.contains(view.data) ? place(view) : given.at(name);
    };
    place_states(call.initial_states, host.initial_states), place_states(call.final_states, host.final_states);
    for (const auto& [name, view] : host.chunk_states) call.chunk_states[name] = place(view);
    for (const auto slots : {&Call::initial_slots, &Call::final_slots, &Call::has_initial_state, &Call::chunk_slots})
        if (host.*slots) call.*slots = place(*(host.*slots));
    const gpu::Memory workspace(std::max<std::size_t>(attention.workspace_bytes(call), 16));
    workspace.fill(0xFF);
    call.workspace = workspace.data();
    const runtime::CudaDriver& cuda = runtime::CudaDriver::get();
    cuda.check(cuda.context_synchronize(), "waiting for the device");
    attention(call);
    session.stream().synchronize();
    arguments.fetch(buffers);
    for (std::size_t i = 0; i < copies.size(); ++i)
        cuda.check(cuda.copy_to_host(blocks[i]->bytes.data(), copies[i].at(0), blocks[i]->bytes.size()),
                   "copying from the device");
}

}  // namespace

Engine device_engine(const std::string& device) {
    return {"device", [device](Subject& s, Tally& tally) {
                static const gpu::Session session(device);
                std::vector<std::string> found;
                for (std::size_t i = 0; i < std::size(kWays) && found.empty(); ++i) {
                    if (kWays[i].entry == std::string("decode") && !program::has_decode(s.program.def)) continue;
                    const auto attention = build(s, device, kWays[i], name_of(i), tally);
                    if (!attention) continue;
                    ++tally["device: " + attention->schedule().substr(attention->schedule().find(',') + 2, 24)];
                    Served served{"device", attention->schedule(), name_of(i), {}};
                    served.turns = 2;
                    served.state_dtype = state_dtype(s, kWays[i], name_of(i));
                    served.kept_chunk = keeps_states(s, kWays[i], name_of(i)) ? attention->chunk() : 0;
                    served.same_bits = attention->strategy() != "segmented";
                    for (const int index : {0, 1}) {
                        served.run = [&](const Call& call, const std::vector<HostBlock*>& blocks, unsigned) {
                            run(session, *attention, s.problem(index).buffers, call, blocks);
                        };
                        if (found.empty()) found = faults_of_calls(s, index, served, tally);
                    }
                }
                return found;
            }};
}

Engine device_backward_engine(const std::string& device) {
    return {"device backward", [device](Subject& s, Tally& tally) {
                static const gpu::Session session(device);
                CompileOptions options = backward_options(s, "device_backward");
                options.device = device;
                const Attention attention = compile(s.program.def, options);
                ++tally["device: backward, " + attention.schedule().substr(0, attention.schedule().find(','))];
                const BackwardProblem problem(s.program, make_problem(s.d, s.program, "b0", 64));
                std::vector<std::byte> first;
                const auto twice = [&](check::Buffers& buffers) {
                    session.run(attention, buffers);
                    first = results_of(buffers);
                    check::clear_results(buffers);
                    session.run(attention, buffers);
                    if (first != results_of(buffers)) throw RuntimeError("other bits in another run");
                };
                std::vector<std::string> found = problem.faults(twice, attention.chunk(), tally);
                for (std::string& fault : found) fault = attention.schedule() + ": " + fault;
                return found;
            }};
}

}  // namespace forge::fuzz
