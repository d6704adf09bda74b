#include "launcher/ranks/exec_check.h"

#include <cerrno>
#include <csignal>

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

}  // namespace

Status exec_error(const std::string& path, int error) {
  if (error == ENOENT) {
    return Status(StatusCode::kNotFound,
                  path + ": cannot be run: the interpreter or loader it names does not exist");
  }
  if (error == ENOEXEC) {
    return Status(StatusCode::kInvalidArgument,
                  path + ": is no program for this machine (a script needs a #! line)");
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
  int state = 0;
  while (waitpid(pid, &state, 0) < 0 && errno == EINTR) {
  }
  if (WIFSTOPPED(state)) {
    kill(pid, SIGKILL);
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return {};
  }
  const bool failed = WIFEXITED(state) && WEXITSTATUS(state) != 0;
  return failed ? exec_error(path, WEXITSTATUS(state)) : Status();
}

}  // namespace dlaunch
