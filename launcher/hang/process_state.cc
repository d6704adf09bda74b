#include "launcher/hang/process_state.h"

#include <fstream>
#include <string>

namespace dlaunch {

// "pid (name) state ..."; the name may contain anything, so the last ')' ends it.
std::string_view process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos || line.size() < name_end + 3) return "gone";
  switch (line[name_end + 2]) {
    case 'R':
      return "running";
    case 'D':
      return "waiting for a device";
    case 'T':
      return "stopped by a signal";
    case 't':
      return "being traced";
    case 'Z':
    case 'X':
      return "a zombie";
    default:
      return "sleeping";
  }
}

}  // namespace dlaunch
