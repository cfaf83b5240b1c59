/// A package whose kernels for one device are loaded, and what is called of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rt/dispatch.h"
#include "rt/files.h"
#include "rt/gpu_calls.h"
#include "rt/manifest.h"
#include "rt/ranges.h"
#include "runtime/kernels.h"

namespace forge::rt {

/// Kernels that are loaded.
struct Loaded {
    const Compiled* about = nullptr;
    std::unique_ptr<const runtime::Kernels> kernels;
    std::unique_ptr<GpuCalls> calls;  ///< on a GPU
};

/// An entry point on the package's device. All members may be called by several threads at once.
class EntryPoint {
  public:
    EntryPoint(const Manifest& manifest, const Table& table, const std::vector<Loaded>& loaded);

    [[nodiscard]] const Entry& entry() const { return entry_; }
    [[nodiscard]] const std::string& definition() const { return definition_; }
    [[nodiscard]] const std::string& text() const;    ///< the definition's
    [[nodiscard]] const std::string& target() const;  ///< whose kernels are called
    /// The tensors of its calls: of any of its kernels, as they differ in types and sizes only.
    [[nodiscard]] const runtime::Callable& callable() const { return any_.callable; }
    /// PackageError, with what there is, if the package has no kernels for such a call.
    [[nodiscard]] const Loaded& select(const runtime::Arguments& call) const;
    void launch(const runtime::Arguments& call) const;
    std::string dump_folder;  ///< where launches are written to files; empty: nowhere
    Ranges ranges;            ///< around launches
    std::string label;        ///< what these are called
    /// `like`: a call of the element type and sizes that count; nullptr: all count.
    [[nodiscard]] std::size_t workspace_bytes(const runtime::Arguments* like, const Bounds& bounds) const;
    [[nodiscard]] std::size_t alignment() const;  ///< of workspaces

  private:
    const Manifest& manifest_;
    const Table& table_;
    const Entry& entry_;
    const std::string& definition_;
    const std::vector<Loaded>& loaded_;  ///< by the manifest's numbers; of other targets empty
    const Compiled& any_;
};

class Package {
  public:
    /// `device`: cpu, cuda or cuda:<number>. `threads`: 0: one for each core.
    Package(const std::string& path, const std::string& device, int threads);
    Package(const Package&) = delete;  // entry points refer to it
    Package& operator=(const Package&) = delete;

    [[nodiscard]] const Manifest& manifest() const { return manifest_; }
    [[nodiscard]] const std::string& text() const { return text_; }  ///< of the manifest
    [[nodiscard]] const Target& target() const { return manifest_.targets[target_]; }
    /// PackageError, with what there is, if it is not in the package.
    [[nodiscard]] const EntryPoint& find(const std::string& definition, const std::string& entry) const;
    void dump_calls(const std::string& folder);
    /// RuntimeError where there is no library for it.
    void mark_launches();

  private:
    void load_for_cpu(int threads);
    void load_for_gpu(const std::string& device);

    std::unique_ptr<Files> files_;
    std::string text_;
    Manifest manifest_;
    std::size_t target_ = 0;
    std::vector<Loaded> loaded_;
    std::vector<EntryPoint> entries_;
};

/// The manifest of a package alone, for people: no kernels are loaded, whatever machine they are for.
Manifest read_manifest(const std::string& path);
/// Whether a path looks like a package.
bool is_package(const std::string& path);

}  // namespace forge::rt
