#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "support/environment.h"

namespace forge::tests {

/// An environment variable, for the time of a test.
class EnvironmentVariable {
  public:
    EnvironmentVariable(const char* name, const std::string& value) : name_(name), before_(support::environment(name)) {
        setenv(name, value.c_str(), 1);
    }
    ~EnvironmentVariable() {
        if (before_) setenv(name_, before_->c_str(), 1);
        else unsetenv(name_);
    }
    EnvironmentVariable(const EnvironmentVariable&) = delete;

  private:
    const char* name_;
    std::optional<std::string> before_;
};

}  // namespace forge::tests
