#pragma once

#include <sys/stat.h>

namespace dlaunch {

/// Whether two descriptors lead to one file, pipe or device.
inline bool same_file(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace dlaunch
