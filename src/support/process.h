/// Running another program and reading what it printed.
#pragma once

#include <string>
#include <vector>

namespace forge::support {

struct Finished {
    int status = 0;      ///< exit status; 127 if the program could not be started, 128 + n if signal n ended it
    bool known = true;   ///< false where this process has the system discard what becomes of its children
    std::string output;  ///< standard output and error together
};
/// `environment`: "NAME=value", in place of this process's own.
Finished run_process(const std::vector<std::string>& command, const std::vector<std::string>& environment = {});

/// Where a program lies on the search path; empty if it is not there.
std::string find_program(const std::string& name);

}  // namespace forge::support
