#include "emit/cpu/emit_cpu.h"

namespace forge::emit {

std::string emit_cpu(const plan::Plan& plan) {
    Dialect cpu;
    cpu.includes = {"common/call.h", "cpu/kernel.h"};
    if (plan.schedule.chunk == 1) cpu.includes.emplace_back("cpu/states.h");
    if (!plan.last_rows.empty()) cpu.includes.emplace_back("cpu/last_rows.h");
    cpu.namespaces = {"forge::cpu", "forge::device"};
    cpu.arguments = "const Call& call, Size task, float* scratch";
    return print(write_source(plan, cpu));
}

}  // namespace forge::emit
