#include "large.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>

#include "check/element.h"
#include "check/tolerance.h"
#include "gpu/session.h"
#include "plan/place.h"
#include "variants/variants.h"

namespace forge::gpu {
namespace {

using check::Buffers;

/// Tokens after which inputs repeat: a prime, so that an index that wrapped around finds other numbers than its own.
constexpr std::int64_t kPeriod = 251;
constexpr std::int64_t kSize = 128;  ///< K and V
constexpr std::int64_t kWindows = 64, kWindow = 256;

struct Shape {
    std::string name;
    Extent extent;
    std::int64_t heads;
};

/// 65 heads: a token has 65 * 2^7 elements, so that an index that wrapped around is in the middle of another row; and
/// one sequence of them in two halves of V has a task for each of a Hopper GPU's multiprocessors, so that warp groups
/// have roles and tensor copies.
const std::vector<Shape>& shapes() {
    static const std::vector<Shape> kShapes = {
        {"1M tokens", {.B = 1, .T = 1 << 20, .final_states = true}, 2},
        {"one sequence of 2^31 elements", {.B = 1, .T = 262144, .final_states = true}, 65},
        {"a batch of 2^31 elements", {.B = 33, .T = 8000, .final_states = true}, 65},
        {"packed 2^31 elements", {.lengths = {100003, 0, 61, 162080}, .final_states = true}, 65},
    };
    return kShapes;
}

std::vector<std::int64_t> sampled(std::int64_t heads) {
    return heads <= 3 ? std::vector<std::int64_t>{0, heads - 1}
                      : std::vector<std::int64_t>{0, heads / 2 + 1, heads - 1};
}

const check::OwnedTensor& owned(const Buffers& buffers, const std::string& name) {
    const auto input = buffers.inputs.find(name);
    return input != buffers.inputs.end() ? input->second : buffers.outputs.at(name);
}

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t from) {
    std::int64_t n = 1;
    for (std::size_t i = from; i < shape.size(); ++i) n *= shape[i];
    return n;
}

/// The same call for a few of its heads on the CPU, everything in float32.
class Sampled {
  public:
    Sampled(const Buffers& pattern, const Extent& extent, std::vector<std::int64_t> heads) : heads_(std::move(heads)) {
        const Call whole = pattern.call();
        call_.scalars = whole.scalars;
        for (const auto& [name, view] : whole.tensors) call_.tensors[name] = tokens(pattern, name, extent);
        for (const auto& [name, view] : whole.final_states) {
            std::vector<std::int64_t> shape = view.shape;
            shape[0] = extent.sequences(), shape[1] = count();
            call_.final_states[name] =
                view_of(std::vector<float>(static_cast<std::size_t>(product(shape, 0)), NAN), shape);
        }
        if (extent.lengths.empty()) return;
        offsets_ = {0};
        for (const std::int64_t length : extent.lengths) offsets_.push_back(offsets_.back() + length);
        call_.cu_seqlens = dense(offsets_.data(), DType::I64, {static_cast<std::int64_t>(offsets_.size())});
    }
    Sampled(const Sampled&) = delete;
    Sampled& operator=(const Sampled&) = delete;

    void run(const ir::Definition& def, const check::Problem& problem, const Extent& extent) const {
        CompileOptions options;
        options.dtype = F32;
        options.sizes = check::sizes_for(def, problem);
        options.tuned = false;
        options.expected_tokens = extent.tokens() / extent.sequences();
        options.expected_sequences = extent.sequences(), options.expected_heads = count();
        compile(def, options)(call_);
    }

    [[nodiscard]] const std::vector<std::int64_t>& heads() const { return heads_; }
    /// Where head number n of the sampled ones begins in a row of an output, or in a sequence's state.
    [[nodiscard]] const float* output(const std::string& name, std::int64_t row, std::size_t n) const {
        return at(call_.tensors.at(name), call_.cu_seqlens ? 1 : 2, row, n);
    }
    [[nodiscard]] const float* state(const std::string& name, std::int64_t sequence, std::size_t n) const {
        return at(call_.final_states.at(name), 1, sequence, n);
    }

  private:
    [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(heads_.size()); }

    const float* at(const TensorView& view, std::size_t head_axis, std::int64_t row, std::size_t n) const {
        return static_cast<const float*>(view.data) +
               (row * count() + static_cast<std::int64_t>(n)) * product(view.shape, head_axis + 1);
    }

    TensorView view_of(std::vector<float> values, const std::vector<std::int64_t>& shape) {
        memory_.push_back(std::move(values));
        return dense(memory_.back().data(), F32, shape);
    }

