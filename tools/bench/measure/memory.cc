#include "tools/bench/measure/memory.h"

#include <cstdlib>
#include <fstream>
#include <string>

namespace dlaunch::bench {

bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5\n" << std::flush;
  return file.good();
}

double peak_mib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return 0;
}

}  // namespace dlaunch::bench
