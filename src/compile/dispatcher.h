/// The executables of one definition, by entry point, types and sizes: each is compiled when it is first asked for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compile/executable.h"

namespace forge::compiler {

class Dispatcher {
  public:
    /// What kernels cannot do without having been compiled for it.
    struct Key {
        std::string entry;  ///< forward or decode
        DType dtype = DType::BF16;
        std::map<std::string, std::int64_t> sizes;
        bool segments = false;  ///< whether it is to be in segments, for ranks
        friend bool operator==(const Key&, const Key&) = default;
    };
    using Found = std::shared_ptr<const Executable>;
    using Compile = std::function<Found(const Key& key)>;

    explicit Dispatcher(Compile compile) : compile_(std::move(compile)) {}

    /// Compiles at most once for a key, and lets other threads wait meanwhile.
    [[nodiscard]] Found at(const Key& key);

  private:
    struct Row {
        Key key;
        Found executable;
    };
    Compile compile_;
    std::mutex mutex_;
    std::vector<Row> rows_;
};

}  // namespace forge::compiler
