// compile() and Attention: a module, and a dispatcher that has what was compiled of it.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "build/cuda_binary.h"
#include "compile/cost.h"
#include "compile/dispatcher.h"
#include "compile/driver.h"
#include "compile/explain.h"
#include "compile/request.h"
#include "forge/error.h"
#include "frontend/axes.h"
#include "graph/summary.h"
#include "runtime/named_arguments.h"
#include "runtime/prepared_call.h"
#include "support/checked.h"

namespace forge {

namespace {

/// So many that the summaries of all of them, which ranks want at once, fill the GPU with two tasks per multiprocessor.
/// Each has a part of the state, mostly half; on a CPU the scheduler's own number.
std::int64_t segments_for_ranks(const CompileOptions& options) {
    constexpr std::int64_t kTasksPerProcessor = 2, kParts = 2, kMost = 16;
    if (options.segments > 0 || options.device == "cpu") return options.segments;
    const int multiprocessors = options.on.empty() ? runtime::cuda_device(options.device).multiprocessors
                                                   : target::facts_of(options.on).multiprocessors;
    const std::int64_t lanes = std::max<std::int64_t>(1, options.expected_sequences * options.expected_heads);
    return std::clamp<std::int64_t>(kTasksPerProcessor * multiprocessors / (kParts * lanes), 2, kMost);
}

}  // namespace

/// What all entry points of one compile() share.
struct Attention::Family {
    Family(const ir::Definition& declared, CompileOptions asked)
        : module(declared, asked.dtype), options(std::move(asked)), dispatcher([this](const auto& key) {
              CompileOptions of_key = options;
              of_key.entry = key.entry;
              if (key.entry != "decode") of_key.state_dtype = F32;
              if (key.segments) of_key.strategy = "segmented", of_key.segments = segments_for_ranks(of_key);
              if (program::is_summary(key.entry) &&
                  key.entry != options.entry)  // what was asked is of the other program
                  of_key.strategy = "auto", of_key.tiles = of_key.segments = 0, of_key.chunk_states = false;
              return compiler::build(module, of_key);
          }) {}

