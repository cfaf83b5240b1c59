#include "support/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <string_view>

#include "support/environment.h"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace forge::support {

namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& words) {
    std::vector<char*> pointers;
    for (const std::string& word : words)
        pointers.push_back(const_cast<char*>(word.c_str()));  // NOLINT: posix_spawn's signature
    return pointers;
}

/// This process's environment, but for what is given.
std::vector<char*> environment_with(const std::vector<std::string>& given) {
    std::vector<char*> all = pointers_to(given);
    for (char** entry = environ; *entry; ++entry) {
        const std::string_view own = *entry;
        const std::string_view name = own.substr(0, own.find('=') + 1);
        if (std::none_of(given.begin(), given.end(), [&](const std::string& g) { return g.starts_with(name); }))
            all.push_back(*entry);
    }
    all.push_back(nullptr);
    return all;
}

/// Until the other end is closed; signals that come meanwhile end nothing.
std::string read_all(int pipe) {
    std::string text;
    for (std::array<char, 4096> buffer;;) {
        const ssize_t n = read(pipe, buffer.data(), buffer.size());
        if (n > 0) text.append(buffer.data(), static_cast<std::size_t>(n));
        else if (n == 0 || errno != EINTR) return text;
    }
}

}  // namespace

Finished run_process(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return {127, true, "cannot make a pipe"};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    std::vector<char*> argv = pointers_to(command);
    argv.push_back(nullptr);
    pid_t child = 0;
    const int error =
        posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environment_with(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    Finished finished;
    if (error == 0) finished.output = read_all(ends[0]);
    close(ends[0]);
    if (error != 0) return {127, true, "cannot start " + command[0]};
    int status = 0;
    pid_t waited = 0;
    while ((waited = waitpid(child, &status, 0)) < 0 && errno == EINTR) {}
    finished.known = waited == child;  // ECHILD: SIGCHLD is ignored
    if (finished.known) finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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
