#include "tests/support/launcher_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>

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

int milliseconds_left(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
  return static_cast<int>(std::min<long long>(left, INT_MAX));
}

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

std::string MemoryFile::content() const {
  std::string content;
  char block[1 << 16];
  ssize_t count = 0;
  while ((count = ::pread(descriptor_, block, sizeof(block), static_cast<off_t>(content.size()))) >
         0) {
    content.append(block, static_cast<std::size_t>(count));
  }
  return content;
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

bool LauncherProcess::wait(Deadline deadline) {
  if (pid_ < 0) return true;
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
  if (handle < 0) {
    std::perror("dlaunch::testing: pidfd_open");
    std::abort();
  }
  pollfd ended{.fd = handle, .events = POLLIN, .revents = 0};
  while (::poll(&ended, 1, milliseconds_left(deadline)) < 0 && errno == EINTR) {
  }
  ::close(handle);
  if (ended.revents == 0) return false;
  ::waitpid(pid_, &wait_status_, 0);
  pid_ = -1;
  return true;
}

void LauncherProcess::stop() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  if (wait(Deadline::after(std::chrono::seconds(10)))) return;
  ::kill(pid_, SIGKILL);
  wait(Deadline::after(std::chrono::hours(1)));
}

int LauncherProcess::exit_code() const {
  return WIFSIGNALED(wait_status_) ? 128 + WTERMSIG(wait_status_) : WEXITSTATUS(wait_status_);
}

}  // namespace dlaunch::testing
