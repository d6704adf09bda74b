#include "trainers/trace/observation.h"

#include <string>

namespace dlaunch {

Observation::Section::~Section() {
  const Clock::time_point end = Clock::now();
  observation_.clock_.section(phase_, begin_, end);
  observation_.trace_phase(to_string(phase_), begin_, end);
}

Observation::Observation(const TraceOptions& trace, bool writes) {
  if (!trace.file.empty()) trace_.emplace(trace, writes);
}

void Observation::start(Communicator& world, nn::Module& network) {
  if (trace_) trace_->start(world, network);
}

void Observation::begin_step(std::uint64_t step) {
  if (trace_) trace_->begin_step(step);
  step_ = step;
  step_begin_ = Clock::now();
  clock_.begin_step(step_begin_);
}

StepTimes Observation::end_step() {
  const Clock::time_point now = Clock::now();
  trace_phase("step", step_begin_, now, step_);
  return clock_.end_step(now);
}

void Observation::communicated(const CommunicationSpan& span) {
  const Clock::time_point now = Clock::now();
  clock_.communicated(span, now);
  if (!traces()) return;
  trace_->collective(span);
  constexpr std::chrono::microseconds kWorthALine(1);
  if (span.lane != CallLane::kBlocking && span.waited > kWorthALine)
    trace_phase("wait for " + std::string(to_string(span.kind)), now - span.waited, now);
}

void Observation::finish(Communicator& world) {
  if (trace_) trace_->finish(world);
}

void Observation::give_up(Communicator& world, bool together) noexcept {
  if (trace_) trace_->give_up(world, together);
}

}  // namespace dlaunch
