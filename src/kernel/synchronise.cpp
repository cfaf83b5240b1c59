#include "kernel/synchronise.h"

#include <algorithm>
#include <optional>
#include <set>

namespace forge::kernel {
namespace {

using List = std::vector<Statement>;

template <class Predicate>
bool any_within(const Statement& s, const Predicate& predicate) {
    return predicate(s) ||
           std::any_of(s.body.begin(), s.body.end(), [&](const Statement& t) { return any_within(t, predicate); });
}
bool has(const Statement& s, Kind kind) {
    return any_within(s, [&](const Statement& t) { return t.kind == kind; });
}
Accesses in_memory(const Accesses& accesses) {
    Accesses found;
    for (const Access& a : accesses)
        if (a.memory != Memory::Registers) found.push_back(a);
    return found;
}
Accesses shared(const Accesses& accesses) {
    Accesses found;
    for (const Access& a : accesses)
        if (a.memory == Memory::Shared) found.push_back(a);
    return found;
}
class Synchroniser {
  public:
    explicit Synchroniser(Kernel& kernel) : kernel_(kernel) {}
    void run() { visit_all(kernel_.body); }

  private:
    struct Product {
        std::string value;
        Accesses reads;
    };

    void visit_all(List& list) {
        List done;
        for (Statement& s : list) visit(std::move(s), done);
        list = std::move(done);
    }

    void visit(Statement s, List& done) {
        indent_ = s.indent;
        switch (s.kind) {
            case Kind::Role:
                read_.clear(), written_.clear(), waited_.clear(), role_ = s.what;
                visit_all(s.body);
                break;
            case Kind::Loop:
                loop(s);
                break;
            case Kind::Kernel:
                visit_all(s.body);
                break;
            case Kind::Body:
                chunk(s);
                break;
            case Kind::Operation:
                return operation(std::move(s), done);
            case Kind::Later:
                if (!later_) return;
                later_.reset(), copies_.emplace_back();
                break;
            case Kind::Rest:
                if (!read_.empty() || !written_.empty()) barrier(done);
                return;
            case Kind::Line:
            case Kind::Wait:
                if (has(s, Kind::Wait) || has(s, Kind::CopyWait)) read_.clear(), written_.clear();
                if (has(s, Kind::StoresRead)) stores_.clear(), all_read_ = true;
                note_waits(s);
                break;
            case Kind::Compute:
            case Kind::Move:
            case Kind::Keep:
            case Kind::Issue:
            case Kind::Store:
                return step(std::move(s), done);
            case Kind::Copy:
                if (in_chunk_) return late_copy(std::move(s), done);
                break;
            case Kind::Code:
            case Kind::BulkCopy:
            case Kind::Commit:
            case Kind::CopyWait:
            case Kind::Finish:
            case Kind::StoresRead:
            case Kind::Fence:
            case Kind::Barrier:
            case Kind::BlockBarrier:
            case Kind::Begin:
            case Kind::Arrive:
            case Kind::WaitKernel:
            case Kind::Registers:
            case Kind::Function:
            case Kind::Use:
                break;
        }
        done.push_back(std::move(s));
    }

    /// What comes after a loop comes after all that precedes it too, where it has no turn.
    void loop(Statement& s) {
        const Accesses read = read_, written = written_;
        visit_all(s.body);
        append(read_, read);
        append(written_, written);
    }

    // A chunk.

    void chunk(Statement& body) {
        for (const Statement& s : body.body)
            if (s.kind == Kind::Later) later_ = s;
        readers_ = count_readers(body), released_ = false, copied_.clear(), copies_.clear(), stores_.clear();
        if (!all_read_ && !kernel_.arrivals) note_stores(body);  // of the chunk before
        all_read_ = false;
        in_chunk_ = true;
        List done;
        for (Statement& s : body.body) visit(std::move(s), done);
        indent_ = body.indent;
        finish(products_.size(), done);
        release(done);
        in_chunk_ = false;
        body.body = std::move(done);
    }

    void note_stores(const Statement& s) {
        if (s.kind == Kind::Store) stores_.push_back(in_memory(s.reads));
        for (const Statement& t : s.body) note_stores(t);
    }
    [[nodiscard]] static bool reads_channel(const Statement& s) {
        return std::any_of(s.reads.begin(), s.reads.end(), [](const Access& a) { return !a.channel.empty(); });
    }
    [[nodiscard]] static int count_readers(const Statement& s) {
        int count = reads_channel(s) ? 1 : 0;
        for (const Statement& t : s.body) count += count_readers(t);
        return count;
    }

