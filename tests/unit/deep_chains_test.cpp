/// Definitions with long chains of elementwise operations, each of which reads the one before twice: what walks over
/// all paths through them never ends. That these tests end is what they test; a definition may be refused, in words.
#include <gtest/gtest.h>

#include <array>
#include <utility>

#include "compile/question.h"
#include "forge/error.h"
#include "ir/infer.h"
#include "ir/rebuild.h"
#include "ir/text.h"
#include "program/module.h"
#include "target/choose.h"
#include "tests/novel/novel.h"
#include "tests/support/turns.h"
#include "variants/variants.h"

namespace forge::tests {
namespace {

using ir::Function;
using ir::Op;
using ir::Opcode;
using ir::ValueId;

constexpr int kLength = 40;  ///< of a chain; it has 2^40 paths

/// What follows x in a chain, from the two values before.
using Link = ValueId (*)(Function& fn, ValueId x, ValueId before);
ValueId of_both(Function& fn, Opcode code, ValueId a, ValueId b) { return ir::emit(fn, code, {a, b}); }
constexpr std::array<Link, 7> kLinks = {
    [](Function& fn, ValueId x, ValueId) { return of_both(fn, Opcode::Add, x, x); },
    [](Function& fn, ValueId x, ValueId) { return of_both(fn, Opcode::Mul, x, x); },
    [](Function& fn, ValueId x, ValueId before) { return of_both(fn, Opcode::Add, x, before); },
    [](Function& fn, ValueId x, ValueId before) {
        return of_both(fn, Opcode::Sub, of_both(fn, Opcode::Mul, x, before), x);
    },
    [](Function& fn, ValueId x, ValueId before) {
        return of_both(fn, Opcode::Maximum, ir::emit(fn, Opcode::Tanh, {x}), before);
    },
    [](Function& fn, ValueId x, ValueId before) {
        return of_both(fn, Opcode::Mul, ir::emit(fn, Opcode::Exp, {x}), before);
    },
    [](Function& fn, ValueId x, ValueId before) {
        return ir::emit(fn, Opcode::Where, {of_both(fn, Opcode::Lt, x, before), x, before});
    },
};

bool may_be_followed(const Op& op) {
    return op.type.dtype == DType::F32 && op.code != Opcode::Param && op.code != Opcode::CacheResult &&
           op.code != Opcode::Constant && op.code != Opcode::Identity && op.code != Opcode::Inverse;
}

/// The function with a chain after one of its values, which takes that value's place.
Function with_chain(const Function& fn, std::size_t which, Link link) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < fn.ops.size(); ++i)
        if (may_be_followed(fn.ops[i])) places.push_back(i);
    if (places.empty()) return fn;
    std::size_t index = 0;
    return ir::rebuild(fn, [&](Function& out, const Op& op, std::vector<ValueId> args) {
        ValueId now = ir::keep(out, op, std::move(args)), before = now;
        if (index++ != places[which % places.size()]) return now;
        for (int i = 0; i < kLength; ++i) before = std::exchange(now, link(out, now, before));
        return now;
    });
}

/// A definition with a chain in one of its functions; everything about it follows from the number.
ir::Definition with_chain(ir::Definition def, std::size_t number) {
    std::vector<Function*> functions;
    for (Function* fn : {&def.chunk, &def.decay, &def.merge})
        if (!fn->ops.empty()) functions.push_back(fn);
    if (def.step) functions.push_back(&*def.step);
    Function& fn = *functions[number % functions.size()];
    fn = with_chain(fn, 7 * number, kLinks[number % kLinks.size()]);
    return def;
}

void plan(const ir::Definition& def, const std::string& entry, const target::Question& question) {
    if (entry == "decode" && !program::has_decode(def)) return;
    try {
        const program::Module module(def, BF16);
        const program::EntryPoint& program = module.entry(entry);
        target::choose(program.tensors, program.optimised, question);
    } catch (const CompileError& e) {
        EXPECT_FALSE(std::string(e.what()).empty());
    } catch (const std::exception& e) {
        ADD_FAILURE() << entry << ": " << e.what() << "\n" << ir::print(def);
    }
}

TEST(DeepChains, Plan) {
    const std::map<std::string, std::int64_t> sizes{{"K", 128}, {"V", 128}, {"D", 1024}, {"M", 64}};
    std::size_t number = 0;
    const auto go_through = [&](const auto& programs) {
        for (const auto& entry : programs) {
            SCOPED_TRACE(entry.name);
            const ir::Definition def = with_chain(entry.make().define(), number++);
            const target::Machine machines[] = {target::facts_of("h200"), target::facts_of("a100"),
                                                target::cpu_device("avx512", 2)};
            const std::vector<std::string> entries = {"forward", "backward", "decode"};
            for (std::size_t i = 0; i < entries.size(); ++i)
                if (every_way() || i == number % entries.size())
                    plan(def, entries[i], {{sizes, 4096, 1, 4}, machines[(i + number / 3) % 3], {}});
        }
    };
    go_through(variants::all());
    go_through(novel::all());
}

}  // namespace
}  // namespace forge::tests
