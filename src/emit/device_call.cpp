#include "emit/kernel.h"
#include "emit/loops.h"
#include "emit/statements.h"
#include "forge/error.h"

namespace forge::emit {
namespace {

using ir::Along;
using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;
using tile::size_of;

const char* flag(bool b) { return b ? "true" : "false"; }

/// The text of a call, from the op's sizes and strides.
class DeviceCall {
  public:
    DeviceCall(Context& context, ValueId v)
        : c_(context), out_(context.out), fn_(context.fn), v_(v), op_(fn_.op(v)), result_(context.name(v)) {}

    void write() {
        switch (ir::along(op_.code)) {
            case Along::Contracted:
                return matmul(accumulation());
            case Along::Scanned:
                return op_.code == Opcode::Cumsum ? cumsum() : cumprod();
            case Along::Joined:
                return join();
            case Along::Reduced:
                return reduce();
            case Along::RowScan:
                if (op_.code == Opcode::LinearScan) return linear_scan();
                break;  // of a row loop
            case Along::Matrix:
                return out_.line("unit_lower_inverse<{}, {}, {}>({}, {});", size_of(op_.type, 0),
                                 row_stride(op_.args[0]), row_stride(v_), pointer(0), result_);
            case Along::Pairs:
                return op_.code == Opcode::DecayMask ? decay_mask() : decay_matmul();
            case Along::Rows:
                if (op_.code == Opcode::DecayApply) return decay_apply();
                break;  // of the warp groups
            case Along::Repeated:
                return repeat();
            case Along::Leaf:
            case Along::Place:
            case Along::Pointwise:
            case Along::Triangle:
            case Along::Copied:
            case Along::Shifted:
            case Along::Normalised:
            case Along::Permuted:
            case Along::Inserted:
            case Along::Removed:
            case Along::Selected:
            case Along::Cut:
            case Along::Broadcast:
                break;
        }
        throw InternalError(std::string("emit: no device function for ") + ir::info(op_.code).name);
    }

  private:
    [[nodiscard]] const ir::Type& type(std::size_t arg) const { return fn_.op(op_.args[arg]).type; }
    [[nodiscard]] std::string pointer(std::size_t arg) const { return tile_pointer(fn_, op_.args[arg], c_.names); }
    [[nodiscard]] std::int64_t stride(ValueId v, int axis) const {
        return fn_.op(v).layout->strides[static_cast<std::size_t>(axis)];
    }
    /// Floats from row to row; a vector is one row.
    [[nodiscard]] std::int64_t row_stride(ValueId v) const {
        return fn_.op(v).type.rank() < 2 ? 0 : stride(v, fn_.op(v).type.rank() - 2);
    }

    /// A value seen as a matrix whose rows are an axis: the trailing axes lie one after the other, padding and all.
    [[nodiscard]] std::int64_t flat_columns(ValueId v, int axis = 0) const {
        const ir::Type& t = fn_.op(v).type;
        return t.rank() == axis + 2 ? size_of(t, axis + 1) : stride(v, axis);
    }

    /// Along an axis of the operand, as matrices: `rows(from, to)` for each index of the axes before it, or, along the
    /// last one, `cols(from, to)` for each index of those before the last two.
    template <class Rows, class Cols>
    void per_matrix(Rows&& rows, Cols&& cols) {
        const ir::Type& x = type(0);
        const int axis = static_cast<int>(op_.attrs.dim), leading = axis + 1 == x.rank() ? axis - 1 : axis;
        std::string from = pointer(0), to = result_;
        for (int i = 0; i < leading; ++i) {
            out_.open(fmt::format("for (int i{0} = 0; i{0} < {1}; ++i{0})", i, size_of(x, i)));
            from += fmt::format(" + i{} * {}", i, stride(op_.args[0], i));
            to += fmt::format(" + i{} * {}", i, stride(v_, i));
        }
        if (leading == axis) rows(axis, from, to);
        else cols(axis - 1, from, to);
        for (int i = 0; i < leading; ++i) out_.close();
    }

    [[nodiscard]] const char* accumulation() const {
        const ir::Linear linear = ir::linear(op_.code);
        return linear == ir::Linear::Accumulated ? "Add" : linear == ir::Linear::Subtracted ? "Sub" : "Set";
    }

