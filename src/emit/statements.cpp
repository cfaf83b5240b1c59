#include "emit/statements.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace forge::emit {

using kernel::Kind;
using kernel::Side;
using kernel::Statement;

bool is_synchronising(const Statement& s) {
    switch (s.kind) {
        case Kind::Commit:
        case Kind::CopyWait:
        case Kind::Finish:
        case Kind::StoresRead:
        case Kind::Fence:
        case Kind::Barrier:
        case Kind::BlockBarrier:
        case Kind::Arrive:
        case Kind::Wait:
        case Kind::WaitKernel:
        case Kind::Keep:
        case Kind::Line:
            return true;
        case Kind::Code:
        case Kind::Compute:
        case Kind::Move:
        case Kind::Copy:
        case Kind::BulkCopy:
        case Kind::Store:
        case Kind::Issue:
        case Kind::Begin:
        case Kind::Registers:
        case Kind::Rest:
        case Kind::Operation:
        case Kind::Later:
        case Kind::Body:
        case Kind::Loop:
        case Kind::Role:
        case Kind::Function:
        case Kind::Use:
        case Kind::Kernel:
            return false;
    }
    return false;
}

namespace {

/// As the user of the source reads it, where it follows from a constant there.
std::string pending_of(const Statement& s) { return s.what.empty() ? std::to_string(s.pending) : s.what; }

/// `object.`, of copies that report to barriers.
std::string object_of(const Statement& s) { return s.channel.empty() ? "" : s.channel + "."; }

/// Without its semicolon; a fence and a barrier together are one function of the device library.
std::string call_of(const Statement& s) {
    switch (s.kind) {
        case Kind::Commit:
            return object_of(s) + "started()";
        case Kind::CopyWait:
            return fmt::format("ptx::copy_wait<{}>()", pending_of(s));
        case Kind::Finish:
            return fmt::format("finish<{}>({})", s.pending, fmt::join(s.values, ", "));
        case Kind::StoresRead:
            return fmt::format("stores_read{}()", s.pending == 0 ? "" : fmt::format("<{}>", s.pending));
        case Kind::Fence:
            return "settle()";
        case Kind::Barrier:
            return "sync()";
        case Kind::BlockBarrier:
            return "__syncthreads()";
        case Kind::Arrive:
            return fmt::format("{}.{}({})", s.channel, s.side == Side::Filled ? "is_filled" : "is_empty", s.what);
        case Kind::Wait:
            return fmt::format("{}.{}({})", s.channel, s.side == Side::Filled ? "wait_filled" : "wait_empty", s.what);
        case Kind::Keep:
            return fmt::format(fmt::runtime(s.copied ? "{} = copied({})" : "{} = {}"), s.values.at(0), s.values.at(1));
        case Kind::WaitKernel:
            return "ptx::wait_for_kernel_before()";
        default:
            return "";
    }
}

/// What some statements together are called.
struct Together {
    std::vector<Kind> kinds;
    const char* call;
};

std::vector<std::string> calls_of(const std::vector<Statement>& all) {
    static const std::vector<Together> kFunctions = {{{Kind::CopyWait, Kind::Fence, Kind::Barrier}, "arrive<{}>()"},
                                                     {{Kind::Fence, Kind::Barrier}, "publish()"}};
    std::vector<std::string> calls;
    for (std::size_t n = 0; n < all.size(); ++n) {
        const auto is_here = [&](const Together& f) {
            for (std::size_t k = 0; k < f.kinds.size(); ++k)
                if (n + k >= all.size() || all[n + k].kind != f.kinds[k]) return false;
            return true;
        };
        const auto found = std::find_if(kFunctions.begin(), kFunctions.end(), is_here);
        if (found == kFunctions.end()) {
            calls.push_back(call_of(all[n]));
            continue;
        }
        calls.push_back(object_of(all[n]) + fmt::format(fmt::runtime(found->call), pending_of(all[n])));
        n += found->kinds.size() - 1;
    }
    return calls;
}

Statement of_kind(Kind kind) { return Statement{kind}; }

}  // namespace

std::string line_of(const Statement& s) {
    if (s.kind != Kind::Line) return call_of(s) + ";";
    const std::vector<std::string> calls = calls_of(s.body);
    return calls.empty() ? "" : fmt::format("{};", fmt::join(calls, ", "));
}

Statement group_barrier() { return of_kind(Kind::Barrier); }
Statement fence() { return of_kind(Kind::Fence); }
Statement commit() { return of_kind(Kind::Commit); }
Statement stores_read() { return of_kind(Kind::StoresRead); }
Statement publish() { return line_of_all({fence(), group_barrier()}); }

Statement arrivals_in(bool hardware, Statement s) {
    if (hardware) s.channel = kernel::kArrivals;
    return s;
}

Statement copy_wait(int pending, const std::string& text) {
    Statement s = of_kind(Kind::CopyWait);
    s.pending = pending, s.what = text;
    return s;
}

Statement wait_for(const std::string& channel, Side side, const std::string& turn) {
    Statement s = of_kind(Kind::Wait);
    s.what = turn, s.channel = channel, s.side = side;
    return s;
}

Statement arrive_at(const std::string& channel, Side side, const std::string& turn) {
    Statement s = wait_for(channel, side, turn);
    s.kind = Kind::Arrive;
    return s;
}

Statement line_of_all(std::vector<Statement> statements) {
    Statement s = of_kind(Kind::Line);
    s.body = std::move(statements);
    return s;
}

}  // namespace forge::emit
