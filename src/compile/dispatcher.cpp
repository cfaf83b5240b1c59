#include "compile/dispatcher.h"

namespace forge::compiler {

Dispatcher::Found Dispatcher::at(const Key& key) {
    const std::lock_guard lock(mutex_);
    for (const Row& row : rows_)
        if (row.key == key) return row.executable;
    rows_.push_back({key, compile_(key)});
    return rows_.back().executable;
}

}  // namespace forge::compiler