    void operation(Statement s, List& done) {
        if (later_ && !products_.empty() && !has(s, Kind::Issue) && !has(s, Kind::Copy)) {
            done.push_back(std::move(*later_));
            later_.reset(), copies_.emplace_back();
        }
        wait_for_channels(s, done);
        if (!s.reads.empty() || !s.writes.empty()) {  // several steps, with barriers of their own
            before(s, done);
            readers_ -= count_readers(s);
            done.push_back(std::move(s));
        } else {
            List steps;
            for (Statement& t : s.body) visit(std::move(t), steps);
            s.body = std::move(steps);
            if (!s.body.empty()) done.push_back(std::move(s));
        }
        release_if_read(done);
    }

    // A statement.

    void step(Statement s, List& done) {
        for (const Access& a : s.reads) {
            if (a.memory != Memory::Registers) continue;
            need(a.buffer, done);
            if (s.kind == Kind::Compute && !products_.empty()) copied_.insert(a.buffer);
        }
        const bool reads = reads_channel(s);
        if (s.kind == Kind::Compute || !in_memory(s.writes).empty())
            if (!reads) release_if_read(done);
        if (reads) --readers_;
        const std::string channel = written_channel(s);
        if (!channel.empty()) add(done, with_channel(Kind::Wait, channel, Side::Empty));
        else before(s, done);
        if (s.kind == Kind::Keep) s.copied = copied_.contains(s.values.at(0));
        if (s.kind == Kind::Issue && (s.over || products_apart())) finish(products_.size(), done);
        if (s.kind == Kind::Issue && s.over) append(read_, in_memory(s.reads));
        else if (s.kind == Kind::Issue) products_.push_back({s.writes.at(0).buffer, in_memory(s.reads)});
        if (s.kind == Kind::Store) stores_.push_back(in_memory(s.reads));
        const int indent = indent_;
        done.push_back(std::move(s));
        indent_ = indent;
        if (!channel.empty()) add(done, line({{Kind::Fence}, with_channel(Kind::Arrive, channel, Side::Filled)}));
    }

    /// Of what a chunk asks for after it has begun, when there is room; a group of its own, which follows.
    void late_copy(Statement s, List& done) {
        const Accesses writes = shared(s.writes);
        expect(writes, done);
        wait_for_stores(writes, done);
        finish_readers(writes, done);
        if (meet(writes, written_) || meet(writes, read_)) barrier(done);
        copies_.push_back(writes);
        done.push_back(std::move(s));
    }

    /// Waits for copies into this memory, and for those before them.
    void expect(const Accesses& accesses, List& done) {
        for (std::size_t n = copies_.size(); n > 0; --n) {
            if (!meet(copies_[n - 1], accesses)) continue;
            copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(n));
            Statement wait{Kind::CopyWait};
            wait.pending = static_cast<int>(copies_.size());
            if (kernel_.arrivals) wait.channel = kArrivals;
            add(done, line({std::move(wait), {Kind::Fence}, {Kind::Barrier}}));
            read_.clear(), written_.clear();
            return;
        }
    }

    /// For those that may still read this memory, and those before them.
    void wait_for_stores(const Accesses& writes, List& done) {
        for (std::size_t n = stores_.size(); n > 0; --n) {
            if (!meet(stores_[n - 1], writes)) continue;
            stores_.erase(stores_.begin(), stores_.begin() + static_cast<std::ptrdiff_t>(n));
            Statement wait{Kind::StoresRead};
            wait.pending = static_cast<int>(stores_.size());
            add(done, line({std::move(wait), {Kind::Barrier}}));
            read_.clear();  // what threads wrote is there for them, not yet for products
            return;
        }
    }

    void finish_readers(const Accesses& writes, List& done) {
        for (std::size_t n = products_.size(); n > 0; --n)
            if (meet(products_[n - 1].reads, writes)) return finish(n, done);
    }

    /// What memory asks for.
    void before(const Statement& s, List& done) {
        const Accesses reads = in_memory(s.reads), writes = in_memory(s.writes);
        expect(reads, done);
        expect(writes, done);
        wait_for_stores(writes, done);
        finish_readers(writes, done);
        if (meet(reads, written_) || meet(writes, written_) || meet(writes, read_)) barrier(done);
        append(read_, reads);
        append(written_, writes);
    }