    /// Of all tokens, by repeating the pattern's; of an input without tokens, as it is.
    TensorView tokens(const Buffers& pattern, const std::string& name, const Extent& extent) {
        const check::OwnedTensor& x = owned(pattern, name);
        const std::vector<ir::InputDecl>& inputs = pattern.definition().inputs;
        const bool has_tokens = std::none_of(inputs.begin(), inputs.end(), [&](const ir::InputDecl& in) {
            return in.name == name && in.role != ir::Role::Input;
        });
        const std::size_t head_axis = has_tokens ? 2 : 0;
        const std::int64_t rows = has_tokens ? x.shape[1] : 1, width = product(x.shape, head_axis + 1),
                           all = x.shape[head_axis];
        std::vector<float> values;
        for (std::int64_t row = 0; row < rows; ++row)
            for (const std::int64_t head : heads_)
                for (std::int64_t i = 0; i < width; ++i)
                    values.push_back(static_cast<float>(x.at((row * all + head) * width + i)));
        std::vector<std::int64_t> shape = x.shape;
        shape[head_axis] = count();
        if (!has_tokens) return view_of(std::move(values), shape);
        const std::int64_t per_token = rows / kPeriod;
        const std::size_t wanted = values.size() / kPeriod * static_cast<std::size_t>(extent.tokens());
        shape[0] = extent.B, shape[1] = per_token * extent.T;
        if (!extent.lengths.empty()) shape.erase(shape.begin()), shape[0] = per_token * extent.tokens();
        const std::size_t period = values.size();
        values.resize(wanted);
        for (std::size_t done = period; done < wanted; done += period)
            std::memcpy(values.data() + done, values.data(), std::min(period, wanted - done) * sizeof(float));
        return view_of(std::move(values), shape);
    }

    std::vector<std::int64_t> heads_, offsets_;
    std::vector<std::vector<float>> memory_;
    Call call_;
};

/// Rows [first, first + count) of the leading axes' product, from the device.
std::vector<std::byte> fetch(const TensorView& x, std::int64_t first, std::int64_t count, std::int64_t width) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * width) * size_in_bytes(x.dtype));
    const auto from = reinterpret_cast<runtime::CudaPointer>(x.data) +
                      static_cast<std::size_t>(first * width) * size_in_bytes(x.dtype);  // NOLINT: numbers
    runtime::CudaDriver::get().check(runtime::CudaDriver::get().copy_to_host(bytes.data(), from, bytes.size()),
                                     "copying from the device");
    return bytes;
}

/// Sums of squares; NaN stays NaN.
struct Error {
    double error = 0, wanted = 0;
    void add(double got, double want) { error += (got - want) * (got - want), wanted += want * want; }
    [[nodiscard]] double relative() const {
        const double rms = wanted > 0 ? std::sqrt(error / wanted) : std::sqrt(error);
        return std::isfinite(rms) ? rms : HUGE_VAL;
    }
};

struct Worst {
    double rms = 0;
    std::string where = "";
    void note(const Error& e, const std::string& place) {
        if (!(e.relative() <= rms)) rms = e.relative(), where = place;
    }
};

/// Rows of one tensor of all heads, as the device has it, against the sampled heads'; `want(row, n)`: where the n-th
/// begins.
template <class Want>
Error compare_rows(const TensorView& x, std::size_t head_axis, std::int64_t first, std::int64_t count,
                   const std::vector<std::int64_t>& heads, Want&& want) {
    const std::int64_t all = x.shape[head_axis], width = product(x.shape, head_axis + 1);
    const std::vector<std::byte> got = fetch(x, first, count, all * width);
    Error error;
    for (std::int64_t row = 0; row < count; ++row)
        for (std::size_t n = 0; n < heads.size(); ++n)
            for (std::int64_t i = 0; i < width; ++i)
                error.add(check::load(got.data() + static_cast<std::size_t>((row * all + heads[n]) * width + i) *
                                                       size_in_bytes(x.dtype),
                                      x.dtype),
                          want(first + row, n)[i]);
    return error;
}

Worst compare(const Call& device, const Sampled& host, const std::vector<ir::OutputDecl>& outputs, bool packed) {
    Worst worst;
    for (const ir::OutputDecl& out : outputs) {
        const TensorView& x = device.tensors.at(out.name);
        const std::size_t head_axis = packed ? 1 : 2;
        const std::int64_t rows = product(x.shape, 0) / product(x.shape, head_axis), count = std::min(kWindow, rows);
        for (std::int64_t n = 0; n <= kWindows; ++n) {
            const std::int64_t first = (rows - count) / kWindows * n + (n == kWindows ? (rows - count) % kWindows : 0);
            worst.note(compare_rows(x, head_axis, first, count, host.heads(),
                                    [&](std::int64_t row, std::size_t h) { return host.output(out.name, row, h); }),
                       fmt::format("{} at token {}", out.name, first));
        }
    }
    for (const auto& [name, x] : device.final_states)
        worst.note(
            compare_rows(x, 1, 0, x.shape[0], host.heads(),
                         [&, &state = name](std::int64_t row, std::size_t h) { return host.state(state, row, h); }),
            "state " + name);
    return worst;
}

