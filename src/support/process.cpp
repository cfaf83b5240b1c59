#include "support/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "support/environment.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace forge::support {

Finished run_process(const std::vector<std::string>& command) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return {127, "cannot make a pipe"};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    std::vector<char*> argv;
    for (const std::string& word : command)
        argv.push_back(const_cast<char*>(word.c_str()));  // NOLINT: posix_spawn's signature
    argv.push_back(nullptr);
    pid_t child = 0;
    const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    Finished finished;
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; error == 0 && (n = read(ends[0], buffer.data(), buffer.size())) > 0;)
        finished.output.append(buffer.data(), static_cast<std::size_t>(n));
    close(ends[0]);
    if (error != 0) return {127, "cannot start " + command[0]};
    int status = 0;
    waitpid(child, &status, 0);
    finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return finished;
}

std::string find_program(const std::string& name) {
    if (name.find('/') != std::string::npos) return access(name.c_str(), X_OK) == 0 ? name : "";
    std::istringstream path(environment("PATH").value_or("/usr/bin:/bin"));
    for (std::string dir; std::getline(path, dir, ':');)
        if (const std::string file = dir + "/" + name; access(file.c_str(), X_OK) == 0) return file;
    return "";
}

}  // namespace forge::support
