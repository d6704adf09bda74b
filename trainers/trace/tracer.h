// Tracer: remembers when what happened on a rank, in memory and up to a bound.
//
// Times are this process's steady clock. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/parallel/communication_observer.h"

namespace dlaunch {

/// What a TraceEvent is about, and by that which line of the timeline it is on.
enum class TraceKind : std::uint8_t {
  kPhase,     // of the training thread: a step, forward, a checkpoint
  kForward,   // of a layer
  kBackward,  // of an operation of a layer
  kBlocking,  // a collective that the training thread waited for from begin to end
  kNormal,    // a collective in the background
  kHigh,      // one of high priority
};

struct TraceEvent {
  std::chrono::steady_clock::time_point begin;
  std::chrono::steady_clock::time_point end;
  TraceKind kind = TraceKind::kPhase;
  std::uint32_t name = 0;      // Tracer::name()
  std::uint64_t sequence = 0;  // collectives: the call's number; steps: the step's
  std::uint64_t bytes = 0;     // collectives
};

class Tracer {
 public:
  /// What comes after `most_events` is counted, not kept.
  explicit Tracer(std::size_t most_events) : most_events_(most_events) {}

  /// The number of a name, for events.
  std::uint32_t name(std::string_view text);
  const std::string& text(std::uint32_t name) const { return names_[name]; }

  void add(const TraceEvent& event);
  void add(const CommunicationSpan& span);

  const std::vector<TraceEvent>& events() const { return events_; }
  std::size_t dropped() const { return dropped_; }

 private:
  const std::size_t most_events_;
  std::vector<TraceEvent> events_;
  std::size_t dropped_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // of names
};

}  // namespace dlaunch