struct Row {
    std::string program, shape, strategy, schedule, problem;
    Worst worst;
    double gigabytes = 0, workspace_gigabytes = 0, milliseconds = 0;
    [[nodiscard]] bool ok() const { return problem.empty() && worst.rms <= check::tolerance(BF16); }
};

/// One strategy of a program on one shape.
Row try_one(const Session& session, const ir::Definition& def, const check::Problem& problem, const Shape& shape,
            RepeatedCall& arguments, const Sampled& host, Row row, const std::string& engine) {
    CompileOptions options;
    options.device = "cuda";
    options.sizes = check::sizes_for(def, problem);
    options.strategy = row.strategy, options.engine = engine;
    options.tuned = false;
    options.expected_tokens = shape.extent.tokens() / shape.extent.sequences();
    options.expected_sequences = shape.extent.sequences(), options.expected_heads = shape.heads;
    const Attention attention = compile(def, options);
    row.schedule = attention.schedule();
    const Call& call = arguments.call(attention, session.stream());
    row.gigabytes = arguments.bytes() * 1e-9,
    row.workspace_gigabytes = static_cast<double>(attention.workspace_bytes(call)) * 1e-9;
    const auto begin = std::chrono::steady_clock::now();
    attention(call);
    session.stream().synchronize();
    row.milliseconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() * 1e3;
    row.worst = compare(call, host, def.outputs, !shape.extent.lengths.empty());
    return row;
}

class LargeCheck {
  public:
    explicit LargeCheck(LargeCalls which)
        : which_(std::move(which)), session_("cuda"), csv_(which_.csv.empty() ? "/dev/null" : which_.csv) {
        csv_ << "program,shape,strategy,schedule,tensors_gb,workspace_gb,wall_ms,worst_relative_rms,tolerance,where,"
                "problem\n";
    }

    int run() {
        for (const variants::Entry& entry : variants::all())
            for (const Shape& shape : shapes())
                if ((which_.only.empty() || entry.name == which_.only) &&
                    shape.name.find(which_.shape) != std::string::npos)
                    examine(entry, shape);
        fmt::print("{} large calls, {} failed\n", rows_, failed_);
        return failed_ == 0 && rows_ > 0 ? 0 : 1;
    }

  private:
    void examine(const variants::Entry& entry, const Shape& shape) {
        const ir::Definition def = entry.make().define();
        check::Problem problem;
        problem.T = kPeriod, problem.H = shape.heads, problem.dtype = BF16,
        problem.sizes = {{"K", kSize}, {"V", kSize}, {"D", kSize}};
        const Buffers pattern(def, problem);
        Sampled host(pattern, shape.extent, sampled(shape.heads));
        host.run(def, problem, shape.extent);
        RepeatedCall arguments(pattern, shape.extent);
        for (const plan::Strategy strategy : plan::all_strategies()) {
            if (which_.strategy != "all" && which_.strategy != plan::to_string(strategy)) continue;
            Row row;
            row.program = entry.name, row.shape = shape.name, row.strategy = plan::to_string(strategy);
            try {
                row = try_one(session_, def, problem, shape, arguments, host, row, which_.engine);
            } catch (const std::exception& error) {
                row.problem = error.what();
            }
            finish(row);
        }
    }

    void finish(const Row& row) {
        ++rows_;
        if (!row.ok()) ++failed_;
        const std::string problem = row.problem.substr(0, row.problem.find('\n'));
        fmt::print("{} {}, {}, {}: relative RMS {:.2e} ({}), {:.1f} GB + {:.1f} GB, {:.1f} ms, {} {}\n",
                   row.ok() ? "ok  " : "FAIL", row.program, row.shape, row.strategy, row.worst.rms, row.worst.where,
                   row.gigabytes, row.workspace_gigabytes, row.milliseconds, row.schedule, problem);
        std::fflush(stdout);
        csv_ << fmt::format("{},{},{},\"{}\",{:.2f},{:.2f},{:.2f},{:.3g},{:.1e},{},\"{}\"\n", row.program, row.shape,
                            row.strategy, row.schedule, row.gigabytes, row.workspace_gigabytes, row.milliseconds,
                            row.worst.rms, check::tolerance(BF16), row.worst.where, problem);
    }

    LargeCalls which_;
    Session session_;
    std::ofstream csv_;
    int rows_ = 0, failed_ = 0;
};

}  // namespace

int check_large(const LargeCalls& which) { return LargeCheck(which).run(); }

}  // namespace forge::gpu
