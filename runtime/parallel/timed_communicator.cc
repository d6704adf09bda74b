#include "runtime/parallel/timed_communicator.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace dlaunch {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time from its construction to its destruction.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<std::int64_t>& total) : total_(total) {}
  ~Stopwatch() { total_ += passed().count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  std::chrono::nanoseconds passed() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_);
  }

 private:
  std::atomic<std::int64_t>& total_;
  Clock::time_point begin_ = Clock::now();
};

std::size_t transferred_bytes(const CollectiveCall& call) {
  std::size_t pieces = 0;
  for (const Buffer& piece : call.pieces) pieces += piece.bytes();
  return std::max({pieces, call.input.bytes(), call.output.bytes()});
}

}  // namespace

class TimedCommunicator::TimedWork : public Work::State {
 public:
  /// `span` is told to the observer when the operation has been waited for.
  TimedWork(Work inner, std::shared_ptr<std::atomic<std::int64_t>> nanoseconds,
            CommunicationObserver* observer, std::optional<CommunicationSpan> span)
      : inner_(std::move(inner)),
        nanoseconds_(std::move(nanoseconds)),
        observer_(observer),
        span_(span) {}
  bool done() const override { return inner_.done(); }
  Clock::time_point ended() const override { return inner_.ended(); }
  Status wait(std::chrono::nanoseconds timeout) override {
    const Stopwatch stopwatch(*nanoseconds_);
    Status status = inner_.wait(timeout);
    if (!span_) return status;
    span_->waited += stopwatch.passed();
    if (inner_.done()) {
      span_->end = inner_.ended();
      observer_->communicated(*std::exchange(span_, std::nullopt));
    }
    return status;
  }

 private:
  Work inner_;
  std::shared_ptr<std::atomic<std::int64_t>> nanoseconds_;
  CommunicationObserver* const observer_;
  std::optional<CommunicationSpan> span_;  // not told yet
};

CommunicationSpan TimedCommunicator::begin_span(const CollectiveCall& call, CallLane lane) {
  return {.kind = call.kind,
          .lane = lane,
          .sequence = ++calls_[static_cast<std::size_t>(lane)],
          .bytes = transferred_bytes(call),
          .begin = Clock::now()};
}

Work TimedCommunicator::timed(Work work) {
  return Work(std::make_shared<TimedWork>(std::move(work), nanoseconds_, nullptr, std::nullopt));
}

Status TimedCommunicator::run(const CollectiveCall& call) {
  const Stopwatch stopwatch(*nanoseconds_);
  if (observer_ == nullptr) return inner_.run(call);
  CommunicationSpan span = begin_span(call, CallLane::kBlocking);
  Status status = inner_.run(call);
  span.end = Clock::now();
  span.waited = span.end - span.begin;
  observer_->communicated(span);
  return status;
}

Work TimedCommunicator::start(const CollectiveCall& call) {
  if (observer_ == nullptr) return timed(inner_.start(call));
  const CommunicationSpan span =
      begin_span(call, call.priority == Priority::kHigh ? CallLane::kHigh : CallLane::kNormal);
  return Work(std::make_shared<TimedWork>(inner_.start(call), nanoseconds_, observer_, span));
}

Status TimedCommunicator::send(ConstBuffer data, int peer, std::uint64_t tag) {
  const Stopwatch stopwatch(*nanoseconds_);
  return inner_.send(data, peer, tag);
}

Status TimedCommunicator::recv(Buffer data, int peer, std::uint64_t tag, int* sender) {
  const Stopwatch stopwatch(*nanoseconds_);
  return inner_.recv(data, peer, tag, sender);
}

Work TimedCommunicator::start_send(ConstBuffer data, int peer, std::uint64_t tag) {
  return timed(inner_.start_send(data, peer, tag));
}

Work TimedCommunicator::start_recv(Buffer data, int peer, std::uint64_t tag, int* sender) {
  return timed(inner_.start_recv(data, peer, tag, sender));
}

}  // namespace dlaunch
