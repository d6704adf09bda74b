#include "runtime/parallel/timed_communicator.h"

#include <utility>

namespace dlaunch {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time from its construction to its destruction.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<std::int64_t>& total) : total_(total) {}
  ~Stopwatch() {
    total_ += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<std::int64_t>& total_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

class TimedCommunicator::TimedWork : public Work::State {
 public:
  TimedWork(Work inner, std::shared_ptr<std::atomic<std::int64_t>> nanoseconds)
      : inner_(std::move(inner)), nanoseconds_(std::move(nanoseconds)) {}
  bool done() const override { return inner_.done(); }
  Status wait(std::chrono::nanoseconds timeout) override {
    const Stopwatch stopwatch(*nanoseconds_);
    return inner_.wait(timeout);
  }

 private:
  Work inner_;
  std::shared_ptr<std::atomic<std::int64_t>> nanoseconds_;
};

Work TimedCommunicator::timed(Work work) {
  return Work(std::make_shared<TimedWork>(std::move(work), nanoseconds_));
}

Status TimedCommunicator::run(const CollectiveCall& call) {
  const Stopwatch stopwatch(*nanoseconds_);
  return inner_.run(call);
}

Work TimedCommunicator::start(const CollectiveCall& call) {
  return timed(inner_.start(call));
}

Status TimedCommunicator::send(ConstBuffer data, int peer, std::uint64_t tag) {
  const Stopwatch stopwatch(*nanoseconds_);
  return inner_.send(data, peer, tag);
}

Status TimedCommunicator::recv(Buffer data, int peer, std::uint64_t tag) {
  const Stopwatch stopwatch(*nanoseconds_);
  return inner_.recv(data, peer, tag);
}

Work TimedCommunicator::start_send(ConstBuffer data, int peer, std::uint64_t tag) {
  return timed(inner_.start_send(data, peer, tag));
}

Work TimedCommunicator::start_recv(Buffer data, int peer, std::uint64_t tag) {
  return timed(inner_.start_recv(data, peer, tag));
}

}  // namespace dlaunch
