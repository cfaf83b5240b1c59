#include "kernel/unroll.h"

#include <algorithm>
#include <map>

#include "forge/error.h"

namespace forge::kernel {
namespace {

template <class Visit>
void each_statement(const std::vector<Statement>& statements, const Visit& visit) {
    for (const Statement& s : statements) {
        visit(s);
        each_statement(s.body, visit);
    }
}

/// Whether there is a loop over chunks.
bool walks(const std::vector<Statement>& statements) {
    bool any = false;
    each_statement(statements,
                   [&](const Statement& s) { any = any || (s.kind == Kind::Loop && !s.tasks && !s.within); });
    return any;
}

class Unroller {
  public:
    Unroller(const Kernel& kernel, int chunks, Copied copied, Thread& thread)
        : kernel_(kernel), chunks_(chunks), copied_(copied), thread_(thread) {
        each_statement(kernel.body, [&](const Statement& s) {
            if (s.kind == Kind::Function) functions_[s.what] = &s;
        });
    }

    void run() { list(kernel_.body, 0); }

  private:
    void list(const std::vector<Statement>& statements, int chunk) {
        for (const Statement& s : statements) statement(s, chunk);
    }

    void statement(const Statement& s, int chunk) {
        if (s.kind == Kind::Function || (s.kind == Kind::Role && s.what != thread_.role)) return;
        if (s.kind == Kind::Loop && s.within) return parts(s, chunk);
        if (s.kind == Kind::Loop) return loop(s);
        if (s.kind == Kind::Use) return use(s, chunk);
        if (has_body(s.kind)) return list(s.body, chunk);
        const bool hardware = copied_ == Copied::All || (copied_ == Copied::EveryOther && chunk % 2 == 0);
        if ((s.when == When::ByHardware && !hardware) || (s.when == When::ByThreads && hardware)) return;
        if (!takes_part(s, hardware)) return;
        thread_.events.push_back({&s, chunk, occurrences_[&s]++, hardware});
    }

    [[nodiscard]] bool takes_part(const Statement& s, bool hardware) const {
        if (s.kind == Kind::Begin) return thread_.group == 0 && thread_.part == 0;
        if (s.by == By::Warp || (s.kind == Kind::Store && hardware)) return thread_.part == 0;
        return s.by != By::LastWarp || thread_.part == thread_.parts - 1;
    }

    void loop(const Statement& s) {
        constexpr int kTasks = 3;
        const int end = s.tasks ? kTasks : s.count > 0 ? s.count : chunks_;
        const bool restarts = s.tasks && walks(s.body);  // each task counts its own chunks
        for (int chunk = s.first + (s.by_turns ? thread_.instance : 0); chunk < end; chunk += s.step)
            list(s.body, restarts ? 0 : chunk);
    }

    void parts(const Statement& s, int chunk) {
        constexpr int kParts = 3;
        for (int n = 0; n < kParts; ++n) list(s.body, chunk);
    }

    void use(const Statement& s, int chunk) {
        const auto function = functions_.find(s.what);
        if (function == functions_.end()) throw InternalError("kernel: no function " + s.what);
        if (chunk + s.ahead < chunks_) list(function->second->body, chunk + s.ahead);
    }

    const Kernel& kernel_;
    int chunks_;
    Copied copied_;
    Thread& thread_;
    std::map<std::string, const Statement*> functions_;
    std::map<const Statement*, int> occurrences_;
};

}  // namespace

int chunks_to_unroll(const Kernel& kernel) {
    int depth = 1;
    for (const Channel& c : kernel.channels) depth = std::max(depth, c.depth);
    each_statement(kernel.body, [&](const Statement& s) {
        for (const auto* list : {&s.reads, &s.writes})
            for (const Access& a : *list) depth = std::max(depth, a.depth);
    });
    return 3 * depth + 2;
}

int fewest_chunks(const Kernel& kernel) { return walks(kernel.body) ? 0 : 1; }

bool has_hardware_copies(const Kernel& kernel) {
    bool any = false;
    each_statement(kernel.body,
                   [&](const Statement& s) { any = any || s.when != When::Always || s.kind == Kind::Store; });
    return any;
}

std::vector<Thread> unroll(const Kernel& kernel, int chunks, Copied copied) {
    const std::vector<Role> alone = {{"", 1}};
    std::vector<Thread> threads;
    int group = 0;
    for (const Role& role : kernel.roles.empty() ? alone : kernel.roles)
        for (int n = 0; n < role.instances; ++n, ++group) {
            const int parts = role.warps > 1 ? 2 : 1;
            for (int part = 0; part < parts; ++part) {
                threads.push_back({role.name, group, n, part, parts, role.warps / parts, {}});
                Unroller(kernel, chunks, copied, threads.back()).run();
            }
        }
    return threads;
}

}  // namespace forge::kernel
