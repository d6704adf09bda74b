// FailureNotice: why a rank gave up, as it tells its peers, so that every rank reports the root
// cause instead of what followed from it.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace dlaunch {

/// A plain value.
struct FailureNotice {
  StatusCode code = StatusCode::kAborted;
  int about = -1;     // the rank that the failure is about; -1: none
  int reporter = -1;  // the rank that found it
  std::string text;   // the whole chain, as Status::to_string gives it

  /// The notice that `reporter` sends about its own failure.
  static FailureNotice from(const Status& why, int reporter);

  /// The status that the other ranks report: "peer 3: connection reset (reported by rank 1)".
  Status to_status() const;
};

}  // namespace dlaunch