    void barrier(List& done) {
        add(done, kernel_.publishes ? line({{Kind::Fence}, {Kind::Barrier}}) : Statement{Kind::Barrier});
        read_.clear(), written_.clear();
    }

    // Products.

    [[nodiscard]] bool products_apart() const {
        return std::any_of(kernel_.roles.begin(), kernel_.roles.end(),
                           [&](const Role& r) { return r.name == role_ && r.products_apart; });
    }

    void need(const std::string& value, List& done) {
        for (std::size_t n = products_.size(); n > 0; --n)
            if (products_[n - 1].value == value) return finish(n, done);
    }

    /// The oldest so many; they end in order.
    void finish(std::size_t count, List& done) {
        if (count == 0) return;
        const auto end = products_.begin() + static_cast<std::ptrdiff_t>(count);
        Statement s{Kind::Finish};
        for (auto it = products_.begin(); it != end; ++it) {
            append(read_, it->reads);
            const bool again =
                std::any_of(end, products_.end(), [&](const Product& p) { return p.value == it->value; });
            if (!again && std::find(s.values.begin(), s.values.end(), it->value) == s.values.end())
                s.values.push_back(it->value);
        }
        products_.erase(products_.begin(), end);
        s.pending = static_cast<int>(products_.size());
        add(done, std::move(s));
    }

    // Channels.

    [[nodiscard]] Statement with_channel(Kind kind, const std::string& channel, Side side) const {
        Statement s{kind};
        s.channel = channel, s.side = side, s.what = kernel_.channel(channel)->turn;
        return s;
    }
    /// That the role hands over; what others hand to it, it may change where it lies.
    [[nodiscard]] std::string written_channel(const Statement& s) const {
        for (const Access& a : s.writes)
            if (const Channel* const channel = kernel_.channel(a.channel); channel && channel->writer == role_)
                return a.channel;
        return "";
    }

    /// Each is waited for once a chunk, before the operation that reads it first.
    void wait_for_channels(const Statement& s, List& done) {
        for (const Access& a : s.reads) {
            const Channel* const channel = kernel_.channel(a.channel);
            if (channel && channel->writer != role_ && waited_.insert(a.channel).second)
                add(done, with_channel(Kind::Wait, a.channel, Side::Filled));
        }
        for (const Statement& t : s.body) wait_for_channels(t, done);
    }

    void note_waits(const Statement& s) {
        if (s.kind == Kind::Wait) waited_.insert(s.channel);
        for (const Statement& t : s.body) note_waits(t);
    }

    void release_if_read(List& done) {
        if (in_chunk_ && readers_ == 0 && products_.empty()) release(done);
    }
    void release(List& done) {
        if (released_) return;
        released_ = true;
        for (const Channel& c : kernel_.channels)
            if (std::find(c.readers.begin(), c.readers.end(), role_) != c.readers.end())
                add(done, with_channel(Kind::Arrive, c.name, Side::Empty));
    }

    // Text.

    [[nodiscard]] static Statement line(List statements) {
        Statement s{Kind::Line};
        s.body = std::move(statements);
        return s;
    }
    void add(List& done, Statement s) const {
        s.indent = indent_;
        done.push_back(std::move(s));
    }

    Kernel& kernel_;
    std::string role_;
    int indent_ = 0;                 ///< of the statement that is looked at
    Accesses read_, written_;        ///< since the last barrier
    std::vector<Product> products_;  ///< under way
    std::vector<Accesses> copies_;   ///< since a chunk has begun, under way; nothing of what later chunks read
    // In a chunk.
    bool in_chunk_ = false, released_ = false;
    bool all_read_ = false;         ///< stores of the chunk before, as one begins
    std::vector<Accesses> stores_;  ///< what those read that may not have ended
    int readers_ = 0;               ///< statements to come that read what channels hand over
    std::set<std::string> waited_;  ///< channels that have been waited for
    std::set<std::string> copied_;  ///< values that are read while products are under way
    std::optional<Statement> later_;
};

}  // namespace

void synchronise(Kernel& kernel) { Synchroniser(kernel).run(); }

}  // namespace forge::kernel
