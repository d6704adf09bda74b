// CoordinatorThread: connects a NodeCoordinator to the store: the nodes' records and signs of life
// go in, its decisions come out.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>

#include "launcher/nodes/node_coordinator.h"
#include "runtime/rendezvous/tcp_store.h"

namespace dlaunch {

class CoordinatorThread {
 public:
  /// `on_failure` is told, by the thread, why it cannot decide any more. Throws std::system_error.
  CoordinatorThread(std::unique_ptr<TcpStore> store, NodeCoordinator::Options options,
                    std::function<void(const std::string& why)> on_failure);
  /// Lets the job end first: if it has not yet been decided how it ends, it ends for the reason
  /// that this node has gone; and the other nodes are given a few seconds to take note and leave,
  /// those that give no sign of life until they are lost, but no more than half a minute.
  ~CoordinatorThread();
  CoordinatorThread(const CoordinatorThread&) = delete;
  CoordinatorThread& operator=(const CoordinatorThread&) = delete;

 private:
  using Time = NodeCoordinator::Time;
  struct Beat {
    std::uint64_t revision = 0;
    Time seen;            // when it was found to be new
    Time lived;           // no later than when it came
    bool silent = false;  // for too long
  };

  void run();
  void coordinate();
  void take(const StoreChanges::Change& change, Time now);
  Time last_lived(const std::string& id, Time now) const;
  void check_beats(Time now);
  bool may_be_silent(Time now) const;
  void put_out();
  void remove_unneeded();

  const std::unique_ptr<TcpStore> store_;
  const std::chrono::nanoseconds longest_silence_;
  const std::string host_id_;
  NodeCoordinator coordinator_;
  std::unordered_map<std::string, Beat> beats_;   // by member
  std::deque<NodeCoordinator::Write> unwritten_;  // decisions, oldest first
  std::deque<std::string> unneeded_;              // prefixes of keys
  Time last_check_;
  Time next_check_;
  std::atomic<bool> leaving_ = false;
  const std::function<void(const std::string&)> on_failure_;
  std::thread thread_;
};

}  // namespace dlaunch
