#include "launcher/ranks/exec_check.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <elf.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch {
namespace {

// Runs in the child, after vfork: system calls only. A program that is executed by one that is
// traced stops with SIGTRAP at its beginning; blocked, the signal would come never. Exits with what
// execve fails with.
[[noreturn]] void execute_traced(const char* path, char* const* arguments, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  if (getppid() != launcher || ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(0);
  execve(path, arguments, environ);
  _exit(errno);
}

// What the system has mapped to execute: for a script that is its interpreter.
struct Executed {
  std::string program;
  std::string loader;  // of shared libraries; empty: the program takes none
};

// Where the system has put the loader; 0: there is none, or it cannot be found out.
unsigned long loader_base(const std::string& folder) {
  std::ifstream auxiliary(folder + "/auxv", std::ios::binary);
  std::array<unsigned long, 2> entry{};
  while (auxiliary.read(reinterpret_cast<char*>(entry.data()), sizeof entry))
    if (entry[0] == AT_BASE) return entry[1];
  return 0;
}

Executed executed_by(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  std::error_code error;
  Executed executed{.program = std::filesystem::read_symlink(folder + "/exe", error).string(),
                    .loader = {}};
  const unsigned long base = loader_base(folder);
  std::ifstream maps(folder + "/maps");
  for (std::string line; base != 0 && std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path != std::string::npos && std::stoul(line, nullptr, 16) == base)
      executed.loader = line.substr(path);
  }
  return executed;
}

int wait_for_end_or_stop(pid_t pid) {
  int state = 0;
  while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
  }
  return state;
}

// Has the loader look for the libraries, as ldd does: nothing of the program or of them is run. The
// loaders of glibc and musl know --list and exit with 127 if one is missing, saying which.
bool lacks_libraries(const Executed& executed) {
  if (executed.loader.empty()) return false;
  std::string loader = executed.loader;
  std::string list = "--list";
  std::string program = executed.program;
  const std::array<char*, 4> arguments{loader.data(), list.data(), program.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, loader.c_str(), &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return false;
  const int state = wait_for_end_or_stop(pid);
  return WIFEXITED(state) && WEXITSTATUS(state) == 127;
}

// "interpreter '/bin/bash\r'", of a script; it may have been written where lines end otherwise.
std::string named_by(const std::string& program) {
  std::string line;
  std::getline(std::ifstream(program), line);
  if (!line.starts_with("#!")) return "interpreter or loader";
  std::string name = line.substr(std::min(line.size(), line.find_first_not_of(" \t", 2)));
  name.resize(std::min(name.size(), name.find_first_of(" \t")));
  const bool foreign = name.ends_with('\r');
  if (foreign) name.back() = '\\';
  return "interpreter '" + name + (foreign ? "r" : "") + "'";
}

}  // namespace

Status exec_error(const std::string& path, int error) {
  if (error == ENOENT) {
    return Status(StatusCode::kNotFound,
                  path + ": cannot be run: the " + named_by(path) + " it names does not exist");
  }
  if (error == ENOMEM || error == EAGAIN || error == ENFILE) return Status::from_errno(path, error);
  if (error == ENOEXEC) {
    return Status(StatusCode::kInvalidArgument,
                  path + ": cannot be executed on this machine (a script needs a #! line)");
  }
  return Status(StatusCode::kInvalidArgument, Status::from_errno(path, error).to_string());
}

Status check_exec(const std::string& path, const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);
  const pid_t launcher = getpid();
  const pid_t pid = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork): as in spawn.cc
  if (pid < 0) return {};
  // NOLINTNEXTLINE(clang-analyzer-unix.Vfork): system calls only
  if (pid == 0) execute_traced(path.c_str(), arguments.data(), launcher);
  const int state = wait_for_end_or_stop(pid);
  if (WIFSTOPPED(state)) {
    const Executed executed = executed_by(pid);
    kill(pid, SIGKILL);
    wait_for_end_or_stop(pid);
    if (!lacks_libraries(executed)) return {};
    return Status(StatusCode::kNotFound,
                  path + ": cannot be run: a shared library it needs cannot be loaded");
  }
  const bool failed = WIFEXITED(state) && WEXITSTATUS(state) != 0;
  return failed ? exec_error(path, WEXITSTATUS(state)) : Status();
}

}  // namespace dlaunch
