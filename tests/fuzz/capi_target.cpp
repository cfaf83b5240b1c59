// The C ABI: random calls of all its functions, on one thread or several at a time. Whatever comes in, a status and
// words come out.
#include <fmt/format.h>

#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "forge/error.h"
#include "frontend/join.h"
#include "ir/text.h"
#include "tests/fuzz/calls.h"
#include "tests/fuzz/targets.h"
#include "tests/novel/novel.h"

namespace forge::fuzz {
namespace {

using Handle = std::unique_ptr<forge_attention, void (*)(forge_attention*)>;
using Options = std::vector<std::pair<std::string, std::string>>;

Handle compiled(const std::string& text, const Options& options, forge_status& status) {
    std::vector<forge_option> c;
    for (const auto& [name, value] : options) c.push_back({name.c_str(), value.c_str()});
    forge_attention* attention = nullptr;
    status = forge_compile(text.c_str(), "fuzz", c.data(), c.size(), &attention);
    if ((status == FORGE_OK) != (attention != nullptr))
        throw Fault("forge_compile: a status that does not fit the handle");
    return {attention, forge_destroy};
}

struct Row {
    const char* name;
    Options options;
};
/// Between them they have all that a call can have: groups of heads, rows per token, last rows, inputs per head,
/// scalars, states before chunks, one kernel and several.
const std::vector<Row>& programs() {
    static const std::vector<Row> kPrograms = {
        {"shifted_pairs",
         {{"strategy", "decoupled"}, {"size.K", "16"}, {"size.V", "24"}, {"chunk", "16"}, {"chunk_states", "1"}}},
        {"gated_delta_net",
         {{"strategy", "segmented"}, {"dtype", "f32"}, {"size.K", "16"}, {"size.V", "16"}, {"chunk", "16"}}},
        {"rwkv6", {{"strategy", "one-pass"}, {"dtype", "f16"}, {"size.K", "8"}, {"size.V", "20"}, {"chunk", "16"}}},
    };
    return kPrograms;
}

std::string definition_of(const std::string& name) {
    for (const auto* entries : {&variants::all(), &novel::all()})
        for (const variants::Entry& entry : *entries)
            if (entry.name == name) return ir::print(entry.make().define());
    throw InternalError("no definition '" + name + "'");
}

/// The status of a call that may fail: no bug of Forge's, and words if it did.
forge_status expect_words(forge_status status, const char* function) {
    if (status == FORGE_OK) return status;
    if (status == FORGE_INTERNAL_ERROR || status < 0 || status > FORGE_INTERNAL_ERROR)
        throw Fault(fmt::format("{}: status {}: {}", function, static_cast<int>(status), forge_error()));
    if (!forge_error() || !*forge_error())
        throw Fault(fmt::format("{}: status {} without words", function, static_cast<int>(status)));
    return status;
}

/// What one thread does.
class Session {
  public:
    Session(const std::vector<Handle>& programs, const std::string& text, std::uint64_t seed)
        : programs_(programs), text_(text), dice_(seed) {}

    /// Whether anything succeeded.
    bool run() {
        for (std::size_t n = 2 + dice_.below(8); n > 0; --n) act();
        return succeeded_;
    }

  private:
    void note(forge_status status, const char* function) {
        succeeded_ = expect_words(status, function) == FORGE_OK || succeeded_;
    }

    void act() {
        switch (dice_.below(12)) {
            case 0:
                return lower();
            case 1:
                return infer();
            case 2:
                return compile();
            case 3:
                return ask();
            case 4:
                return names();
            case 5:
                return measure();
            default:
                return launch();
        }
    }

    /// The input's text, or another.
    const char* text() {
        switch (dice_.below(8)) {
            case 0:
                return nullptr;
            case 1:
                return "";
            default:
                return text_.c_str();
        }
    }

    template <class T>
    T* pointer(T* there) {
        return dice_.one_in(12) ? nullptr : there;
    }

