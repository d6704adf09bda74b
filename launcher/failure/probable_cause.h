// What a failure probably was, in words: by what the program has recorded itself, if it has, else
// from how it ended, its last lines on stderr, and the kernel's account of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/failure/kernel_account.h"
#include "launcher/failure/recorded_error.h"

namespace dlaunch {

struct FailureEvidence {
  int wait_status = 0;                         // as waitpid() gives it
  const std::vector<std::string>& last_lines;  // on stderr, oldest first
  std::optional<RecordedError> recorded;       // by itself
  KernelRecord kernel;
  bool near_processor_limit = false;  // may have used up the processor time that it may have
  bool speaks_our_protocol = false;   // it uses our runtime, whose exit codes we know
};

/// One line without the rank's name; empty if nothing more is known than the code or signal. A pure
/// function.
std::string probable_cause(const FailureEvidence& evidence);

/// "a Python exception: ValueError: upside down (train.py:8, in load)".
std::string python_error(const RecordedError& error);

}  // namespace dlaunch
