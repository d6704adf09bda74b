// StepClock: where the time of training steps goes, on one rank.
//
// The training thread does one thing at a time, so its time can be told apart without gaps: it
// waits for data, computes (forward, backward, optimizer), waits for other ranks, or does something
// else. Those add up to the step. Communication that went on in the background meanwhile is hidden.
//
// Of the time that a rank waits for others, the part that communication itself takes is found by
// comparing ranks: the one that comes last to a collective waits the shortest, and what others wait
// longer they wait for it. That needs no clocks that agree.
//
// One thread, on which also the communicator reports.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/communication_observer.h"

namespace dlaunch {

/// What the training thread does. The first four are begun by the trainer, the others found out.
enum class StepPhase : std::uint8_t {
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kCommunication,  // exposed
  kOther,
};
inline constexpr std::size_t kStepPhases = 6;
/// "forward", ...
std::string_view to_string(StepPhase phase);

/// Seconds of one step, or of many.
struct StepTimes {
  std::array<double, kStepPhases> phases{};  // add up to the steps' time
  double hidden_communication = 0;           // while the thread did something else
  /// Of the exposed communication, what remains when all ranks come at the same time: the rest was
  /// spent waiting for slower ones. Known after compare_waits().
  double exchange = 0;

  double& operator[](StepPhase phase) { return phases[static_cast<std::size_t>(phase)]; }
  double operator[](StepPhase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  double total() const;
  StepTimes& operator+=(const StepTimes& more);
};

class StepClock {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  void begin_step(TimePoint now);
  /// The thread did this from `begin` to `end`; what it waited for other ranks meanwhile counts as
  /// communication. Sections of a step do not overlap.
  void section(StepPhase phase, TimePoint begin, TimePoint end);
  /// The thread has waited for a collective until `now`, or at least has seen its end.
  void communicated(const CommunicationSpan& span, TimePoint now);
  /// The times of the step.
  StepTimes end_step(TimePoint now);

  /// Collective, between steps: sums().exchange, for the steps since the last call. Throws
  /// StatusError.
  void compare_waits(Communicator& world);
  /// Whether so many collectives have been waited for since that call that it should be made soon;
  /// the same on all ranks.
  bool has_many_waits() const { return compared_waits_.size() >= kManyWaits; }

  /// Of all steps.
  const StepTimes& sums() const { return sums_; }
  std::size_t steps() const { return durations_.size(); }
  /// The duration that so many percent of the steps do not exceed, in seconds; 0 without steps.
  double percentile(double percent) const;

 private:
  static constexpr std::size_t kManyWaits = 1 << 16;  // 1.5 MiB
  using Interval = std::pair<TimePoint, TimePoint>;
  struct Wait {
    CallLane lane;
    std::uint64_t sequence;
    double seconds;
  };

  bool in_step_ = false;
  TimePoint step_begin_;
  StepTimes step_;
  std::vector<Interval> in_flight_;   // of this step: collectives in the background
  std::vector<Interval> waits_;       // in order, without overlap
  std::vector<Wait> compared_waits_;  // of the steps since compare_waits()
  StepTimes sums_;
  std::vector<float> durations_;
};

}  // namespace dlaunch
