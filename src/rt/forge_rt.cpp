// The C ABI of libforge_rt.
#include "forge_rt.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "device/cuda/portable/call.h"
#include "rt/border.h"
#include "rt/dump.h"
#include "rt/package.h"
#include "support/environment.h"

using forge::rt::guarded;
using forge::rt::known_part;
using forge::rt::required;
using forge::runtime::Arguments;
using forge::runtime::View;

struct forge_rt_package {
    forge::rt::Package package;
};

namespace {

constexpr std::size_t kMostTensors = forge::cuda::kMaxTensors;

/// A call's arguments, on the caller's stack.
class Given {
  public:
    Given(const forge::rt::EntryPoint& entry, const forge_args& args) {
        using forge::rt::InvalidArgument;
        const forge::runtime::Callable& callable = entry.callable();
        if (args.tensor_count != callable.tensors.size())
            throw InvalidArgument("tensor_count: expected " + std::to_string(callable.tensors.size()) + ", got " +
                                  std::to_string(args.tensor_count));
        if (args.scalar_count != callable.scalars.size())
            throw InvalidArgument("scalar_count: expected " + std::to_string(callable.scalars.size()) + ", got " +
                                  std::to_string(args.scalar_count));
        required(args.tensors, "tensors");
        if (args.scalar_count > 0) required(args.scalars, "scalars");
        for (std::size_t i = 0; i < args.tensor_count; ++i)
            views_[i] = forge::rt::view_of(args.tensors[i], callable.tensors[i].name.c_str());
        arguments_.tensors = views_, arguments_.scalars = args.scalars;
        if (args.cu_seqlens) arguments_.cu_seqlens = forge::rt::view_of(*args.cu_seqlens, "cu_seqlens");
        if (args.chunk_slots) arguments_.chunk_slots = forge::rt::view_of(*args.chunk_slots, "chunk_slots");
        place_slots(callable, args);
        arguments_.workspace = args.workspace, arguments_.workspace_bytes = args.workspace_bytes;
        arguments_.stream = args.stream;
        arguments_.threads = {args.parallel_for, args.parallel_context};
    }
    [[nodiscard]] const Arguments& arguments() const { return arguments_; }

  private:
    void place_slots(const forge::runtime::Callable& callable, const forge_args& args) {
        sequences_ = 1;
        for (std::size_t i = 0; i < args.tensor_count; ++i)
            if (callable.tensors[i].has_tokens() && views_[i].rank > callable.tensors[i].rank())
                sequences_ = views_[i].shape[0];
        if (args.cu_seqlens && arguments_.cu_seqlens.rank > 0) sequences_ = arguments_.cu_seqlens.shape[0] - 1;
        const auto slots = [&](const void* data, forge::DType type) {
            return View{const_cast<void*>(data), &sequences_, nullptr, 1, type};  // NOLINT: views are untyped
        };
        const forge::DType number = args.wide_slots ? forge::DType::I64 : forge::DType::I32;
        if (args.initial_slots) arguments_.initial_slots = slots(args.initial_slots, number);
        if (args.final_slots) arguments_.final_slots = slots(args.final_slots, number);
        if (args.has_initial_state) arguments_.has_initial_state = slots(args.has_initial_state, forge::DType::Bool);
    }

    View views_[kMostTensors];
    std::int64_t sequences_ = 1;
    Arguments arguments_;
};

/// An entry point is handed out as what it is.
const forge::rt::EntryPoint& entry_of(const forge_rt_entry* entry) {
    return *reinterpret_cast<const forge::rt::EntryPoint*>(required(entry, "entry"));  // NOLINT: see forge_rt_find
}

}  // namespace

uint32_t forge_rt_abi_version(void) { return FORGE_RT_ABI_VERSION; }
const char* forge_rt_build(void) { return FORGE_VERSION " (" __VERSION__ ")"; }
const char* forge_rt_status_string(forge_status status) { return forge::rt::to_string(status); }
const char* forge_rt_error(void) { return forge::rt::last_message(); }

forge_status forge_rt_open(const char* path, const forge_rt_options* given, forge_rt_package** package) {
    return guarded([&] {
        required(path, "path"), required(package, "package");
        forge_rt_options options{};
        if (given) options = known_part(given, "options");
        if (options.threads < 0 || options.threads > 1 << 16)
            throw forge::rt::InvalidArgument("threads: expected 0 to 65536, got " + std::to_string(options.threads));
        std::unique_ptr<forge_rt_package> opened(
            new forge_rt_package{{path, options.device ? options.device : "cpu", options.threads}});
        const std::string folder =
            options.dump_folder ? options.dump_folder : forge::support::environment("FORGE_DUMP_CALLS").value_or("");
        if (!folder.empty()) opened->package.dump_calls(folder);
        if (options.nvtx || !forge::support::environment("FORGE_NVTX").value_or("").empty())
            opened->package.mark_launches();
        *package = opened.release();
    });
}

void forge_rt_close(forge_rt_package* package) { delete package; }

const char* forge_rt_manifest(const forge_rt_package* package) {
    return package ? package->package.text().c_str() : nullptr;
}

const char* forge_rt_target(const forge_rt_package* package) {
    return package ? package->package.target().name.c_str() : nullptr;
}

forge_status forge_rt_find(const forge_rt_package* package, const char* definition, const char* entry,
                           const forge_rt_entry** found) {
    return guarded([&] {
        const auto& point =
            required(package, "package")->package.find(required(definition, "definition"), required(entry, "entry"));
        *required(found, "found") = reinterpret_cast<const forge_rt_entry*>(&point);  // NOLINT: see entry_of
    });
}

forge_status forge_rt_select(const forge_rt_entry* entry, const forge_args* args, const char** schedule) {
    return guarded([&] {
        const forge::rt::EntryPoint& point = entry_of(entry);
        const Given given(point, known_part(args, "args"));
        refuse_missing(point.callable(), given.arguments());
        *required(schedule, "schedule") = point.select(given.arguments()).about->schedule.c_str();
    });
}

forge_status forge_rt_workspace_bytes(const forge_rt_entry* entry, const forge_args* like, const forge_bounds* given,
                                      size_t* bytes, size_t* alignment) {
    return guarded([&] {
        const forge_bounds known = known_part(given, "bounds");
        const forge::Bounds bounds{known.sequences, known.tokens, known.heads, known.packed != 0};
        const forge::rt::EntryPoint& point = entry_of(entry);
        required(bytes, "bytes"), required(alignment, "alignment");
        if (like) *bytes = point.workspace_bytes(&Given(point, known_part(like, "like")).arguments(), bounds);
        else *bytes = point.workspace_bytes(nullptr, bounds);
        *alignment = point.alignment();
    });
}

forge_status forge_rt_launch(const forge_rt_entry* entry, const forge_args* args) {
    return guarded([&] {
        const forge::rt::EntryPoint& point = entry_of(entry);
        const Given given(point, known_part(args, "args"));
        const forge::rt::Range range(point.ranges, point.label);
        if (point.dump_folder.empty()) return point.launch(given.arguments());
        static std::atomic<unsigned> number{0};
        forge::rt::dump_call(point, given.arguments(), forge_rt_build(),
                             fmt::format("{}/call-{}-{:06}.forgecall", point.dump_folder, getpid(), number++));
    });
}

forge_status forge_rt_dump_call(const forge_rt_entry* entry, const forge_args* args, const char* path) {
    return guarded([&] {
        const forge::rt::EntryPoint& point = entry_of(entry);
        const Given given(point, known_part(args, "args"));
        forge::rt::dump_call(point, given.arguments(), forge_rt_build(), required(path, "path"));
    });
}
