#include "tests/support/launcher_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

namespace dlaunch::testing {
namespace {

std::vector<char*> as_c_strings(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const auto& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become(char* const* arguments, char* const* environment, int output,
                         pid_t parent) {
  for (const int number : {SIGTERM, SIGQUIT, SIGCHLD})
    ::signal(number, SIG_DFL);  // ignored, they stay so
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);  // it died before the line above
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execve(arguments[0], arguments, environment);
  constexpr char kMessage[] = "dlaunch::testing: the launcher cannot be run\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(127);
}

constexpr std::chrono::milliseconds kPollInterval{2};
// How long a report on ranks pauses at most (a debugger reads the program's symbols), and takes.
constexpr std::chrono::seconds kReportPauses{4};
constexpr std::chrono::seconds kReportTakes{12};

}  // namespace

MemoryFile::MemoryFile() : descriptor_(::memfd_create("dlaunch-testing", MFD_CLOEXEC)) {
  if (descriptor_ < 0) {
    std::perror("dlaunch::testing: memfd_create");
    std::abort();
  }
  ::fcntl(descriptor_, F_SETFL, O_APPEND);
}

MemoryFile::~MemoryFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string MemoryFile::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
}

std::size_t MemoryFile::size() const {
  struct stat now {};
  ::fstat(descriptor_, &now);
  return static_cast<std::size_t>(now.st_size);
}

std::string MemoryFile::content(std::size_t most) const {
  const std::size_t all = size();
  const auto begin = static_cast<off_t>(all - std::min(all, most));
  std::string content;
  char block[1 << 16];
  ssize_t count = 0;
  while ((count = ::pread(descriptor_, block, sizeof(block),
                          begin + static_cast<off_t>(content.size()))) > 0) {
    content.append(block, static_cast<std::size_t>(count));
  }
  return content;
}

void MemoryFile::forget_all_but(std::size_t most) const {
  struct stat now {};
  if (::fstat(descriptor_, &now) != 0 || now.st_blocks * 512 <= 2 * static_cast<off_t>(most))
    return;
  ::fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              now.st_size - static_cast<off_t>(most));
}

Result<LauncherProcess> LauncherProcess::start(const std::vector<std::string>& arguments,
                                               const std::vector<std::string>& environment) {
  MemoryFile output;
  const auto argv = as_c_strings(arguments);
  const auto envp = as_c_strings(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Status::from_errno("fork", errno);
  if (pid == 0) become(argv.data(), envp.data(), output.descriptor(), parent);
  return LauncherProcess(pid, std::move(output));
}

LauncherProcess::~LauncherProcess() {
  stop();
}

// By looking again and again: meanwhile what the ranks write has to be kept short, and descriptors
// of processes (pidfd) are not everywhere.
bool LauncherProcess::wait(Deadline deadline) {
  while (pid_ >= 0) {
    const pid_t ended = ::waitpid(pid_, &wait_status_, WNOHANG);
    if (ended != 0) {
      unknown_ = ended != pid_;
      pid_ = -1;
    } else if (deadline.expired()) {
      return false;
    } else {
      output_.forget_all_but(kOutputKept);
      std::this_thread::sleep_for(
          std::min<std::chrono::nanoseconds>(deadline.remaining(), kPollInterval));
    }
  }
  return true;
}

void LauncherProcess::ask_where_ranks_are() {
  if (pid_ < 0) return;
  std::size_t written = output_.size();
  ::kill(pid_, SIGQUIT);
  const Deadline end = Deadline::after(kReportTakes);
  Deadline quiet = Deadline::after(kReportPauses);
  while (!quiet.expired() && !end.expired() && !wait(Deadline::after(kReportPauses / 40))) {
    const std::size_t now = output_.size();
    if (std::exchange(written, now) != now) quiet = Deadline::after(kReportPauses);
  }
}

void LauncherProcess::stop() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  if (wait(Deadline::after(std::chrono::seconds(10)))) return;
  ::kill(pid_, SIGKILL);
  wait(Deadline::after(std::chrono::hours(1)));
}

std::optional<int> LauncherProcess::exit_code() const {
  if (unknown_) return std::nullopt;
  return WIFSIGNALED(wait_status_) ? 128 + WTERMSIG(wait_status_) : WEXITSTATUS(wait_status_);
}

}  // namespace dlaunch::testing
