// How a job ended, as far as the exit code goes.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace dlaunch {

struct JobEnd {
  int exit_code = 0;
  std::string error;  // why dlaunch itself failed; empty if it did not

  /// Ranks, or what they need, could not be started.
  static JobEnd not_launched(const Status& why);
};

}  // namespace dlaunch