    /// Vectors with a matrix that threads hold, or its transpose, one by one.
    void multiply_held(const char* acc) {
        const std::size_t matrix = c_.is_held(op_.args[0]) ? 0 : 1, other = 1 - matrix;
        const ValueId h = tile::buffer_of(fn_, op_.args[matrix]), x = op_.args[other];
        const bool transposed = (h != op_.args[matrix]) != (matrix == 0 && op_.attrs.trans_a);
        const bool along_rows = (matrix == 1) != transposed;  // x is summed with the matrix's rows
        // The axis of x that is summed over, and that of the result that has the vectors.
        const int summed = other == 1 || op_.attrs.trans_a ? 0 : 1, vectors = other == 1 ? 1 : 0;
        const auto beyond = [](const std::string& begin, std::int64_t floats) {
            return floats == 0 ? begin : fmt::format("{} + {}", begin, floats);
        };
        for (std::int64_t n = 0; n < size_of(op_.type, vectors); ++n) {
            if (n > 0) out_.put("sync();");  // of what warps have left each other
            out_.line("multiply_{}<{}, {}, Acc::{}>({}, {}, {});", along_rows ? "rows" : "columns", stride(x, summed),
                      stride(v_, 1 - vectors), acc, beyond(pointer(other), n * stride(x, 1 - summed)), c_.name(h),
                      beyond(result_, n * stride(v_, vectors)));
        }
    }

    /// An outer product, or a few of them, in a matrix that threads hold.
    void multiply_onto_held(const char* acc) {
        const ValueId a = op_.args[0], b = op_.args[1];
        const int rows = op_.attrs.trans_a ? 1 : 0, depth = 1 - rows;
        if (op_.args.size() == 3) out_.line("{} = {};", result_, c_.name(op_.args[2]));
        out_.line("multiply_onto<{}, {}, {}, {}, {}, Acc::{}>({}, {}, {});", size_of(type(0), depth), stride(a, rows),
                  stride(a, depth), stride(b, 0), stride(b, 1), acc, pointer(0), pointer(1), result_);
    }

    void matmul(const char* acc) {
        if (c_.is_held(v_)) return multiply_onto_held(acc);
        const ValueId a = op_.args[0], b = op_.args[1];
        if (op_.args.size() == 3 && c_.dialect.cooperative && !tile::same_buffer(fn_, op_.args[2], v_)) {
            c_.next("copy_tile", c_.memory(op_.args[2]), c_.memory(v_));
            out_.line("copy_tile<{}, {}, {}, {}>({}, {});", size_of(op_.type, 0), size_of(op_.type, 1), row_stride(v_),
                      row_stride(op_.args[2]), result_, pointer(2));
            out_.add(group_barrier());
            kernel::Accesses reads = c_.memory(a);
            kernel::append(reads, c_.memory(b)), kernel::append(reads, c_.memory(v_));
            c_.next("matmul", reads, c_.memory(v_));
        }
        if (c_.is_held(a) || c_.is_held(b)) return multiply_held(acc);
        const int rows = op_.attrs.trans_a ? 1 : 0, depth = 1 - rows;
        std::string tri;
        switch (op_.attrs.tri) {
            case ir::Tri::None:
                break;
            case ir::Tri::OutLower:
                tri = ", Tri::OutLower";
                break;
            case ir::Tri::ALower:
                tri = ", Tri::ALower";
                break;
            case ir::Tri::AUpper:
                tri = ", Tri::AUpper";
                break;
        }
        const bool aligned = !c_.dialect.cooperative || (is_aligned(a) && is_aligned(b));
        if (!tri.empty() && (op_.attrs.diagonal != 0 || !aligned)) tri += fmt::format(", {}", op_.attrs.diagonal);
        if (!aligned) tri = (tri.empty() ? ", Tri::None, 0" : tri) + ", false";
        const std::string right =
            c_.dialect.cooperative ? fmt::format("{}, {}", stride(b, 0), stride(b, 1)) : std::to_string(row_stride(b));
        const std::string sizes = fmt::format("{}, {}, {}, {}, {}, {}, {}{}, Acc::{}", size_of(op_.type, 0),
                                              size_of(op_.type, 1), size_of(type(0), depth), stride(a, rows),
                                              stride(a, depth), right, row_stride(v_), precision(), acc);
        if (op_.args.size() == 3 && !c_.dialect.cooperative && !tile::same_buffer(fn_, op_.args[2], v_))
            return matmul_onto(sizes, tri);
        out_.line("matmul<{}{}>({}, {}, {});", sizes, tri, pointer(0), pointer(1), result_);
    }

