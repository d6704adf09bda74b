#include "runtime/base/stack_signal.h"

#include <array>
#include <cerrno>
#include <csignal>

#include <execinfo.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr int kMostFrames = 64;

void print_stack(int) {
  const int error = errno;  // of whatever was interrupted
  std::array<void*, kMostFrames> frames;
  const int count = backtrace(frames.data(), kMostFrames);
  backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  errno = error;
}

}  // namespace

int print_stack_on_signal() {
  struct sigaction current {};
  if (sigaction(SIGURG, nullptr, &current) != 0) return 0;
  if (current.sa_handler == print_stack) return SIGURG;
  if (current.sa_handler != SIG_DFL) return 0;
  // The first call loads a library, which a handler must not.
  std::array<void*, 1> frame;
  backtrace(frame.data(), 1);
  struct sigaction ours {};
  ours.sa_handler = print_stack;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  return sigaction(SIGURG, &ours, nullptr) == 0 ? SIGURG : 0;
}

}  // namespace dlaunch
