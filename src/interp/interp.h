/// The interpreter: evaluates an IR function in float64, one op at a time, by the definition of the op. Slow and
/// obvious; it is the oracle for every pass, level and back end. Element types are ignored: rounding is what it
/// measures others by.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/function.h"

namespace forge::interp {

/// A row-major array; booleans are 0 and 1.
struct Value {
    std::vector<std::int64_t> shape;
    std::vector<double> data;

    [[nodiscard]] std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
    friend bool operator==(const Value&, const Value&) = default;
};

using Sizes = std::map<std::string, std::int64_t>;  ///< symbol ("C", "K", …) -> size
using Bindings = std::map<std::string, Value>;      ///< binding name -> value

/// The name under which a parameter is looked up: its own, with a suffix where a role shares names with another.
std::string binding_name(const std::string& name, ir::Role role);

Value scalar(double x);
Value zeros(std::vector<std::int64_t> shape);
std::int64_t element_count(const std::vector<std::int64_t>& shape);
/// A symbolic shape at the given sizes; an unknown symbol is an InternalError.
std::vector<std::int64_t> concrete(const Shape& shape, const Sizes& sizes);

/// Sees every value of a function as it is made, and may change it: what rounding would do, say.
using Touch = std::function<void(const ir::Function& fn, ir::ValueId value, Value& result)>;

/// The results of `fn`, in order. Works at every level; `tri` and layouts are permissions, and are not used.
std::vector<Value> evaluate(const ir::Function& fn, const Bindings& params, const Sizes& sizes,
                            const Touch& touch = {});

}  // namespace forge::interp
