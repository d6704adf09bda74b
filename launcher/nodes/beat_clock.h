// BeatClock: when this node last gave a sign of life to the store, and how long it gave none.
#pragma once

#include <chrono>
#include <optional>

#include "runtime/base/deadline.h"

namespace dlaunch {

/// How long a node may give no sign of life, unless the user says otherwise. With the intervals at
/// which that is looked for and nodes give one, a lost node is noticed within 5 s.
inline constexpr std::chrono::milliseconds kLongestSilence{3500};

/// Not synchronised. Times are arguments, in order.
class BeatClock {
 public:
  using Time = Deadline::Clock::time_point;

  /// A process that is scheduled at all gives up waiting no later than this after the limit.
  static constexpr std::chrono::milliseconds kSlack{250};

  /// `answer_limit`: for the store to acknowledge a sign of life; without that, it is lost.
  explicit BeatClock(std::chrono::nanoseconds answer_limit) : answer_limit_(answer_limit) {}
  std::chrono::nanoseconds answer_limit() const { return answer_limit_; }

  /// This node has become a member, which is a sign of life.
  void start(Time now) { last_ = now; }
  /// Sends a sign of life,
  void begin(Time now) { sent_ = now; }
  /// which the store has acknowledged.
  void end() {
    if (sent_) last_ = *sent_;
    sent_.reset();
  }

  /// How long this node sent nothing, or had not when it did again. A sign of life that is on its
  /// way counts from when it was sent, unless that is longer ago than the store is waited for: then
  /// this process did not run, else it would have given up.
  std::chrono::nanoseconds silence(Time now) const {
    const bool sends = sent_ && now - *sent_ <= answer_limit_ + kSlack;
    return (sends ? *sent_ : now) - last_;
  }

 private:
  std::chrono::nanoseconds answer_limit_;
  Time last_;                 // when the last one that is acknowledged was sent
  std::optional<Time> sent_;  // one that is on its way
};

}  // namespace dlaunch
