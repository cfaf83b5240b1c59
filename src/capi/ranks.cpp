// The part of the C ABI that is about several ranks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "capi/call.h"
#include "capi/guard.h"
#include "capi/options.h"
#include "forge/dist.h"

using forge::capi::guarded;
using forge::capi::InvalidArgument;
using forge::capi::required;

namespace dist = forge::dist;

struct forge_group {
    dist::Group group;
    std::string description;
};

namespace {

/// What of a group's errors the caller shall tell apart.
template <class Fn>
forge_status guarded_group(Fn fn) noexcept {
    forge_status status = FORGE_OK;
    const auto failed = [&](forge_status as, const char* text) { status = forge::rt::failed(as, text); };
    const forge_status other = guarded([&] {
        try {
            fn();
        } catch (const dist::PeerTimeout& error) {
            failed(FORGE_PEER_TIMEOUT, error.what());
        } catch (const dist::PlanMismatch& error) {
            failed(FORGE_PLAN_MISMATCH, error.what());
        } catch (const dist::GroupError& error) {
            failed(FORGE_GROUP_ABORTED, error.what());
        }
    });
    return other == FORGE_OK ? status : other;
}

dist::Options group_options(const forge_option* options, std::size_t count) {
    dist::Options parsed;
    if (count > 0) required(options, "options");
    for (std::size_t i = 0; i < count; ++i) {
        const std::string name = required(options[i].name, "options"), value = required(options[i].value, name.c_str());
        if (name == "timeout_ms") parsed.timeout = std::chrono::milliseconds(forge::capi::parse_number(name, value));
        else if (name == "scheme") parsed.scheme = dist::scheme_named(value);
        else if (name == "shared_memory") parsed.shared_memory = forge::capi::parse_number(name, value) != 0;
        else throw InvalidArgument(fmt::format("option '{}': expected one of scheme, shared_memory, timeout_ms", name));
    }
    return parsed;
}

forge_group* new_group(const dist::Bootstrap& bootstrap, const dist::Options& options) {
    auto made = std::make_unique<forge_group>(forge_group{dist::Group(bootstrap, options), {}});
    made->description = made->group.describe();
    return made.release();
}

}  // namespace

forge_status forge_group_create(int32_t rank, int32_t size, forge_allgather allgather, void* context,
                                const forge_option* options, size_t option_count, forge_group** group) {
    return guarded_group([&] {
        forge_group*& out = *required(group, "group");
        dist::Bootstrap bootstrap{rank, size, {}};
        if (allgather)
            bootstrap.allgather = [allgather, context](const void* in, void* out_bytes, std::size_t bytes) {
                if (const int32_t failed = allgather(context, in, out_bytes, bytes); failed != 0)
                    throw forge::RuntimeError(fmt::format("group: the launcher's all-gather failed with {}", failed));
            };
        out = new_group(bootstrap, group_options(options, option_count));
    });
}

forge_status forge_group_create_mpi(const forge_option* options, size_t option_count, forge_group** group) {
    return guarded_group([&] {
        forge_group*& out = *required(group, "group");
        out = new_group(dist::mpi(), group_options(options, option_count));
    });
}

void forge_group_destroy(forge_group* group) { delete group; }

forge_status forge_group_check(const forge_group* group) {
    return guarded_group([&] { required(group, "group")->group.check(); });
}

forge_status forge_group_abort(forge_group* group) {
    return guarded_group([&] { required(group, "group")->group.abort(); });
}

int32_t forge_group_rank(const forge_group* group) { return group ? group->group.rank() : -1; }
int32_t forge_group_size(const forge_group* group) { return group ? group->group.size() : 0; }

const char* forge_group_describe(forge_group* group) {
    if (!group) return "";
    if (guarded([&] { group->description = group->group.describe(); }) != FORGE_OK) return "";
    return group->description.c_str();
}

forge_status forge_launch_ranks(const forge_attention* attention, const forge_args* given, forge_group* group,
                                int32_t has_prev, int32_t has_next) {
    return guarded_group([&] {
        const forge_args args = forge::capi::known_part(given, "args");
        const forge::Call call = forge::capi::call_of(*required(attention, "attention"), args);
        dist::run(attention->attention, call, required(group, "group")->group, {has_prev != 0, has_next != 0});
    });
}

forge_status forge_partition(const int64_t* cu_seqlens, size_t count, int32_t rank, int32_t size,
                             const int64_t* shard_offsets, char** json) {
    return guarded([&] {
        char*& out = *required(json, "json");
        if (size < 1) throw InvalidArgument(fmt::format("size: expected at least 1, got {}", size));
        std::span<const std::int64_t> shards;
        if (shard_offsets) shards = {shard_offsets, static_cast<std::size_t>(size) + 1};
        const auto p = dist::SeqPartition::build({required(cu_seqlens, "cu_seqlens"), count}, rank, size, shards);
        out = forge::capi::new_text(fmt::format(
            R"({{"begin": {}, "end": {}, "cu_seqlens": [{}], "sequences": [{}], "has_prev": {}, "has_next": {}, )"
            R"("first_rank": {}, "last_rank": {}}})",
            p.begin, p.end, fmt::join(p.cu_seqlens, ", "), fmt::join(p.sequences, ", "), p.has_prev, p.has_next,
            p.first_rank, p.last_rank));
    });
}

forge_status forge_explain_ranks(const forge_attention* attention, int32_t ranks, int64_t lanes, const char* link,
                                 char** text) {
    return guarded([&] {
        char*& out = *required(text, "text");
        out = forge::capi::new_text(dist::explain(required(attention, "attention")->attention, ranks, lanes,
                                                  dist::link_named(link ? link : "shared-memory")));
    });
}
