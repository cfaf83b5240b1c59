#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "check/element.h"
#include "commands.h"
#include "forge/runtime.h"
#include "ir/text.h"
#include "rt/dump.h"

namespace forge::tools {
namespace {

using rt::DumpedCall;
using rt::DumpedTensor;

/// The memory of a call's tensors, as it was before the call.
class Memory {
  public:
    explicit Memory(const DumpedCall& call) {
        for (const DumpedTensor& tensor : call.tensors)
            places_.push_back(tensor.same_as >= 0 ? places_[static_cast<std::size_t>(tensor.same_as)] : place(tensor));
    }
    std::byte* place(const DumpedTensor& tensor) {
        constexpr std::size_t kAlignment = 64;
        const std::size_t bytes = tensor.memory_bytes();
        auto& memory = memory_.emplace_back(static_cast<std::byte*>(
            std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment)));  // NOLINT: freed below
        if (!memory) throw std::bad_alloc();
        std::memcpy(memory.get(), tensor.before.data(), tensor.before.size());
        return memory.get();
    }
    [[nodiscard]] const std::vector<std::byte*>& places() const { return places_; }

  private:
    struct Free {
        void operator()(std::byte* memory) const { std::free(memory); }  // NOLINT
    };
    std::vector<std::unique_ptr<std::byte, Free>> memory_;
    std::vector<std::byte*> places_;
};

std::byte* element(std::byte* memory, const DumpedTensor& tensor) {
    return memory + tensor.first() * static_cast<std::int64_t>(size_in_bytes(tensor.dtype));
}

/// By the compiler, or by a package, with the same arguments.
void call_compiled(const DumpedCall& dumped, Memory& memory) {
    CompileOptions options;
    options.entry = dumped.entry, options.dtype = dumped.dtype, options.sizes = dumped.sizes;
    Call call;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < dumped.tensors.size(); ++i) {
        const DumpedTensor& tensor = dumped.tensors[i];
        const auto dot = tensor.name.find('.');
        auto& group = tensor.name.starts_with("initial_states.") ? call.initial_states
                      : tensor.name.starts_with("final_states.") ? call.final_states
                      : tensor.name.starts_with("chunk_states.") ? call.chunk_states
                                                                 : call.tensors;
        if (tensor.name.starts_with("chunk_states.")) options.chunk_states = true, options.chunk = dumped.chunk;
        if (!tensor.given) continue;
        if (dumped.entry == "decode" && tensor.name.find("_states.") != std::string::npos && tensor.dtype != F32)
            options.state_dtype = tensor.dtype;
        group[dot == std::string::npos ? tensor.name : tensor.name.substr(dot + 1)] = {
            element(memory.places()[i], tensor), tensor.dtype, tensor.shape, tensor.strides};
    }
    if (dumped.entry == "decode") options.chunk = 0;
    const Attention attention = compile(ir::parse_definition(dumped.text), options);
    const std::vector<ir::InputDecl>& inputs = attention.definition().inputs;
    std::size_t scalar = 0;
    for (const ir::InputDecl& in : inputs)
        if (in.role == ir::Role::Scalar && scalar < dumped.scalars.size())
            call.scalars[in.name] = dumped.scalars[scalar++];
    const auto place = [&](std::optional<TensorView>& view, const DumpedTensor& tensor) {
        if (tensor.given) view = {element(memory.place(tensor), tensor), tensor.dtype, tensor.shape, tensor.strides};
    };
    place(call.cu_seqlens, dumped.cu_seqlens), place(call.initial_slots, dumped.initial_slots);
    place(call.final_slots, dumped.final_slots), place(call.has_initial_state, dumped.has_initial_state);
    place(call.chunk_slots, dumped.chunk_slots);
    attention(call);
    fmt::print("{} {} of {}, compiled for {}: {}\n", dumped.definition, dumped.entry, to_string(dumped.dtype),
               attention.isa(), attention.schedule());
}

