/// Time inside a kernel, as plain data. A kernel is a list of statements, each with what it reads and writes, and
/// where.
///
///     emitters            what is computed and moved, in order, with reads and writes; roles and channels
///     synchronise         barriers, waits for products, what channels ask for: from the reads and writes
///     find_hazards        proves that every read comes after its write and every overwrite after the last read
///     emit::print         C++, line by line
///
/// A statement's text is the lines that it has, or, where all that it does is to synchronise, one line that follows
/// from its fields (emit/statements).
///
/// **Roles** are the homes of stages: which values a warp group computes, or several that take chunks by turns, or
/// single warps. Without roles all threads of the block do everything.
///
/// **Channels** carry what one role makes and others read, through `depth` buffers by turns. Each buffer has two
/// barriers, `filled` and `empty`, whose phases are rounds through the buffers.
///
/// **Memory**: registers, named by the value that they hold, are each thread's own; buffers of shared and of global
/// memory have ranges of bytes. What belongs to a chunk lies at `begin + stride * ((chunk + ahead) % depth)`.
///
/// **Chunks**: a `Loop` says which of them a role takes, one after the other. Within it `ahead` counts from its chunk.
/// A `Function` is the work of any chunk; a `Use` of it names one.
///
/// **Asynchronous** are `Copy` (by this thread, which waits for groups that end with `Commit` by `CopyWait`),
/// `BulkCopy` (the barrier `filled` of a channel waits for it), `Store` (which reads shared memory until `StoresRead`)
/// and `Issue` (a product, until `Finish`). Products and stores do not read shared memory as threads do: they see what
/// a thread wrote once it has passed a `Fence`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forge::kernel {

enum class Memory : std::uint8_t { Registers, Shared, Global };

/// Bytes of a buffer, or a value in registers.
struct Access {
    Memory memory = Memory::Shared;
    std::string buffer;               ///< registers: the value
    std::int64_t begin = 0, end = 0;  ///< 0 of registers
    std::string channel = {};         ///< that hands it over, if one does
    int depth = 1;                    ///< how many buffers there are, by turns
    std::int64_t stride = 0;          ///< … from that of a chunk to that of the next one
    int ahead = 0;                    ///< of which chunk, from the loop's
    std::int64_t of_instance = 0;     ///< from a group's to that of the next one with its role
    friend bool operator==(const Access&, const Access&) = default;
};
using Accesses = std::vector<Access>;
Access registers(const std::string& value);
void append(Accesses& to, const Accesses& from);
/// Whether they may be the same memory, in the same chunk.
bool meet(const Accesses& a, const Accesses& b);

enum class Kind : std::uint8_t {
    Code,          ///< text that neither reads nor writes what is kept track of here
    Compute,       ///< threads compute: an elementwise loop, a device function
    Move,          ///< threads move: between registers and memory, into the form that products read
    Keep,          ///< a carried value takes its next one
    Copy,          ///< threads ask for data from global memory, or one asks for all (Kernel::arrivals)
    BulkCopy,      ///< one thread asks for data, which `channel` announces
    Store,         ///< to global memory, by the hardware where it can (When), else by the threads
    Issue,         ///< a product begins, a group of its own
    Commit,        ///< the copies since the last one are a group
    CopyWait,      ///< until at most `pending` groups of this thread's copies are under way
    Finish,        ///< until at most `pending` products are; `values` have come
    StoresRead,    ///< until this thread's stores but the last `pending` have read
    Fence,         ///< what this thread wrote to shared memory is there for products and stores
    Barrier,       ///< of the threads of a group
    BlockBarrier,  ///< of all threads
    Begin,         ///< a channel's barriers come into being
    Arrive,        ///< at a channel's barrier
    Wait,          ///< for a channel's barrier
    WaitKernel,    ///< until the kernel before has made what is read
    Registers,     ///< are shared out anew
    Rest,          ///< for `synchronise`: no thread may be left behind
    Line,          ///< statements in one line
    Operation,     ///< statements that make one value
    Later,         ///< for `synchronise`: to begin as soon as products are under way
    Body,          ///< the operations of a chunk
    Loop,          ///< over chunks, or tasks
    Role,          ///< what one of the kernel's roles does
    Function,      ///< of a chunk
    Use,           ///< of a function
    Kernel,        ///< all of it
};
const char* to_string(Kind kind);
constexpr int kKinds = static_cast<int>(Kind::Kernel) + 1;
/// Whether it is a block of statements.
bool has_body(Kind kind);

enum class Side : std::uint8_t { Filled, Empty };
/// Which of a group's threads: all, or those of one warp.
enum class By : std::uint8_t { All, Warp, LastWarp };
/// Which chunks: those that the hardware can copy, or those that it cannot.
enum class When : std::uint8_t { Always, ByHardware, ByThreads };

struct Statement {
    Kind kind = Kind::Code;
    std::string what = {};  ///< the function, the value, the role
    Accesses reads = {}, writes = {};
    By by = By::All;
    When when = When::Always;
    std::string channel = {};
    Side side = Side::Filled;
    int pending = 0;
    int ahead = 0;                         ///< Use: of which chunk; Arrive and Wait: of which round, from the chunk's
    bool copied = false;                   ///< Keep: into other registers
    bool over = false;                     ///< Issue: it waits for the product, and for those before
    std::vector<std::string> values = {};  ///< Finish: that have come; Keep: to and from
    // Loop: its first chunk, and one more for each group before this one with its role; how many, 0: to the end.
    int first = 0, step = 1, count = 0;
    bool by_turns = false;
    bool tasks = false;   ///< … of tasks, not of a task's chunks
    bool within = false;  ///< … of parts of a chunk, of which there are some
    std::vector<Statement> body = {};
    // Its text.
    std::vector<std::string> code = {};  ///< lines, or those before its body; none: it follows from the rest
    std::string tail = {};               ///< the line after its body
    int indent = 0;                      ///< of lines that are not in `code`
};

struct Role {
    std::string name;
    int instances = 1;                     ///< groups, or warps, that do the same
    int warps = 4;                         ///< of each
    std::vector<std::string> values = {};  ///< that it computes
    bool products_apart = false;           ///< one ends before the next begins: registers do not suffice for two
    friend bool operator==(const Role&, const Role&) = default;
};

struct Channel {
    std::string name;
    std::string turn;  ///< the variable that says where a role stands in it
    int depth = 1;
    std::string writer;
    std::vector<std::string> readers;
    int filled = 1, empty = 1;  ///< how many warps arrive in a phase
    Access barriers = {};       ///< where they lie
    friend bool operator==(const Channel&, const Channel&) = default;
};

inline constexpr const char* kArrivals = "arrivals";

struct Kernel {
    std::string name;
    std::vector<Role> roles = {};  ///< none: all threads do everything
    std::vector<Channel> channels = {};
    bool overlaps = false;   ///< it may start before the kernel before has ended
    bool publishes = false;  ///< its barriers are for products, too
    bool arrivals = false;   ///< its copies are the hardware's where they can be, and report to barriers, kArrivals
    std::vector<Statement> body = {};

    [[nodiscard]] const Channel* channel(const std::string& name) const;  ///< null if there is none
};

/// The statements without their text; `parse` reads that. CompileError if it is something else.
std::string print(const Kernel& kernel);
Kernel parse(const std::string& text);

}  // namespace forge::kernel