    const forge_attention* handle() {
        if (dice_.one_in(16)) return nullptr;
        if (!made_.empty() && dice_.one_in(2)) return made_[dice_.below(made_.size())].get();
        return programs_[dice_.below(programs_.size())].get();
    }

    void lower() {
        char* text_out = nullptr;
        note(forge_lower(text(), pointer(dice_.one_of({"bf16", "f16", "f32", "f64", ""})),
                         pointer(dice_.one_of({"definition", "joined", "optimized", "tiles"})), pointer(&text_out)),
             "forge_lower");
        forge_free(text_out);
    }

    void infer() {
        static const std::vector<std::string> kOperations = {"matmul(bf16[C, K], bf16[K, V]) {trans_a=false}",
                                                             "expand(f32[C, 1]) : f32[C, V]",
                                                             "permute(f32[C, K]) {perm=[1, 0]}",
                                                             "slice(f32[2*C, K]) {dim=0, start=1, step=2, length=0}",
                                                             "select(f32[C, K]) {dim=1, start=-1}",
                                                             "cumsum(f32[C]) {dim=0, reverse=false, exclusive=true}",
                                                             "where(bool[C, C], f32[C, C], f32[])",
                                                             "add(f32[C, K], bf16[K])"};
        const std::string operation =
            dice_.one_in(3) ? dice_.element_of(kOperations) : Mutator(kOperations, dice_.below(1U << 30U)).next();
        std::vector<char> type(dice_.one_in(4) ? dice_.below(12) : 256);
        note(forge_infer(pointer(operation.c_str()), dice_.one_in(12) ? nullptr : type.data(), type.size()),
             "forge_infer");
    }

    /// For GPUs that are not there. The CPU's compiler is the last step: of an unknown machine it refuses to begin.
    Options random_options() {
        Options o = {{"tuned", "0"}};
        const bool gpu = dice_.one_in(2);
        if (gpu)
            o.insert(o.end(),
                     {{"device", "cuda"}, {"on", dice_.one_of({"h200", "a100", "rtx4090", "none", "/dev/null", "/"})}});
        else o.emplace_back("isa", "sse2");
        for (const char* symbol : {"K", "V", "D"})
            if (!dice_.one_in(8)) o.emplace_back(std::string("size.") + symbol, number(dice_.one_of({16, 32, 64})));
        o.emplace_back("dtype", dice_.one_of({"bf16", "bf16", "f16", "f32", "i8"}));
        for (const char* name : {"chunk", "tiles", "segments", "threads", "expected_tokens", "expected_heads",
                                 "chunk_states", "size.", "strategy", "rule", "engine", "nothing", ""})
            if (dice_.one_in(10))
                o.emplace_back(name, dice_.one_of<std::string>({number(16), "auto", "fused", "", "1e3", " 1", "%n"}));
        return o;
    }

    std::string number(std::int64_t usual) { return std::to_string(dice_.one_in(12) ? extreme_number(dice_) : usual); }

    void compile() {
        const char* const given = text();
        if (!given || dice_.one_in(16)) {
            forge_attention* attention = nullptr;
            const forge_option option{pointer("dtype"), pointer("f32")};
            note(forge_compile(given, pointer("file"), pointer(&option), 1, given ? nullptr : &attention),
                 "forge_compile");
            return;
        }
        forge_status status = FORGE_OK;
        Handle made = compiled(given, random_options(), status);
        note(status, "forge_compile");
        if (made) made_.push_back(std::move(made));
    }

    void ask() {
        const forge_attention* attention = handle();
        const char *name = nullptr, *source = nullptr;
        if (attention && (!forge_describe(attention) || !*forge_describe(attention))) throw Fault("no description");
        if (attention && !forge_explain(attention)) throw Fault(fmt::format("no explanation: {}", forge_error()));
        if (!attention && (forge_describe(attention) || forge_explain(attention))) throw Fault("words of nothing");
        note(forge_source(attention, dice_.one_of<std::size_t>({0, 1, SIZE_MAX}), pointer(&name), pointer(&source)),
             "forge_source");
        const forge_attention* program = dice_.one_in(8) ? nullptr : programs_[dice_.below(programs_.size())].get();
        char* text = nullptr;
        note(forge_resources(program, pointer(&text)), "forge_resources");  // of a GPU's it would compile them
        forge_free(text);
    }

