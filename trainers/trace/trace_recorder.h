// TraceRecorder: the trace of a rank from the beginning of a run to the file. One thread; while no
// step is traced it costs a branch wherever it is asked.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "nn/core/module.h"
#include "runtime/comm/communicator.h"
#include "trainers/output/record_file.h"
#include "trainers/trace/clock_offset.h"
#include "trainers/trace/layer_tracer.h"
#include "trainers/trace/trace_file.h"
#include "trainers/trace/trace_options.h"
#include "trainers/trace/tracer.h"

namespace dlaunch {

class TraceRecorder {
 public:
  /// `writes`: this is rank 0. Throws std::runtime_error if the file cannot be made: it is better
  /// to know that before the training. What is in it stays until start().
  TraceRecorder(TraceOptions options, bool writes);

  /// Collective: compares the clocks. The network must outlive the recorder. Throws StatusError.
  void start(Communicator& world, nn::Module& network);
  /// The step is the run's; the first one is 1.
  void begin_step(std::uint64_t step);
  bool active() const { return active_; }
  void phase(std::string_view name, std::chrono::steady_clock::time_point begin,
             std::chrono::steady_clock::time_point end, std::uint64_t step = 0);
  void collective(const CommunicationSpan& span) { tracer_.add(span); }
  /// Null while no step is traced.
  nn::BackwardObserver* backward_observer() { return active_ ? layers_.get() : nullptr; }

  /// Collective: writes the file. Throws StatusError, and std::runtime_error on rank 0.
  void finish(Communicator& world);
  /// The same after a failure that all ranks met together, or each for itself. What goes wrong now
  /// is not reported: something else has.
  void give_up(Communicator& world, bool together) noexcept;

 private:
  std::string events(const Communicator& world, const ClockAlignment& alignment) const;
  void activate(bool on);

  const TraceOptions options_;
  std::unique_ptr<RecordFile> file_;  // rank 0's
  Tracer tracer_;
  nn::Module* network_ = nullptr;
  std::unique_ptr<LayerTracer> layers_;
  std::optional<ClockOffset> clock_;  // at the start; none: nothing was traced
  std::int64_t origin_ = 0;           // by rank 0's clock
  bool active_ = false;
};

}  // namespace dlaunch
