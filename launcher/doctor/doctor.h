// `dlaunch doctor`: looks at this machine and says, line by line, what a job would find here, and
// what to do about what it would not like.
#pragma once

#include <string>
#include <vector>

namespace dlaunch {

struct Finding {
  bool good;
  std::string subject;  // "open files"
  std::string text;     // what was found
  std::string advice;   // what to do about it, if it is not good
  bool minor = false;   // not good for some jobs only: a note, no warning
};

/// Limits and cores: doctor_resources.cc.
std::vector<Finding> examine_resources();
/// Shared memory, other processes' memory, GPUs, tools: doctor_machine.cc.
std::vector<Finding> examine_machine();
/// Ports and names: doctor_network.cc.
std::vector<Finding> examine_network();

/// Prints all findings. 0 if there is no warning, else 1; 125 if there are arguments other than
/// --help.
int doctor_command(int argc, const char* const* argv);

}  // namespace dlaunch
