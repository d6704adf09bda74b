#include "launcher/supervision/guard.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/base/non_blocking.h"
#include "launcher/supervision/descendants.h"
#include "launcher/supervision/signals.h"
#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

constexpr std::chrono::seconds kLeftoverLimit{10};

[[noreturn]] void throw_errno(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

void pass_on(pid_t launcher, const siginfo_t& info) {
  // The kernel itself sends what is typed at the terminal, to its whole foreground group.
  sigval from_terminal{};
  from_terminal.sival_int = info.si_code == SI_KERNEL ? 1 : 0;
  sigqueue(launcher, info.si_signo, from_terminal);
  if (info.si_signo == SIGTSTP) raise(SIGSTOP);
}

// The launcher's wait status.
int wait_for_launcher(pid_t launcher, const sigset_t& handled) {
  while (true) {
    siginfo_t info{};
    if (sigwaitinfo(&handled, &info) < 0) continue;  // interrupted
    if (info.si_signo != SIGCHLD) {
      pass_on(launcher, info);
      continue;
    }
    int status = 0;
    while (const pid_t ended = waitpid(-1, &status, WNOHANG)) {
      if (ended == launcher) return status;
      if (ended < 0 && errno != EINTR) break;
    }
  }
}

// Without waiting for a reader: a guard must end.
void tell(const std::string& line) {
  write_without_waiting(STDERR_FILENO, line);
}

int run_launcher(const std::function<int(int)>& launcher, int guard_pipe) {
  setpgid(0, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  try {
    return launcher(guard_pipe);
  } catch (const std::exception& error) {
    Descendants().kill_all(kLeftoverLimit);
    tell(std::string("dlaunch: ") + error.what() + "\n");
    return kLauncherFailure;
  }
}

}  // namespace

int guard(const SignalSetup& signals, const std::function<int(int guard_pipe)>& launcher) {
  // A shell's background processes, or the reader of its output (exec > >(tee log)): not ours to
  // end.
  std::vector<ProcessId> inherited = inherited_descendants();
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::array<int, 2> alive{};
  if (pipe2(alive.data(), O_CLOEXEC) != 0) throw_errno("pipe");
  const pid_t child = fork();
  if (child < 0) throw_errno("fork");
  if (child == 0) {
    close(alive[1]);
    const int code = run_launcher(launcher, alive[0]);
    std::fflush(nullptr);
    _exit(code);
  }
  close(alive[0]);
  const int status = wait_for_launcher(child, signals.handled);
  Descendants(std::move(inherited)).kill_all(kLeftoverLimit);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  tell("dlaunch: its launcher process (pid " + std::to_string(child) + ") was killed by " +
       signal_name(WTERMSIG(status)) + "; all ranks were ended\n");
  return kLauncherFailure;
}

}  // namespace dlaunch
