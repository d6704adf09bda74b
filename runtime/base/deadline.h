// Deadline: the point in time at which a wait gives up. Every wait in the project has one.
#pragma once

#include <algorithm>
#include <chrono>

namespace dlaunch {

/// How long a wait lasts if nobody said otherwise (DLAUNCH_TIMEOUT overrides it, see
/// job_environment.h).
inline constexpr std::chrono::seconds kDefaultTimeout{300};

/// A value; safe to copy between threads.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::nanoseconds duration) {
    const auto now = Clock::now();
    const auto most = Clock::time_point::max() - now;
    return Deadline(duration < most ? now + std::chrono::duration_cast<Clock::duration>(duration)
                                    : Clock::time_point::max());
  }

  static Deadline at(Clock::time_point when) { return Deadline(when); }

  bool expired() const { return Clock::now() >= when_; }
  Clock::time_point when() const { return when_; }
  /// What is left, never below zero.
  std::chrono::nanoseconds remaining() const {
    const auto now = Clock::now();  // the difference to a time far in the past would overflow
    if (when_ <= now) return std::chrono::nanoseconds(0);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(when_ - now);
  }
  /// The sooner of two.
  friend Deadline earliest(Deadline a, Deadline b) { return a.when_ < b.when_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

}  // namespace dlaunch
