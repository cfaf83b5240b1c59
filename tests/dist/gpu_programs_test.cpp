/// Programs over ranks that have GPUs, forwards and backwards, against the float64 recurrence of the whole sequences.
#include "dist/store.h"
#include "program/entry_point.h"
#include "tests/dist/gpus.h"

namespace forge::tests {
namespace {

using dist::Scheme;
using Shards = std::vector<std::int64_t>;

/// A rank's call with its tensors on a GPU: dense copies, of which the results go back where they belong.
class OnGpu {
  public:
    OnGpu(const Call& host, const ir::Definition& def, const gpu::Stream& stream) : host_(host), call_(host) {
        for (auto& [name, view] : call_.tensors) copy(view);
        for (auto& [name, view] : call_.initial_states) copy(view);
        for (auto& [name, view] : call_.final_states) copy(view);
        if (call_.cu_seqlens) copy(*call_.cu_seqlens);
        for (const ir::OutputDecl& out : def.outputs) outputs_.push_back(out.name);
        call_.stream = stream.handle();
    }
    [[nodiscard]] const Call& call(const Attention& attention) {
        memory_.emplace_back(std::max<std::size_t>(attention.workspace_bytes(call_), 1));
        call_.workspace = memory_.back().data();
        return call_;
    }
    void fetch() const {
        for (const std::string& name : outputs_) fetch(call_.tensors.at(name), host_.tensors.at(name));
        for (const auto& [name, view] : call_.final_states) fetch(view, host_.final_states.at(name));
    }

  private:
    template <class Visit>
    static void each(const TensorView& view, const Visit& visit) {
        for (std::int64_t i = 0, n = dist::detail::count_of(view); i < n; ++i) {
            std::int64_t rest = i, offset = 0;
            for (std::size_t axis = view.shape.size(); axis-- > 0; rest /= view.shape[axis])
                offset += rest % view.shape[axis] * view.strides[axis];
            const auto bytes = static_cast<std::int64_t>(size_in_bytes(view.dtype));
            visit(static_cast<std::byte*>(view.data) + offset * bytes, i * bytes, static_cast<std::size_t>(bytes));
        }
    }
    void copy(TensorView& view) {
        const std::size_t bytes = static_cast<std::size_t>(dist::detail::count_of(view)) * size_in_bytes(view.dtype);
        std::vector<std::byte> numbers(bytes);
        each(view, [&](const std::byte* at, std::int64_t to, std::size_t n) {
            std::copy_n(at, n, &numbers[static_cast<std::size_t>(to)]);
        });
        memory_.emplace_back(std::max<std::size_t>(bytes, 1));
        memory_.back().upload(numbers.data(), bytes);
        view = dense(memory_.back().data(), view.dtype, view.shape);
    }
    static void fetch(const TensorView& from, const TensorView& to) {
        std::vector<std::byte> numbers(static_cast<std::size_t>(dist::detail::count_of(from)) *
                                       size_in_bytes(from.dtype));
        if (numbers.empty()) return;
        const runtime::CudaDriver& cuda = runtime::CudaDriver::get();
        cuda.check(cuda.copy_to_host(numbers.data(), reinterpret_cast<std::uintptr_t>(from.data), numbers.size()),
                   "copying to the host");
        each(to, [&](std::byte* at, std::int64_t of, std::size_t n) {
            std::copy_n(&numbers[static_cast<std::size_t>(of)], n, at);
        });
    }

    const Call& host_;
    Call call_;
    std::vector<gpu::Memory> memory_;
    std::vector<std::string> outputs_;
};

class GpuPrograms : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        const auto gpus = find_gpus();
        if (!gpus || gpus->emulated) GTEST_SKIP() << "no GPU";
    }

