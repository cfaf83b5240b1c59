/// A definition, analysed once, and the family of programs that it yields: what everything after the front end works
/// on, for whichever entry point, sizes and target.
#pragma once

#include <map>
#include <mutex>

#include "program/entry_point.h"

namespace forge::program {

class Module {
  public:
    /// `dtype` replaces the definition's 16-bit type.
    Module(const ir::Definition& declared, DType dtype);

    /// In its final types, with its user's names: for messages and for calls.
    [[nodiscard]] const ir::Definition& definition() const { return definition_; }
    /// The same with a symbol of its own for every axis (frontend/axes.h): what is compiled.
    [[nodiscard]] const ir::Definition& own() const { return own_; }
    /// Joined and optimised when it is first asked for; it lives as long as the module. RuntimeError for a name that is
    /// none, and for an entry point that this definition has not.
    [[nodiscard]] const EntryPoint& entry(const std::string& name) const;

  private:
    ir::Definition definition_, own_;
    mutable std::mutex mutex_;
    mutable std::map<std::string, EntryPoint> entries_;
};

}  // namespace forge::program
