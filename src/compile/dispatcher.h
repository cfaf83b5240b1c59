/// Which executable a call gets: of those that it was given, the first that is for the call's entry point, types and
/// sizes and for calls as large as it, or one that is compiled for it on demand.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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
        friend bool operator==(const Key&, const Key&) = default;
    };
    using Found = std::shared_ptr<const Executable>;
    using Compile = std::function<Found(const Key& key)>;

    /// Without `compile` there is what was added and nothing else, as in a package.
    explicit Dispatcher(Compile compile = nullptr) : compile_(std::move(compile)) {}

    /// Appends an executable. `most`: the largest calls that it is for; none: all.
    void add(Key key, Found executable, std::optional<Bounds> most = std::nullopt);
    /// Compiles at most once for a key, and lets other threads wait meanwhile. RuntimeError if there is none and
    /// nothing can be compiled.
    [[nodiscard]] Found at(const Key& key, const Bounds& call);

  private:
    struct Row {
        Key key;
        std::optional<Bounds> most;
        Found executable;
    };
    Compile compile_;
    std::mutex mutex_;
    std::vector<Row> rows_;
};

}  // namespace forge::compiler
