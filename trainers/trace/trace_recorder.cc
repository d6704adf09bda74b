#include "trainers/trace/trace_recorder.h"

#include <array>
#include <exception>
#include <utility>

namespace dlaunch {
namespace {

std::int64_t steady_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::unique_ptr<RecordFile> open_file(const std::string& path) {
  return std::make_unique<RecordFile>(path, RecordFile::Words{"the trace", "set output.trace"});
}

}  // namespace

TraceRecorder::TraceRecorder(TraceOptions options, bool writes)
    : options_(std::move(options)),
      file_(writes ? open_file(options_.file) : nullptr),
      tracer_(options_.most_events) {}

void TraceRecorder::start(Communicator& world, nn::Module& network) {
  network_ = &network;
  layers_ = std::make_unique<LayerTracer>(network, tracer_);
  clock_ = offset_to_rank_zero(world, steady_nanoseconds);
  std::array<std::int64_t, 1> origin{steady_nanoseconds()};
  throw_if_error(world.broadcast(origin, 0).within("trace"));
  origin_ = origin[0];
}

void TraceRecorder::begin_step(std::uint64_t step) {
  activate(step >= options_.first_step && step <= options_.last_step);
}

void TraceRecorder::activate(bool on) {
  if (on == active_) return;
  active_ = on;
  network_->observe(on ? layers_.get() : nullptr);
}

void TraceRecorder::phase(std::string_view name, std::chrono::steady_clock::time_point begin,
                          std::chrono::steady_clock::time_point end, std::uint64_t step) {
  tracer_.add({.begin = begin, .end = end, .name = tracer_.name(name), .sequence = step});
}

std::string TraceRecorder::events(const Communicator& world,
                                  const ClockAlignment& alignment) const {
  return trace_events(tracer_, {alignment, origin_}, world.rank());
}

void TraceRecorder::finish(Communicator& world) {
  activate(false);
  const ClockOffset now = offset_to_rank_zero(world, steady_nanoseconds);
  const ClockAlignment alignment(*clock_, now);
  clock_.reset();  // what is written now is whole: give_up() has nothing to add
  write_trace(world, file_.get(), events(world, alignment));
}

void TraceRecorder::give_up(Communicator& world, bool together) noexcept {
  if (!clock_) return;
  try {
    activate(false);
    const std::string own = events(world, ClockAlignment(*clock_));
    if (together) return write_trace(world, file_.get(), own);
    if (!file_) file_ = open_file(path_of_rank(options_.file, world.rank()));
    write_trace(*file_, own);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the failure before counts
  }
}

}  // namespace dlaunch
