// TimedCommunicator: passes everything on to another communicator, adds up the time that callers
// spend waiting for it - what communication keeps them from doing - and tells an observer about
// each collective.
//
// As thread-safe as the communicator it wraps, which it borrows; with an observer, for one thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/communication_observer.h"

namespace dlaunch {

class TimedCommunicator final : public Communicator {
 public:
  /// The observer (null: none) must outlive every Work in flight.
  explicit TimedCommunicator(Communicator& inner, CommunicationObserver* observer = nullptr)
      : inner_(inner), observer_(observer) {}

  /// Time spent inside blocking calls and in Work::wait() so far, summed over threads.
  std::chrono::nanoseconds time_waited() const { return std::chrono::nanoseconds(*nanoseconds_); }

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Status run(const CollectiveCall& call) override;
  Work start(const CollectiveCall& call) override;
  Status send(ConstBuffer data, int peer, std::uint64_t tag = 0) override;
  Status recv(Buffer data, int peer, std::uint64_t tag = 0, int* sender = nullptr) override;
  Work start_send(ConstBuffer data, int peer, std::uint64_t tag = 0) override;
  Work start_recv(Buffer data, int peer, std::uint64_t tag = 0, int* sender = nullptr) override;
  /// The parts are not wrapped.
  Result<std::unique_ptr<Communicator>> split(int color, int key) override {
    return inner_.split(color, key);
  }
  Result<SharedMemory> allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void set_reduce_order(ReduceOrder order) override { inner_.set_reduce_order(order); }
  ReduceOrder reduce_order() const override { return inner_.reduce_order(); }
  void set_timeout(std::chrono::nanoseconds timeout) override { inner_.set_timeout(timeout); }
  void abort(Status why) override { inner_.abort(std::move(why)); }

 private:
  class TimedWork;
  CommunicationSpan begin_span(const CollectiveCall& call, CallLane lane);
  Work timed(Work work);

  Communicator& inner_;
  CommunicationObserver* const observer_;
  std::array<std::uint64_t, 3> calls_{};  // by lane, only counted for the observer
  // Shared with Work in flight, which may outlive this object.
  std::shared_ptr<std::atomic<std::int64_t>> nanoseconds_ =
      std::make_shared<std::atomic<std::int64_t>>(0);
};

}  // namespace dlaunch