    /// On top of what lies elsewhere, or is to be scaled on the way.
    void matmul_onto(const std::string& sizes, const std::string& tri) {
        const ValueId base = tile::base_of(fn_, op_);
        std::string scale = "nullptr";
        std::int64_t step = -1;
        if (base != op_.args[2]) {
            const Op& scaled = fn_.op(op_.args[2]);
            const ValueId s = scaled.args[static_cast<std::size_t>(1 - tile::scaled_operand(fn_, scaled))];
            const ir::Type& t = fn_.op(s).type;
            scale = tile_pointer(fn_, s, c_.names);
            step = t.rank() == 0 || size_of(t, 0) == 1 ? 0 : stride(s, 0);
        }
        out_.line("matmul_onto<{}, {}, {}{}>({}, {}, {}, {}, {});", sizes, row_stride(base), step, tri, pointer(0),
                  pointer(1), result_, tile_pointer(fn_, base, c_.names), scale);
    }

    void cumsum() {
        const std::string flags = fmt::format("{}, {}", flag(op_.attrs.reverse), flag(op_.attrs.exclusive));
        if (op_.type.rank() == 1)
            return out_.line("cumsum<{}, {}>({}, {});", size_of(op_.type, 0), flags, pointer(0), result_);
        const ValueId x = op_.args[0];
        const auto along = [&](const char* way) {
            return [&, way](int rows, const std::string& from, const std::string& to) {
                out_.line("cumsum_{}<{}, {}, {}, {}, {}>({}, {});", way, size_of(op_.type, rows),
                          flat_columns(v_, rows), stride(x, rows), stride(v_, rows), flags, from, to);
            };
        };
        per_matrix(along("rows"), along("cols"));
    }

    void cumprod() {
        const ValueId v = op_.args[0];
        if (op_.type.rank() == 1)
            return out_.line("cumprod_cols<1, {}, 0, 0>({}, {});", size_of(op_.type, 0), pointer(0), result_);
        const auto along = [&](const char* way) {
            return [&, way](int rows, const std::string& from, const std::string& to) {
                out_.line("cumprod_{}<{}, {}, {}, {}>({}, {});", way, size_of(op_.type, rows), flat_columns(v_, rows),
                          stride(v, rows), stride(v_, rows), from, to);
            };
        };
        per_matrix(along("rows"), along("cols"));
    }

    /// Each operand into its part of the result: a place at which it begins, and strides.
    void join() {
        const int axis = static_cast<int>(op_.attrs.dim), last = op_.type.rank() - 1;
        const auto count = static_cast<std::int64_t>(op_.args.size());
        const bool by_turns = op_.code == Opcode::Interleave;
        std::int64_t before = 0;
        for (std::size_t n = 0; n < op_.args.size(); ++n) {
            const ValueId v = op_.args[n];
            const ir::Type& x = type(n);
            const auto step = [&](int of) { return stride(v_, of) * (by_turns && of == axis ? count : 1); };
            std::string from = pointer(n),
                        to = fmt::format("{} + {}", result_,
                                         stride(v_, axis) * (by_turns ? static_cast<std::int64_t>(n) : before));
            for (int i = 0; i + 2 <= last; ++i) {
                out_.open(fmt::format("for (int i{0} = 0; i{0} < {1}; ++i{0})", i, size_of(x, i)));
                from += fmt::format(" + i{} * {}", i, stride(v, i));
                to += fmt::format(" + i{} * {}", i, step(i));
            }
            const bool vector = last == 0;
            out_.line("put_part<{}, {}, {}, {}, {}>({}, {});", vector ? 1 : size_of(x, last - 1), size_of(x, last),
                      vector ? 0 : stride(v, last - 1), vector ? 0 : step(last - 1), step(last), from, to);
            for (int i = 0; i + 2 <= last; ++i) out_.close();
            before += size_of(x, axis);
        }
    }

    void reduce() {
        const char* name = ir::info(op_.code).name;
        const ir::Type& x = type(0);
        const ValueId v = op_.args[0];
        if (c_.is_held(v))
            return out_.line("{}_{}_of({}, {});", name, op_.attrs.dim == 0 ? "rows" : "columns", c_.name(v), result_);
        if (x.rank() == 1) return out_.line("fill<1>({}, {}<{}>({}));", result_, name, size_of(x, 0), pointer(0));
        const auto along = [&](const char* way) {
            return [&, way](int rows, const std::string& from, const std::string& to) {
                out_.line("{}_{}<{}, {}, {}>({}, {});", name, way, size_of(x, rows), flat_columns(v, rows),
                          stride(v, rows), from, to);
            };
        };
        per_matrix(along("rows"), along("cols"));
    }

    /// Whether a tile, or the part of one that a view is, begins at a whole vector.
    [[nodiscard]] bool is_aligned(ValueId v) const { return fn_.op(v).layout->offset % 4 == 0; }

