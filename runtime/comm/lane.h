// Lane: everything that belongs to one endpoint of a communicator - sequence numbers, plans,
// signatures, deadlines, and the detection of ranks that call different things.
//
// Threads: prepare() and recycle() are called by one thread at a time (their owner's mutex sees to
// that); the rest by the thread that drives the endpoint.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/activity.h"
#include "runtime/collective/signature.h"
#include "runtime/comm/announcements.h"
#include "runtime/comm/bystanders.h"
#include "runtime/comm/collective_call.h"
#include "runtime/comm/operation.h"
#include "runtime/comm/plan_cache.h"
#include "runtime/comm/shared_calls.h"
#include "transport/endpoint.h"

namespace dlaunch {

class Lane {
 public:
  /// `announcements` and `bystanders` outlive the lane. `tuning`: see PlanCache. `reporter`:
  /// publishes what the lane is doing.
  Lane(LaneKind kind, std::unique_ptr<Endpoint> endpoint, Announcements& announcements,
       const Bystanders& bystanders, std::shared_ptr<const Tuning> tuning,
       ActivityReporter reporter);

  Endpoint& endpoint() { return *endpoint_; }
  /// Destroys the endpoint, after which nothing refers to operations or buffers any more. The lane
  /// is not used again.
  void close() { endpoint_.reset(); }

  /// Gives a valid call its sequence number and plan. Sends nothing yet. kIo without memory, after
  /// which the communicator has to fail.
  Result<std::unique_ptr<Operation>> prepare(const CollectiveCall& call,
                                             std::chrono::nanoseconds timeout);
  /// Its time begins when somebody waits for its outcome.
  std::unique_ptr<Operation> prepare(const MessageCall& call, std::chrono::nanoseconds timeout);
  /// An operation to be prepared again and again, for messages one after the other. By the thread
  /// that drives the endpoint.
  std::unique_ptr<Operation> reusable_operation();
  void prepare(Operation& operation, const MessageCall& call, std::chrono::nanoseconds timeout);
  /// Takes back an operation that has ended, to use its memory again.
  void recycle(std::unique_ptr<Operation> operation);

  /// Begins. Operations are started in the order prepared.
  void start(Operation& operation);
  /// Whether somebody drives the lane although nobody waits in it.
  void set_driven(bool driven) {
    if (kind_ == LaneKind::kAsync) announcements_.set_messages_driven(driven);
  }
  /// Publishes `operation` as what the lane is doing; nullptr: nothing.
  void show(const Operation* operation);
  /// Does what can be done without waiting; true once the operation has ended. If it ended badly,
  /// the endpoint may still be well (a peer has left): whoever takes the result() fails it, with
  /// the communicator. `waiter`: the thread that does nothing but wait for the operation, if any.
  bool drive(Operation& operation, pid_t waiter);
  /// How it ended, with the operation's name in front. After a mismatch, or when a rank was lost,
  /// this listens to the other ranks for up to 0.4 s: which calls differed, who was lost first.
  Status result(const Operation& operation);
  /// When drive() has something to do even if nothing moves. For an operation driven before.
  static Deadline next_check(const Operation& operation);

 private:
  std::unique_ptr<Operation> new_operation();
  void give_back_unused();
  std::unique_ptr<Operation> plan(const CollectiveCall& call, std::chrono::nanoseconds timeout);
  void take_working_copy(Operation& operation, const CollectiveCall& call);
  void show_last(const Operation& ended);
  void watch(Operation& operation, pid_t waiter);
  Announcements::Wait wait_of(const Operation& operation) const;
  std::optional<int> departed_one(const Operation& operation) const;
  static void limit_if_awaited(Operation& operation);
  static void make_up_for_stop(Operation& operation, Deadline::Clock::time_point now);
  void look_around(Operation& operation, pid_t waiter);
  void give_up(Operation& operation, const Status& why);
  Status timed_out(const Operation& operation) const;
  Status clarified(const Operation& operation, const Status& status);
  Status explained(const Status& lost);

  const LaneKind kind_;
  const int rank_;
  const int world_;
  Announcements& announcements_;
  const Bystanders& bystanders_;
  std::uint64_t next_sequence_ = 1;
  CallHistory history_;
  PlanCache plans_;
  SharedCalls shared_calls_;
  SharedSequence shared_sequence_;
  std::vector<std::unique_ptr<Operation>> spare_;
  std::size_t fewest_spare_ = 0;  // at a time, since they were last looked through
  int recycled_ = 0;              // since then
  ActivityReporter reporter_;
  const Operation* shown_ = nullptr;
  std::uint64_t newest_ended_ = 0;  // of collectives
  CollectiveKind newest_kind_ = CollectiveKind::kBarrier;
  Status mismatch_;                     // once it is clear which calls differed
  Status lost_;                         // why a peer is, once it has been asked for
  std::unique_ptr<Endpoint> endpoint_;  // destroyed first: it refers to transfers of the above
};

}  // namespace dlaunch
