// Observation: what the training loop of a rank tells about itself while it runs: where the time of
// steps goes, always, and a trace on request.
//
// The trainer marks where steps and their sections begin and end; its communicator reports what
// passes through it. One thread.
#pragma once

#include <optional>
#include <string_view>

#include "runtime/parallel/communication_observer.h"
#include "trainers/output/step_clock.h"
#include "trainers/trace/trace_recorder.h"

namespace dlaunch {

class Observation final : public CommunicationObserver {
 public:
  using Clock = StepClock::Clock;

  /// From its construction to its destruction the step is in this phase.
  class Section {
   public:
    Section(Observation& observation, StepPhase phase) : observation_(observation), phase_(phase) {}
    ~Section();
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;

   private:
    Observation& observation_;
    const StepPhase phase_;
    const Clock::time_point begin_ = Clock::now();
  };

  /// Something that is no part of steps, for the trace.
  class Interlude {
   public:
    Interlude(Observation& observation, std::string_view name)
        : observation_(observation), name_(name) {}
    ~Interlude() { observation_.trace_phase(name_, begin_, Clock::now()); }
    Interlude(const Interlude&) = delete;
    Interlude& operator=(const Interlude&) = delete;

   private:
    Observation& observation_;
    const std::string_view name_;
    const Clock::time_point begin_ = Clock::now();
  };

  /// `writes`: this is rank 0. Throws std::runtime_error if the trace's file cannot be made.
  Observation(const TraceOptions& trace, bool writes);

  /// Collective, if there is to be a trace. The network must outlive this. Throws StatusError.
  void start(Communicator& world, nn::Module& network);
  /// The step is the run's; the first one is 1.
  void begin_step(std::uint64_t step);
  StepTimes end_step();
  /// Collective, between steps: StepClock::compare_waits().
  void compare_waits(Communicator& world) { clock_.compare_waits(world); }
  void communicated(const CommunicationSpan& span) override;
  /// For backward(); null while nothing is traced.
  nn::BackwardObserver* backward_observer() {
    return trace_ ? trace_->backward_observer() : nullptr;
  }

  /// As those of TraceRecorder; nothing without a trace.
  void finish(Communicator& world);
  void give_up(Communicator& world, bool together) noexcept;

  const StepClock& clock() const { return clock_; }

 private:
  bool traces() const { return trace_ && trace_->active(); }
  void trace_phase(std::string_view name, Clock::time_point begin, Clock::time_point end,
                   std::uint64_t step = 0) {
    if (traces()) trace_->phase(name, begin, end, step);
  }

  StepClock clock_;
  std::optional<TraceRecorder> trace_;
  std::uint64_t step_ = 0;
  Clock::time_point step_begin_;
};

}  // namespace dlaunch