    program::Module module;
    CompileOptions options;
    compiler::Dispatcher dispatcher;
    std::atomic<bool> never_in_segments = false;
};

struct Attention::Impl {
    std::shared_ptr<Family> family;
    std::string entry;
    ir::Definition definition;  ///< the tensors of the entry point's calls, as the user spelt them
    std::shared_ptr<const compiler::Executable> executable;
};

TensorView dense(void* data, DType dtype, std::vector<std::int64_t> shape) {
    TensorView view{data, dtype, std::move(shape), {}};
    view.strides.resize(view.shape.size());
    support::Checked next = 1;  // wrong sizes are for the call that they come to to refuse
    for (std::size_t i = view.shape.size(); i-- > 0; next = next * view.shape[i]) view.strides[i] = next.saturated();
    return view;
}

Attention::Attention(std::shared_ptr<Family> family, const std::string& entry, bool segments) {
    const CompileOptions& o = family->options;
    auto executable = family->dispatcher.at({entry, o.dtype, o.sizes, segments});
    ir::Definition definition = program::tensors_of(entry, family->module.definition());
    impl_ = std::make_shared<const Impl>(Impl{std::move(family), entry, std::move(definition), std::move(executable)});
}

Attention Attention::entry(const std::string& name) const { return {impl_->family, name}; }

const std::string& Attention::entry() const { return impl_->entry; }

void Attention::operator()(const Call& call) const {
    impl_->executable->kernels->run(runtime::NamedArguments(impl_->executable->callable, call));
}

std::shared_ptr<const runtime::PreparedCall> Attention::prepare(const Call& call) const {
    return impl_->executable->kernels->prepare(runtime::NamedArguments(impl_->executable->callable, call));
}

std::int64_t Attention::summarised_segments() const {
    const runtime::Callable& callable = impl_->executable->callable;
    return runtime::kernels_of_summaries(callable) > 0 ? callable.segments : 0;
}
std::optional<Attention> Attention::in_segments() const {
    Family& family = *impl_->family;
    if (summarised_segments() > 0) return *this;
    if (family.options.strategy != "auto" || family.never_in_segments) return std::nullopt;
    try {
        Attention made(impl_->family, impl_->entry, true);
        if (made.summarised_segments() > 1) return made;
    } catch (const std::runtime_error&) {  // no engine has them; the pass then is as it was
    }
    family.never_in_segments = true;
    return std::nullopt;
}
void Attention::summarise(const Call& call, bool every) const {
    impl_->executable->kernels->run(runtime::NamedArguments(impl_->executable->callable, call),
                                    every ? runtime::Step::EverySummary : runtime::Step::Summaries);
}
void Attention::resume(const Call& call) const {
    impl_->executable->kernels->run(runtime::NamedArguments(impl_->executable->callable, call),
                                    runtime::Step::AfterSummaries);
}

SegmentSummaries Attention::segment_summaries(const Call& call, std::int64_t n,
                                              std::span<const std::int64_t> offsets) const {
    const plan::Plan& plan = impl_->executable->plan;
    const runtime::SummaryPlaces places =
        impl_->executable->kernels->summaries(runtime::NamedArguments(impl_->executable->callable, call), n, offsets);
    SegmentSummaries found{{}, places.heads, places.first, places.count};
    for (const auto& state : plan.definition.states) {
        const auto added = static_cast<std::size_t>(plan.spill(graph::input_spill(state.name)));
        SegmentSummaries::OfState of;
        of.state = state.name, of.added = places.spills[added];
        of.added_block = plan.spills[added].floats, of.added_strides = plan.spills[added].strides;
        if (const std::string name = graph::transition_spill(state.name); plan.has_spill(name)) {
            const auto map = static_cast<std::size_t>(plan.spill(name));
            of.map = places.spills[map];
            of.map_block = plan.spills[map].floats, of.map_strides = plan.spills[map].strides;
        }
        found.states.push_back(std::move(of));
    }
    return found;
}

std::size_t Attention::workspace_bytes(const Call& call) const {
    return impl_->executable->kernels->workspace_bytes(runtime::NamedArguments(impl_->executable->callable, call));
}
std::size_t Attention::workspace_bytes(const Bounds& bounds) const {
    return impl_->executable->kernels->workspace_bytes(bounds);
}
const ir::Definition& Attention::definition() const { return impl_->definition; }
std::vector<Carried> Attention::carried(const std::string& entry) const {
    const std::string& of = entry.empty() ? impl_->entry : entry;
    const program::Module& module = impl_->family->module;
    const ir::Function& program = module.entry(of).optimised;
    const auto names = program::carried_states(of, module.own());
    const auto sizes = frontend::own_sizes(module.own(), impl_->family->options.sizes);
    const auto sized = [&](const Shape& shape) {
        std::vector<std::int64_t> found;
        for (const Dim& d : shape) found.push_back(d.is_constant() ? d.factor : d.factor * sizes.at(d.symbol));
        return found;
    };
    const auto map_of = [](const graph::Transition& t) {
        if (!t.composable()) return Carried::Map::None;
        if (t.is_matrix()) return t.multiplies_left() ? Carried::Map::Left : Carried::Map::Right;
        return t.cls == graph::TransitionClass::Identity ? Carried::Map::Identity : Carried::Map::Factors;
    };
    std::vector<Carried> all;
    for (const graph::Transition& t : graph::transitions(program)) {
        if (std::find(names.begin(), names.end(), t.state) == names.end()) continue;
        const Shape& shape = program.op(program.result(t.state, ir::Role::State)).type.shape;
        all.push_back({t.state, map_of(t), to_string(t.cls), sized(shape), sized(t.summary), {}});
        if (!t.composable()) all.back().obstacle = t.obstacle + (t.where.known() ? " at " + to_string(t.where) : "");
    }
    return all;
}

std::string Attention::strategy() const { return plan::to_string(impl_->executable->plan.schedule.strategy); }
std::int64_t Attention::chunk() const { return impl_->executable->plan.schedule.chunk; }
std::string Attention::isa() const { return impl_->executable->isa; }
std::string Attention::schedule() const { return plan::to_string(impl_->executable->plan.schedule); }
std::string Attention::engine() const { return compiler::engine_of(*impl_->executable); }
const std::string& Attention::device() const { return impl_->family->options.device; }
const std::vector<Refusal>& Attention::refused() const { return impl_->executable->plan.schedule.refused; }
std::vector<std::string> Attention::kernels() const {
    const runtime::Callable& callable = impl_->executable->callable;
    std::vector<std::string> names;
    for (const runtime::KernelOfCall& kernel : callable.kernels) names.push_back(kernel.symbol);
    // Not where it runs only for states that are updated in place.
    const bool ends = std::any_of(callable.last_rows.begin(), callable.last_rows.end(),
                                  [](const runtime::LastRowSlots& slots) { return !slots.in_place; });
    if (ends) names.push_back(callable.last_rows_symbol);
    return names;
}
const std::vector<GeneratedSource>& Attention::sources() const { return impl_->executable->sources; }
double Attention::flops_per_token() const { return impl_->executable->flops_per_token; }
double Attention::build_seconds() const { return impl_->executable->build_seconds; }
bool Attention::from_cache() const { return impl_->executable->from_cache; }

std::vector<KernelResources> Attention::resources() const {
    const compiler::Executable& made = *impl_->executable;
    if (!made.gpu) return {};
    const build::CudaBinary binary =
        build::build_cuda_binary(definition().name, made.sources[0].text, made.gpu->arch(), made.cache_dir);
    std::vector<KernelResources> found;
    for (const std::string& kernel : kernels()) {
        const auto report = std::find_if(binary.kernels.begin(), binary.kernels.end(),
                                         [&](const build::KernelReport& r) { return r.kernel == kernel; });
        if (report == binary.kernels.end())
            throw InternalError(fmt::format("{}: the assembler's report lacks kernel '{}':\n{}", definition().name,
                                            kernel, binary.report));
        found.push_back({kernel, report->registers, report->spill_bytes, report->stack_bytes});
    }
    return found;
}

std::string Attention::explain() const {
    return compiler::explain(impl_->family->module, impl_->entry, *impl_->executable);
}

CallCost Attention::cost() const { return compiler::cost_of(*impl_->executable, impl_->entry); }

Attention compile(const ir::Definition& definition, const CompileOptions& options) {
    compiler::check_options(options);
    auto family = std::make_shared<Attention::Family>(definition, options);
    compiler::check_sizes(family->module.definition(), options.sizes);
    compiler::check_meaning(family->module.definition());
    return {std::move(family), options.entry};
}

Attention compile(const LinearAttention& definition, const CompileOptions& options) {
    return compile(definition.define(), options);
}

}  // namespace forge
