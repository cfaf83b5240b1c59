/// The plain data that kernels on every device and the runtime that calls them share: a tensor of the caller, and the part
/// of a call's work that one task does. 64-bit sizes; nothing here owns memory.
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
    Size group;
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
