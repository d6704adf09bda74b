// FailureNotice: why a rank gave up, as it tells its peers, so that every rank reports the root
// cause instead of what followed from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace dlaunch {

/// Longer texts are cut when they are sent.
inline constexpr std::size_t kMaxNoticeText = 4096;

/// A plain value.
struct FailureNotice {
  StatusCode code = StatusCode::kAborted;
  int about = -1;     // the rank that the failure is about; -1: none
  int reporter = -1;  // the rank that found it
  std::string text;   // the whole chain, as Status::to_string gives it

  /// The notice that `reporter` sends about its own failure.
  static FailureNotice from(const Status& why, int reporter);

  /// The notice that a peer has sent. kProtocol if it cannot be one: no such code, or ranks outside
  /// the world. What would disturb a log or a terminal is taken out of the text.
  static Result<FailureNotice> from_peer(std::uint32_t code, int about, int reporter,
                                         std::string_view text, int world_size);

  /// The status that the other ranks report: "peer 3: connection reset (reported by rank 1)". Where
  /// the text itself ends with who reported it, that is kept.
  Status to_status() const;
};

}  // namespace dlaunch
