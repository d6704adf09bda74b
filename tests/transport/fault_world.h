// FaultWorld: communicators over TCP, with threads of this process as ranks, whose every connection
// leads through a FaultProxy of its pair of ranks. For what bad networks do to collectives.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "tests/support/fault_proxy.h"
#include "transport/inbox.h"

namespace dlaunch::testing {

class FaultWorld {
 public:
  struct Options {
    int world = 3;
    std::chrono::nanoseconds timeout = std::chrono::seconds(100);  // of every wait of a rank
    std::size_t kept_bytes = kDefaultKeptBytes;  // of messages that a rank does not wait for
    /// Of the connections between two ranks as they are made; forward is from the higher one.
    FaultProxy::Choice choose = {};
  };
  using Body = std::function<void(Communicator& comm)>;

  explicit FaultWorld(const Options& options);
  ~FaultWorld();

  /// Connects all ranks, each in a thread; by rank, how that went.
  std::vector<Status> connect();
  /// Runs body on every connected rank, each in a thread, and waits for all. A rank's communicator
  /// is closed when its body ends.
  void run(const Body& body);

  /// Sets the faults of what `from` sends to `to`.
  void set(int from, int to, const Faults& faults);
  /// Sets the faults of everything.
  void set_all(const Faults& faults);
  FaultProxy& proxy(int a, int b);

 private:
  Result<std::unique_ptr<Communicator>> connect_rank(int rank);

  struct Listeners;
  Options options_;
  std::unique_ptr<Listeners> listeners_;
  std::vector<std::vector<std::unique_ptr<FaultProxy>>> proxies_;  // by higher rank, lower rank
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

}  // namespace dlaunch::testing
