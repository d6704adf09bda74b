// What a TimedCommunicator tells about the calls that pass through it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Which of a communicator's queues a collective took.
enum class CallLane : std::uint8_t { kBlocking = 0, kNormal = 1, kHigh = 2 };

/// A collective that has ended.
struct CommunicationSpan {
  CollectiveKind kind = CollectiveKind::kBarrier;
  CallLane lane = CallLane::kBlocking;
  std::uint64_t sequence = 0;  // of the lane, from 1: the same number is the same call on all ranks
  std::size_t bytes = 0;       // that this rank contributed, or received if that is more
  std::chrono::steady_clock::time_point begin;  // when it was called
  std::chrono::steady_clock::time_point end;
  std::chrono::nanoseconds waited{0};  // of that, the caller
};

class CommunicationObserver {
 public:
  virtual ~CommunicationObserver() = default;
  /// On the caller's thread: after a blocking call, or when a Work was waited for (so the end may
  /// be long ago). Calls that failed are told too; messages between two ranks are not.
  virtual void communicated(const CommunicationSpan& span) = 0;
};

}  // namespace dlaunch
