#include "runtime/base/available_memory.h"

#include <fstream>
#include <string>

namespace dlaunch {

std::size_t available_memory() {
  std::ifstream meminfo("/proc/meminfo");
  std::size_t sum = 0;
  std::string word;
  std::size_t kibibytes = 0;
  for (std::string rest; meminfo >> word >> kibibytes; std::getline(meminfo, rest))
    if (word == "MemAvailable:" || word == "SwapFree:") sum += kibibytes * 1024;
  return sum;
}

}  // namespace dlaunch
