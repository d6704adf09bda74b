// How far the steady clocks of two ranks are apart, as NTP finds it out: a message goes there and
// back, the answer says what time it was there, and the way back is taken to be as long as the way
// there. The shortest of several round trips is wrong by half its length at most. (D. Mills,
// "Internet Time Synchronization: the Network Time Protocol", IEEE Trans. Comm. 39, 1991.)
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/comm/communicator.h"

namespace dlaunch {

/// Times in nanoseconds, each of the clock of the rank that read it.
struct RoundTrip {
  std::int64_t sent = 0;      // here
  std::int64_t there = 0;     // when it arrived at the other rank
  std::int64_t received = 0;  // here again
};

struct ClockOffset {
  std::int64_t here = 0;         // when it was found out, by this rank's clock
  std::int64_t nanoseconds = 0;  // to be added to a time of this rank's
  std::int64_t error = 0;        // at most
};

/// Of the shortest round trip; there is at least one.
ClockOffset offset_of(std::span<const RoundTrip> trips);

/// From this rank's clock to that of rank 0: collective. Throws StatusError.
ClockOffset offset_to_rank_zero(Communicator& world,
                                const std::function<std::int64_t()>& now_nanoseconds);

/// Times of this rank by rank 0's clock: the offset found out before and the one found out
/// afterwards hold for their times, and between them it drifts evenly.
class ClockAlignment {
 public:
  explicit ClockAlignment(ClockOffset first) : first_(first), last_(first) {}
  ClockAlignment(ClockOffset first, ClockOffset last) : first_(first), last_(last) {}

  std::int64_t to_rank_zero(std::int64_t here) const;
  /// In nanoseconds, at most.
  std::int64_t error() const { return std::max(first_.error, last_.error); }

 private:
  ClockOffset first_;
  ClockOffset last_;
};

}  // namespace dlaunch
