// What a failure probably was, in words, from what can be known without the program's help: how it
// ended, its last lines on stderr, and the kernel's account of processes killed for memory.
#pragma once

#include <string>
#include <vector>

namespace dlaunch {

struct FailureEvidence {
  int wait_status = 0;                         // as waitpid() gives it
  const std::vector<std::string>& last_lines;  // on stderr, oldest first
  std::string kernel_account;                  // of running out of memory; empty: none
  bool speaks_our_protocol = false;            // it uses our runtime, whose exit codes we know
};

/// One line without the rank's name; empty if nothing more is known than the code or signal. A pure
/// function.
std::string probable_cause(const FailureEvidence& evidence);

}  // namespace dlaunch