void call_package(const DumpedCall& dumped, Memory& memory, const std::string& path) {
    const rt::Package package(path, "cpu", 0);
    const rt::EntryPoint& entry = package.find(dumped.definition, dumped.entry);
    const auto view = [](std::byte* data, const DumpedTensor& tensor) {
        return runtime::View{element(data, tensor), tensor.shape.data(), tensor.strides.data(),
                             static_cast<int>(tensor.shape.size()), tensor.dtype};
    };
    std::vector<runtime::View> views;
    for (std::size_t i = 0; i < dumped.tensors.size(); ++i)
        views.push_back(dumped.tensors[i].given ? view(memory.places()[i], dumped.tensors[i]) : runtime::View());
    const std::vector<runtime::TensorOfCall>& tensors = entry.callable().tensors;
    if (views.size() != tensors.size() || dumped.scalars.size() != entry.callable().scalars.size())
        throw RuntimeError(fmt::format("{}: expected an entry point with the tensors of the call", path));
    runtime::Arguments call;
    call.tensors = views.data(), call.scalars = dumped.scalars.data();
    const auto place = [&](runtime::View& given, const DumpedTensor& tensor) {
        if (tensor.given) given = view(memory.place(tensor), tensor);
    };
    place(call.cu_seqlens, dumped.cu_seqlens), place(call.initial_slots, dumped.initial_slots);
    place(call.final_slots, dumped.final_slots), place(call.has_initial_state, dumped.has_initial_state);
    place(call.chunk_slots, dumped.chunk_slots);
    Bounds bounds;
    bounds.packed = call.cu_seqlens.is_given();
    for (std::size_t i = 0; i < views.size(); ++i) {
        const int lead = views[i].rank - tensors[i].rank();
        if (!tensors[i].has_tokens() || lead < 0) continue;
        if (lead > 0) bounds.sequences = views[i].shape[0];
        bounds.tokens = std::max(bounds.tokens, views[i].shape[lead]);
        bounds.heads = std::max(bounds.heads, views[i].shape[lead + 1]);
    }
    if (bounds.packed) bounds.sequences = std::max<std::int64_t>(1, call.cu_seqlens.shape[0] - 1);
    DumpedTensor workspace;
    workspace.dtype = DType::Bool, workspace.given = true, workspace.strides = {1};
    workspace.shape = {static_cast<std::int64_t>(entry.workspace_bytes(&call, bounds)) + 1};
    call.workspace = memory.place(workspace);
    entry.launch(call);
    fmt::print("{} {} of {}, by the kernels of {} for {}: {}\n", dumped.definition, dumped.entry,
               to_string(dumped.dtype), path, entry.target(), entry.select(call).about->schedule);
}

struct Difference {
    bool same_bits = true;
    double largest = 0, relative = 0;  ///< of the elements; of their root mean squares
};

Difference compared(const DumpedTensor& tensor, const std::byte* now) {
    Difference found;
    const std::size_t size = size_in_bytes(tensor.dtype), count = tensor.after.size() / size;
    found.same_bits = std::memcmp(now, tensor.after.data(), tensor.after.size()) == 0;
    double squares = 0, wrong = 0;
    for (std::size_t i = 0; i < count && !found.same_bits; ++i) {
        const auto* then = reinterpret_cast<const std::byte*>(tensor.after.data()) + i * size;  // NOLINT: memory
        if (std::memcmp(then, now + i * size, size) == 0) continue;
        const double a = check::load(then, tensor.dtype), b = check::load(now + i * size, tensor.dtype);
        const double apart = a == b ? 0 : std::abs(a - b);
        found.largest = std::isnan(apart) ? apart : std::max(found.largest, apart), wrong += apart * apart;
    }
    for (std::size_t i = 0; i < count && !found.same_bits; ++i) {
        const double a =
            check::load(reinterpret_cast<const std::byte*>(tensor.after.data()) + i * size, tensor.dtype);  // NOLINT
        if (std::isfinite(a)) squares += a * a;
    }
    if (!found.same_bits) found.relative = squares > 0 ? std::sqrt(wrong / squares) : std::sqrt(wrong);
    return found;
}

}  // namespace

int replay_call(const ReplayOptions& options) {
    const DumpedCall call = rt::read_dump(options.file);
    fmt::print("{}: written by Forge {} for {}: {}\n", options.file, call.build, call.target, call.schedule);
    Memory memory(call);
    if (options.package.empty()) call_compiled(call, memory);
    else call_package(call, memory, options.package);
    constexpr double kFloat = 1e-4, kHalf = 2e-2;  // of other kernels, whose sums have another order
    const double tolerance = call.dtype == DType::F32 ? kFloat : kHalf;
    bool ended = false, alike = true;
    for (std::size_t i = 0; i < call.tensors.size(); ++i) {
        const DumpedTensor& tensor = call.tensors[i];
        if (tensor.after.empty()) continue;
        ended = true;
        const Difference d = compared(tensor, memory.places()[i]);
        fmt::print("  {:<24} {}\n", tensor.name,
                   d.same_bits ? "the same bits"
                               : fmt::format("relative difference {:.2g}, largest {:.2g}", d.relative, d.largest));
        alike = alike && (d.same_bits || (!options.bits && d.relative <= tolerance));
    }
    if (!ended) fmt::print("the call did not end where it was written: there are no results to compare\n");
    else fmt::print("{}\n", alike ? "the results agree" : "the results differ");
    return alike ? 0 : 1;
}

}  // namespace forge::tools