    void expect_agreement(const std::string& entry, check::Problem problem, int size, dist::Options options,
                          Shards shards) {
        options.timeout = std::chrono::seconds(120);  // one rank may compile what another waits for
        const ir::Definition def = program_named(GetParam()).make().define();
        const bool back = entry != "forward";
        if (!def.step || def.fixed_chunk > 0) {
            if (!problem.lengths.empty()) return;
            problem.T = 256, shards = {0, 64, 64, 192, 256}, size = 4;
        }
        check::Buffers buffers(program::tensors_of(entry, def), problem);
        const int gpus = find_gpus()->count;
        std::vector<Attention> attentions;
        for (int g = 0; g < std::min(gpus, size); ++g) {
            CompileOptions how{.device = "cuda:" + std::to_string(g),
                               .entry = entry,
                               .dtype = problem.dtype,
                               .sizes = check::sizes_for(def, problem)};
            how.tuned = false;
            if (!def.step) how.chunk = 64;
            attentions.push_back(compile(def, how));
        }
        const check::Reference reference = back ? check::backward_reference(buffers, def, attentions[0].chunk())
                                                : check::reference(buffers, attentions[0].chunk());
        check::clear_results(buffers);
        std::vector<std::unique_ptr<RankBuffers>> ranks;
        for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<RankBuffers>(buffers, def, r, size, shards));
        rethrow(on_gpus(size, options, [&](dist::Group& group, const runtime::CudaDevice&, const gpu::Stream& stream) {
            const auto r = static_cast<std::size_t>(group.rank());
            const Call host = ranks[r]->call();
            const Attention& attention = attentions[r % attentions.size()];
            OnGpu mine(host, buffers.definition(), stream);
            dist::run(attention, mine.call(attention), group, ranks[r]->part());
            stream.synchronize();
            group.check();
            mine.fetch();
        }));
        for (auto& [name, x] : buffers.final_states)
            for (std::int64_t i = 0; i < x.count(); ++i) x.set(i, 0);
        for (const auto& rank : ranks) rank->merge();
        const check::Report report = check::compare(buffers, reference);
        EXPECT_TRUE(report.ok) << GetParam() << ", " << entry << " on " << size << " ranks, "
                               << to_string(options.scheme) << ": " << report.worst();
    }
};

check::Problem gpu_batch(DType dtype) {
    return {.B = 2, .T = 300, .H = 2, .sizes = {{"K", 64}, {"V", 64}}, .dtype = dtype, .initial_state = true};
}
check::Problem gpu_packed(DType dtype) {
    check::Problem problem = gpu_batch(dtype);
    problem.B = 1, problem.lengths = {17, 0, 180, 1, 102};
    return problem;
}

TEST_P(GpuPrograms, HaveTheForwardPass) {
    expect_agreement("forward", gpu_batch(BF16), 2, {}, {});
    expect_agreement("forward", gpu_batch(F32), 3, {}, {0, 90, 90, 300});
    expect_agreement("forward", gpu_batch(BF16), 4, {.scheme = Scheme::ScatterScanGather}, {});
    expect_agreement("forward", gpu_packed(BF16), 4, {}, {0, 90, 91, 91, 300});
    dist::Options messages;
    messages.shared_memory = false;
    expect_agreement("forward", gpu_batch(BF16), 2, messages, {});
}

TEST_P(GpuPrograms, HaveTheBackwardPass) {
    expect_agreement("backward", gpu_batch(BF16), 2, {}, {});
    expect_agreement("backward", gpu_packed(BF16), 3, {}, {0, 90, 91, 300});
}

constexpr const char* kPrograms[] = {"scalar_gla", "gla", "gated_delta_net", "shifted_pairs", "retnet"};
INSTANTIATE_TEST_SUITE_P(All, GpuPrograms, testing::ValuesIn(kPrograms));

/// What only a GPU runs has no other test that notices a name of nothing.
TEST(GpuProgramNames, AreOfPrograms) {
    for (const char* name : kPrograms) {
        const ir::Definition def = program_named(name).make().define();
        EXPECT_EQ(def.name, name);
        for (const char* entry : {"forward", "backward"})
            EXPECT_NO_THROW(static_cast<void>(program::tensors_of(entry, def))) << name << ", " << entry;
    }
}

}  // namespace
}  // namespace forge::tests