    void names() {
        const std::size_t index = dice_.one_in(3) ? static_cast<std::size_t>(extreme_number(dice_)) : dice_.below(20);
        const char *name = forge_variant_name(index), *summary = forge_variant_summary(index), *text = nullptr;
        if ((name == nullptr) != (summary == nullptr)) throw Fault("a variant without a name or summary");
        note(forge_variant_definition(name ? pointer(name) : dice_.one_of<const char*>({nullptr, "", "%s"}),
                                      pointer(&text)),
             "forge_variant_definition");
        if (!forge_status_string(static_cast<forge_status>(dice_.below(8))) || !forge_build() ||
            forge_abi_version() != FORGE_ABI_VERSION)
            throw Fault("no status, build or version");
        forge_destroy(nullptr), forge_free(nullptr);
    }

    void measure() {
        const auto bound = [&] { return dice_.one_in(3) ? extreme_number(dice_) : dice_.between(0, 5000); };
        forge_bounds bounds{sizeof(forge_bounds), bound(), bound(), bound(),
                            static_cast<std::int32_t>(dice_.between(-1, 2))};
        if (dice_.one_in(8)) bounds.struct_size = dice_.one_of<std::size_t>({0, 4, 8, 16, 24});
        std::size_t bytes = 0, alignment = 0;
        note(forge_workspace_bytes(handle(), pointer(&bounds), pointer(&bytes), pointer(&alignment)),
             "forge_workspace_bytes");
    }

    void launch() {
        if (!made_.empty() && dice_.one_in(8)) {  // one that no machine can run
            forge_args args{};
            args.struct_size = sizeof args;
            note(forge_launch(made_[0].get(), pointer(&args)), "forge_launch");
            return;
        }
        if (dice_.one_in(32)) return note(forge_launch(handle(), nullptr), "forge_launch");
        RandomCall call(*programs_[dice_.below(programs_.size())], dice_);
        if (!dice_.one_in(3)) call.spoil();
        note(call.launch(), "forge_launch");
    }

    const std::vector<Handle>& programs_;
    const std::string& text_;
    Dice dice_;
    std::vector<Handle> made_;
    bool succeeded_ = false;
};

class CapiTarget : public Target {
  public:
    CapiTarget() {
        for (const Row& row : programs()) {
            forge_status status = FORGE_OK;
            programs_.push_back(compiled(definition_of(row.name), row.options, status));
            if (status != FORGE_OK) throw RuntimeError(fmt::format("{}: {}", row.name, forge_error()));
        }
    }

    [[nodiscard]] Input input(std::uint64_t seed) const override {
        Mutator mutator(valid_texts(), seed);
        return {seed, seed % 4 == 0 ? mutator.next() : changed_definition(seed)};
    }

    Outcome run(const Input& input) override {
        constexpr std::size_t kThreads = 3;
        if (input.seed % 8 != 0) return outcome(Session(programs_, input.text, input.seed).run());
        std::mutex mutex;
        std::exception_ptr fault;
        bool succeeded = false;
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < kThreads; ++i)
            threads.emplace_back([&, i] {
                bool mine = false;
                std::exception_ptr error;
                try {
                    mine = Session(programs_, input.text, input.seed + i).run();
                } catch (...) {
                    error = std::current_exception();
                }
                const std::lock_guard lock(mutex);
                succeeded = succeeded || mine;
                if (error) fault = error;
            });
        for (std::thread& thread : threads) thread.join();
        if (fault) std::rethrow_exception(fault);
        return outcome(succeeded);
    }

  private:
    static Outcome outcome(bool succeeded) { return succeeded ? Outcome::Accepted : Outcome::Refused; }

    std::vector<Handle> programs_;
};

}  // namespace

std::unique_ptr<Target> capi_target() { return std::make_unique<CapiTarget>(); }

}  // namespace forge::fuzz
