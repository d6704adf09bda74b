#include "launcher/ranks/spawn.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <memory>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcher/ranks/exec_check.h"
#include "launcher/ranks/rank_terminal.h"

namespace dlaunch {
namespace {

struct ChildPlan {
  const char* path;
  char* const* arguments;
  char* const* environment;
  const sigset_t* signal_mask;
  const int* inherited;
  std::size_t inherited_count;
  int standard_input;   // these three take the place of
  int standard_output;  // stdin, stdout and stderr
  int error_output;
  volatile int* failure;  // set to errno if exec fails
  pid_t process_group;
  bool ignore_quit;
  bool ignore_terminal_output;  // the stop signal of a background process that writes (stty tostop)
  pid_t launcher;
  const cpu_set_t* cores;  // nullptr: not bound
};

// dlaunch's descriptors are close-on-exec, but Asio opens sockets on another thread that are so
// only a moment later. Whatever was not handed down by the user is closed here, where nothing above
// stderr is needed any more: a child of vfork shares memory with dlaunch, but has descriptors of
// its own. (To mark them close-on-exec instead takes Linux 5.11.)
void close_what_is_not_handed_down(const ChildPlan& plan) {
  unsigned first = 3;
  for (std::size_t i = 0; i <= plan.inherited_count; ++i) {
    const unsigned end =
        i < plan.inherited_count ? static_cast<unsigned>(plan.inherited[i]) : UINT_MAX;
    if (end > first) syscall(SYS_close_range, first, end - 1, 0U);
    first = end + 1;
  }
}

// Runs in the child. After vfork it shares memory with dlaunch, so it makes system calls and
// nothing else.
[[noreturn]] void become_rank(const ChildPlan& plan) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If dlaunch died before that call, nobody will send the signal.
  if (getppid() != plan.launcher) _exit(127);
  setpgid(0, plan.process_group);
  if (plan.ignore_quit) signal(SIGQUIT, SIG_IGN);
  if (plan.ignore_terminal_output) signal(SIGTTOU, SIG_IGN);
  dup2(plan.standard_input, STDIN_FILENO);
  dup2(plan.standard_output, STDOUT_FILENO);
  dup2(plan.error_output, STDERR_FILENO);
  close_what_is_not_handed_down(plan);
  // A rank that cannot be bound runs all the same.
  if (plan.cores != nullptr) sched_setaffinity(0, sizeof(cpu_set_t), plan.cores);
  pthread_sigmask(SIG_SETMASK, plan.signal_mask, nullptr);
  execve(plan.path, plan.arguments, plan.environment);
  *plan.failure = errno;  // vfork: this is the parent's variable
  _exit(127);
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// The reading end is dlaunch's, and does not block.
Status make_pipe(Descriptor& reading, Descriptor& writing) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return Status::from_errno("pipe", errno);
  reading = Descriptor(ends[0]);
  writing = Descriptor(ends[1]);
  fcntl(reading.get(), F_SETFL, O_NONBLOCK);
  return {};
}

cpu_set_t set_of(const std::vector<int>& threads) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int thread : threads) CPU_SET(thread, &set);
  return set;
}

}  // namespace

Result<Rank> spawn_rank(const SpawnPlan& plan, const RankStart& start) {
  Rank started;
  started.rank = start.rank;
  Descriptor output_writing;
  Descriptor error_writing;
  if (start.captured_output) {
    DLAUNCH_RETURN_IF_ERROR(make_pipe(started.output, output_writing));
  }
  // Where there is no pseudo-terminal to be had, a pipe does too.
  if (!start.error_terminal || !make_rank_terminal(started.error_output, error_writing).ok()) {
    DLAUNCH_RETURN_IF_ERROR(make_pipe(started.error_output, error_writing));
  } else {
    (void)set_terminal_size(start.rank, STDERR_FILENO, error_writing.get());
  }

  if (start.standard_input == STDIN_FILENO) started.terminal_group = plan.terminal_group;
  const std::vector<char*> arguments = pointers(plan.command);
  const std::vector<char*> variables = pointers(start.environment);
  const cpu_set_t cores = set_of(start.threads);
  volatile int error = 0;  // the child sets it, which the compiler cannot see
  const ChildPlan child{
      .path = plan.path.c_str(),
      .arguments = arguments.data(),
      .environment = variables.data(),
      .signal_mask = &plan.signal_mask,
      .inherited = plan.inherited.data(),
      .inherited_count = plan.inherited.size(),
      .standard_input = start.standard_input,
      .standard_output = start.captured_output ? output_writing.get() : STDOUT_FILENO,
      .error_output = error_writing.get(),
      .failure = &error,
      .process_group = started.terminal_group,
      .ignore_quit = started.terminal_group != 0,
      .ignore_terminal_output =
          started.terminal_group == 0 && !start.captured_output && isatty(STDOUT_FILENO) == 1,
      .launcher = getpid(),
      .cores = start.threads.empty() ? nullptr : &cores};
  started.spawned = std::chrono::steady_clock::now();
  // vfork: no page tables to copy, and it returns once exec has succeeded or failed.
  const pid_t pid = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (pid < 0) return Status::from_errno("vfork", errno);
  if (pid == 0) become_rank(child);  // NOLINT(clang-analyzer-unix.Vfork): system calls only
  started.pid = pid;
  started.executed = std::chrono::steady_clock::now();
  if (error != 0) return exec_error(plan.path, error);
  started.end = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (started.end.get() < 0) return Status::from_errno("pidfd_open", errno);
  return started;
}

std::vector<int> inherited_descriptors() {
  std::vector<int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
  if (!folder) return found;
  while (const dirent* entry = readdir(folder.get())) {  // NOLINT(concurrency-mt-unsafe): own DIR
    int descriptor = 0;
    const std::string_view name(entry->d_name);
    if (std::from_chars(name.data(), name.data() + name.size(), descriptor).ec != std::errc()) {
      continue;
    }
    const int flags = fcntl(descriptor, F_GETFD);
    if (descriptor > 2 && flags >= 0 && (flags & FD_CLOEXEC) == 0) found.push_back(descriptor);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace dlaunch
