#include "runtime/base/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch {

void open_standard_descriptors() {
  for (int descriptor = open("/dev/null", O_RDWR); descriptor >= 0;
       descriptor = open("/dev/null", O_RDWR)) {
    if (descriptor <= STDERR_FILENO) continue;
    close(descriptor);
    return;
  }
}

}  // namespace dlaunch
