/// The plain data that kernels on every device and the runtime that calls them share: a tensor of the caller, and the
/// part of a call's work that one task does. 64-bit sizes; nothing here owns memory.
#pragma once

namespace forge::device {

using Size = long long;

/// A tensor of the caller. Strides are in elements. A value head h reads head h / group.
struct CallTensor {
    void* data;
    Size sequence;  ///< stride between sequences; 0 when sequences are packed along the token axis
    Size token;     ///< stride between rows of the token axis
    Size head;
    Size dim[4];  ///< strides of the remaining axes
    Size group;   ///< of states before chunks: how many of them there are; in a pool `sequence` is their number per
                  ///< sequence
};

/// Where the states of sequences lie in a pool: sequence n has slot n of it, or those that `initial` and `final` say
/// (i32, or i64 if `wide`; null: n). A sequence with a negative slot is skipped.
struct StateSlots {
    const void* initial;
    const void* final;
    const unsigned char* has_initial;  ///< per sequence: 0 starts from zeros; null: all have a state
    int wide;
    /// The slot of each state before a chunk, where those lie in a pool: [sequences, chunks], or of all packed ones in
    /// a row (i32, or i64 if `wide_chunks`; null: they lie in this order themselves). Negative: it is not written.
    const void* chunks;
    int wide_chunks;
    Size count;  ///< how many there are to read from
};

/// Whether a state is read (a pointer to const) or written.
template <class T>
struct IsRead {
    static constexpr bool value = false;
};
template <class T>
struct IsRead<const T> {
    static constexpr bool value = true;
};

/// The part of the work that one task does.
struct Task {
    Size sequence, head, tile;
    Size row, end;  ///< its tokens, within the sequence
    Size tokens;    ///< of the sequence
    Size block;     ///< spill block of its first chunk (or segment, for tasks that walk over segments)
    Size segment;   ///< spill block of its segment
    bool last;      ///< whether it ends the sequence
};

}  // namespace forge::device
