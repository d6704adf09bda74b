#include "launcher/base/non_blocking.h"

#include <string>

#include <fcntl.h>
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

}  // namespace dlaunch
