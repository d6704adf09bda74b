#include "runtime/parallel/metered_communicator.h"

#include <atomic>
#include <utility>

namespace dlaunch {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kKinds = static_cast<std::size_t>(CollectiveKind::kAllReduce) + 1;

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

struct MeteredCommunicator::Meter {
  struct Kind {
    std::atomic<std::uint64_t> calls = 0;
    std::atomic<std::uint64_t> started = 0;
    std::atomic<std::uint64_t> bytes = 0;
  };
  std::array<Kind, kKinds> kinds;
  std::atomic<std::int64_t> nanoseconds = 0;

  /// Waits for the inner work on the meter's time.
  class WorkState : public Work::State {
   public:
    WorkState(Work inner, std::shared_ptr<Meter> meter)
        : inner_(std::move(inner)), meter_(std::move(meter)) {}
    bool done() const override { return inner_.done(); }
    Status wait(std::chrono::nanoseconds timeout) override {
      const Stopwatch stopwatch(meter_->nanoseconds);
      return inner_.wait(timeout);
    }

   private:
    Work inner_;
    std::shared_ptr<Meter> meter_;
  };
};

MeteredCommunicator::MeteredCommunicator(Communicator& inner)
    : inner_(inner), meter_(std::make_shared<Meter>()) {}

MeteredCommunicator::~MeteredCommunicator() = default;

MeteredCommunicator::Count MeteredCommunicator::count(CollectiveKind kind) const {
  const Meter::Kind& counted = meter_->kinds.at(static_cast<std::size_t>(kind));
  return {counted.calls, counted.started, counted.bytes};
}

std::chrono::nanoseconds MeteredCommunicator::time_blocked() const {
  return std::chrono::nanoseconds(meter_->nanoseconds);
}

void MeteredCommunicator::note(const CollectiveCall& call, bool started) {
  Meter::Kind& kind = meter_->kinds.at(static_cast<std::size_t>(call.kind));
  ++kind.calls;
  if (started) ++kind.started;
  kind.bytes += call.input.bytes();
}

Work MeteredCommunicator::metered(Work work) {
  return Work(std::make_shared<Meter::WorkState>(std::move(work), meter_));
}

Status MeteredCommunicator::run(const CollectiveCall& call) {
  note(call, false);
  const Stopwatch stopwatch(meter_->nanoseconds);
  return inner_.run(call);
}

Work MeteredCommunicator::start(const CollectiveCall& call) {
  note(call, true);
  return metered(inner_.start(call));
}

Status MeteredCommunicator::send(ConstBuffer data, int peer, std::uint64_t tag) {
  const Stopwatch stopwatch(meter_->nanoseconds);
  return inner_.send(data, peer, tag);
}

Status MeteredCommunicator::recv(Buffer data, int peer, std::uint64_t tag) {
  const Stopwatch stopwatch(meter_->nanoseconds);
  return inner_.recv(data, peer, tag);
}

Work MeteredCommunicator::start_send(ConstBuffer data, int peer, std::uint64_t tag) {
  return metered(inner_.start_send(data, peer, tag));
}

Work MeteredCommunicator::start_recv(Buffer data, int peer, std::uint64_t tag) {
  return metered(inner_.start_recv(data, peer, tag));
}

}  // namespace dlaunch
