// Lane: everything that belongs to one endpoint of a communicator - sequence numbers, plans,
// signatures, deadlines, and the detection of ranks that call different things.
//
// Threads: prepare() and recycle() are called by one thread at a time (their owner's mutex sees to
// that); the rest by the thread that drives the endpoint.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/collective/signature.h"
#include "runtime/comm/announcements.h"
#include "runtime/comm/operation.h"
#include "runtime/comm/plan_cache.h"
#include "transport/endpoint.h"

namespace dlaunch {

class Lane {
 public:
  explicit Lane(std::unique_ptr<Endpoint> endpoint);

  Endpoint& endpoint() { return *endpoint_; }
  /// Destroys the endpoint, after which nothing refers to operations or buffers any more. The lane
  /// is not used again.
  void close() { endpoint_.reset(); }

  /// Gives a valid request its sequence number and plan. Sends nothing yet.
  std::unique_ptr<Operation> prepare(const Request& request, std::chrono::nanoseconds timeout);
  /// Takes back an operation that has ended, to use its memory again.
  void recycle(std::unique_ptr<Operation> operation);

  /// Begins. Operations are started in the order prepared.
  void start(Operation& operation);
  /// Does what can be done without waiting; true once the operation has ended. If it ended badly,
  /// the endpoint has failed too.
  bool drive(Operation& operation);
  /// How it ended, with the operation's name in front.
  Status result(const Operation& operation) const;
  /// When drive() has something to do even if nothing moves.
  static Deadline next_check(const Operation& operation);

 private:
  void prepare_collective(Operation& operation, const CollectiveCall& call);
  void prepare_message(Operation& operation, const MessageCall& call);
  void widen_average(Operation& operation, const CollectiveCall& call);
  void watch(Operation& operation);
  void give_up(Operation& operation, const Status& why);
  Status timed_out(const Operation& operation) const;

  int rank_;
  int world_;
  std::uint64_t next_sequence_ = 1;
  CallHistory history_;
  PlanCache plans_;
  std::vector<std::unique_ptr<Operation>> spare_;
  std::unique_ptr<Announcements> announcements_;
  std::unique_ptr<Endpoint> endpoint_;  // destroyed first: it refers to transfers of the above
};

}  // namespace dlaunch
