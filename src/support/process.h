/// Running another program and reading what it printed.
#pragma once

#include <string>
#include <vector>

namespace forge::support {

struct Finished {
    int status = 0;      ///< exit status; 127 if the program could not be started
    std::string output;  ///< standard output and error together
};
Finished run_process(const std::vector<std::string>& command);

/// Where a program lies on the search path; empty if it is not there.
std::string find_program(const std::string& name);

}  // namespace forge::support
