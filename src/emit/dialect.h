/// What differs between the texts of the back ends: one table each. The rest of a kernel is the same text, calls of
/// device functions with the same names.
#pragma once

#include <string>
#include <vector>

namespace forge::emit {

struct Dialect {
    std::vector<std::string> defines, includes, namespaces;
    std::string arguments;              ///< of a kernel
    std::vector<std::string> prologue;  ///< first lines of a kernel
    bool early = false;                 ///< it begins before the kernel ahead of it in the stream has ended
    bool overlaps = false;              ///< it waits for the kernel before, which may still run
    std::string idle;                   ///< how a task without work ends; empty: there is none
    /// A block of threads works on a task together: loops are shared out, barriers stand between operations, addresses
    /// of vectors are aligned, products state their precision and both strides of their second operand.
    bool cooperative = false;
    int threads = 1;         ///< of such a block
    bool publishes = false;  ///< its barriers are for matrix units, too
};

}  // namespace forge::emit
