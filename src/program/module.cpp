#include "program/module.h"

#include "frontend/axes.h"
#include "frontend/join.h"
#include "graph/derive.h"

namespace forge::program {

Module::Module(const ir::Definition& declared, DType dtype)
    : definition_(frontend::with_dtype(graph::with_phases(declared), dtype)),
      own_(frontend::with_own_axes(definition_)) {}

const EntryPoint& Module::entry(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto known = entries_.find(name);
    return known != entries_.end() ? known->second : entries_.emplace(name, entry_named(name, own_)).first->second;
}

}  // namespace forge::program