    void linear_scan() {
        const bool reverse = op_.attrs.reverse, exclusive = op_.attrs.exclusive;
        if (op_.type.rank() == 1)
            return out_.line("linear_scan_vector<{}{}>({}, {}, {});", size_of(op_.type, 0),
                             reverse || exclusive ? fmt::format(", {}, {}", reverse, exclusive) : "", pointer(0),
                             pointer(1), result_);
        if (reverse || exclusive)
            return out_.line("linear_scan_{}<{}, {}, {}, {}, {}, {}>({}, {}, {});", reverse ? "reverse" : "forward",
                             size_of(op_.type, 0), flat_columns(v_), stride(op_.args[0], 0), stride(op_.args[1], 0),
                             stride(v_, 0), exclusive, pointer(0), pointer(1), result_);
        const bool alike = op_.type.rank() == 2 && stride(op_.args[0], 1) == 0;  // a row's factors
        out_.line("linear_scan<{}, {}, {}, {}, {}{}>({}, {}, {});", size_of(op_.type, 0), flat_columns(v_),
                  stride(op_.args[0], 0), stride(op_.args[1], 0), stride(v_, 0), alike ? ", 0" : "", pointer(0),
                  pointer(1), result_);
    }

    void decay_mask() {
        out_.line("decay_mask<{}, {}, {}>({}, {});", size_of(op_.type, 0), row_stride(v_), flag(op_.attrs.exclusive),
                  pointer(0), result_);
    }

    void decay_matmul() {
        const auto n = size_of(op_.type, 0), k = size_of(type(0), 1);
        with_work(fmt::format("decay_matmul_scratch<{}, {}>()", n, k), [&](const std::string& work) {
            out_.line("decay_matmul<{}, {}, {}, {}, {}, {}, {}{}>({}, {}, {}, {}, {});", n, k, row_stride(op_.args[0]),
                      row_stride(op_.args[1]), row_stride(op_.args[2]), row_stride(v_), flag(op_.attrs.exclusive),
                      precision(), pointer(0), pointer(1), pointer(2), result_, work);
        });
    }

    void decay_apply() {
        const auto n = size_of(op_.type, 0), v = size_of(op_.type, 1);
        with_work(std::to_string(n * row_stride(v_)), [&](const std::string& work) {
            out_.line("decay_apply{}<{}, {}, {}, {}, {}, {}, {}{}>({}, {}, {}, {}, {});",
                      op_.attrs.reverse ? "_reverse" : "", n, v, row_stride(op_.args[0]), row_stride(op_.args[1]),
                      row_stride(op_.args[2]), row_stride(v_), flag(op_.attrs.exclusive), precision(), pointer(0),
                      pointer(1), pointer(2), result_, work);
        });
    }

    /// The memory that a device function needs for itself: on the thread's stack, or where the tiles were laid out.
    template <class Call>
    void with_work(const std::string& floats, Call&& call) {
        if (c_.dialect.cooperative) {
            const auto work = c_.kernel.tiles.work.find(v_);
            return call(work == c_.kernel.tiles.work.end() ? "nullptr" : c_.place(work->second));
        }
        out_.open("");
        out_.line("alignas(64) float work[{}];", floats);
        call("work");
        out_.close();
    }

    /// The precision that a product must state: what the element types ask for, but all of float's for what is
    /// inverted.
    [[nodiscard]] std::string precision() const {
        if (!c_.dialect.cooperative) return "";
        return c_.needs_float(v_) ? ", Precision::Float" : ", Precision::Tf32";
    }

    void repeat() {
        const ir::Type& x = type(0);
        if (x.rank() == 1)
            return out_.line("repeat_vector<{}, {}>({}, {});", size_of(x, 0), op_.attrs.count, pointer(0), result_);
        const auto along = [&](const char* way) {
            return [&, way](int rows, const std::string& from, const std::string& to) {
                out_.line("repeat_{}<{}, {}, {}, {}, {}>({}, {});", way, size_of(x, rows),
                          flat_columns(op_.args[0], rows), stride(op_.args[0], rows), stride(v_, rows), op_.attrs.count,
                          from, to);
            };
        };
        per_matrix(along("rows"), along("cols"));
    }

    Context& c_;
    Writer& out_;
    const Function& fn_;
    ValueId v_;
    const Op& op_;
    const std::string& result_;
};

}  // namespace

void write_device_call(Context& context, ValueId v) { DeviceCall(context, v).write(); }

}  // namespace forge::emit
