// What stands in a segment beside rings and group memory. All of it begins as zeros. Internal to
// the shared-memory transport.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/base/token.h"
#include "transport/failure_notice.h"

namespace dlaunch {

/// At the beginning of the segment; written by the member that made it, before others join.
struct SegmentHeader {
  Nonce nonce;  // what the segment is known by
  std::uint64_t total_bytes;
};

/// About a member, for all lanes. Written by itself when it joins.
struct alignas(128) MemberRecord {
  std::atomic<std::int32_t> pid;
  std::uint64_t probe_address;  // of kProbeBytes bytes that others may try to read
};

/// A lane's, for all members.
struct alignas(128) LaneControl {
  /// Counts leaves and failures: who sees it change looks at the states.
  std::atomic<std::uint64_t> events;
};

/// A member's on one lane. Written by itself; `state` last, with release.
struct alignas(128) MemberState {
  enum : std::uint32_t { kAlive = 0, kLeft = 1, kFailed = 2, kVanished = 3 };
  std::atomic<std::uint32_t> state;
  // Why it failed: a FailureNotice.
  std::uint32_t code;
  std::int32_t about;
  std::int32_t reporter;
  std::uint32_t text_bytes;
  char text[kMaxNoticeText];
};

}  // namespace dlaunch
