// MeteredCommunicator: passes everything on to another communicator and keeps count of it: calls
// and bytes by kind of collective, and the time that callers spent waiting.
//
// As thread-safe as the communicator it wraps, which it borrows; the meter may be read while others
// communicate.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include "runtime/comm/communicator.h"

namespace dlaunch {

class MeteredCommunicator : public Communicator {
 public:
  struct Count {
    std::uint64_t calls = 0;    // blocking and in the background
    std::uint64_t started = 0;  // of those, in the background
    std::uint64_t bytes = 0;    // of this rank's input
  };

  explicit MeteredCommunicator(Communicator& inner);
  ~MeteredCommunicator() override;

  Count count(CollectiveKind kind) const;
  /// Time spent inside blocking calls and in Work::wait(), summed over threads: what
  /// communication kept its callers from doing.
  std::chrono::nanoseconds time_blocked() const;

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  Status run(const CollectiveCall& call) override;
  Work start(const CollectiveCall& call) override;
  Status send(ConstBuffer data, int peer, std::uint64_t tag = 0) override;
  Status recv(Buffer data, int peer, std::uint64_t tag = 0) override;
  Work start_send(ConstBuffer data, int peer, std::uint64_t tag = 0) override;
  Work start_recv(Buffer data, int peer, std::uint64_t tag = 0) override;
  void set_timeout(std::chrono::nanoseconds timeout) override { inner_.set_timeout(timeout); }
  void abort(Status why) override { inner_.abort(std::move(why)); }

 private:
  struct Meter;
  void note(const CollectiveCall& call, bool started);
  Work metered(Work work);

  Communicator& inner_;
  std::shared_ptr<Meter> meter_;  // shared with Work in flight
};

}  // namespace dlaunch
