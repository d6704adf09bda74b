#include "launcher/base/non_blocking.h"

#include <string>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch {

Descriptor reopen_non_blocking(int descriptor) {
  struct stat about {};
  if (fstat(descriptor, &about) != 0) return {};
  if (!S_ISFIFO(about.st_mode) && isatty(descriptor) == 0) return {};
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  return Descriptor(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

void write_without_waiting(int descriptor, std::string_view line) {
  const Descriptor reopened = reopen_non_blocking(descriptor);
  if (reopened.is_open()) descriptor = reopened.get();
  pollfd room{.fd = descriptor, .events = POLLOUT, .revents = 0};
  if (poll(&room, 1, 0) <= 0) return;
  [[maybe_unused]] const ssize_t written = write(descriptor, line.data(), line.size());
}

}  // namespace dlaunch
