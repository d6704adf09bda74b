// Operation: one call on its way - its plan in execution or its message, its name for error
// messages, its deadline.
//
// Made by Lane::prepare on the caller's thread, then used by the thread that drives the lane.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/activity.h"
#include "runtime/base/deadline.h"
#include "runtime/collective/executor.h"
#include "runtime/collective/record_reduction.h"
#include "runtime/collective/shared_execution.h"
#include "runtime/collective/signature.h"
#include "runtime/comm/buffer.h"
#include "runtime/comm/call_signature.h"
#include "runtime/comm/outcome.h"
#include "runtime/comm/working_copy.h"
#include "transport/endpoint.h"

namespace dlaunch {

/// One end of a point-to-point message.
struct MessageCall {
  bool outgoing = false;
  Buffer data;  // only read if outgoing
  int peer = kAnyRank;
  std::uint64_t tag = 0;
  int* sender = nullptr;  // where a received one's is put; nullptr: nowhere
};

struct Operation {
  Operation(Endpoint& endpoint, SharedSequence& sequence)
      : execution(endpoint), shared_execution(endpoint, sequence, describe_signature) {}

  /// "all_reduce #12 sum f32[1000] ring", "recv f32[10] from rank 3 tag 7".
  std::string name() const;
  /// Of a message.
  MessageEnd message_end() const;
  /// What is published of it.
  ActivityReporter::Call activity() const;
  bool is_collective() const { return sequence > 0; }
  /// The ranks that it waits for directly; none where any one's message will do.
  std::vector<int> waiting_for() const;

  /// Has not waited yet.
  void begin_anew(std::chrono::nanoseconds its_timeout) {
    timeout = its_timeout;
    limited = true;
    waiting = false;
    moved = false;
    announced = false;
    announced_alone = false;
    given_up = Status();
  }

  // Of a collective, whichever way it is carried out.
  void begin();
  bool advance() { return shared ? shared_execution.advance() : execution.advance(); }
  bool ended() const { return shared ? shared_execution.done() : execution.done(); }
  const Status& status() const { return shared ? shared_execution.status() : execution.status(); }
  void cancel(const Status& why);
  /// Waits a moment for advance() to have something to do; for callers who have not.
  bool linger() const { return shared && !shared_execution.done() && shared_execution.linger(); }
  /// What it waits for besides transfers.
  const Readiness* also() const { return shared ? &shared_execution : nullptr; }

  std::uint64_t sequence = 0;  // of a collective; 0: a message

  /// Finds its way back to its operation.
  struct Message : Transfer {
    explicit Message(Operation& of) : operation(of) {}
    Operation& operation;
  };
  bool outgoing = false;
  int* sender = nullptr;  // see MessageCall
  Message message{*this};
  std::list<std::unique_ptr<Operation>>::iterator place;  // among those in flight, of a message

  std::shared_ptr<const Plan> plan;
  Assignment assignment;
  PlanExecution execution;
  bool shared = false;  // carried out in shared memory
  SharedAssignment shared_assignment;
  SharedExecution shared_execution;
  RecordReduction record;  // what assignment.record points to
  WorkingCopy copy;

  // Waiting. The clock is not looked at before there is something to wait for.
  std::chrono::nanoseconds timeout{};
  bool limited = true;  // false: a message that was started, before somebody waits for it
  bool waiting = false;
  bool moved = false;                         // since the clock was last looked at
  Deadline::Clock::time_point waiting_since;  // from here on: only while waiting
  Deadline::Clock::time_point moved_at;       // as far as the clock was looked at
  Deadline deadline = Deadline::after({});
  Deadline look_around = Deadline::after({});  // when to ask what the other ranks are doing
  std::chrono::nanoseconds look_again{};       // how long after that once more
  bool announced = false;
  bool announced_alone = false;
  /// Why a message was given up: over TCP its transfer may end well all the same, while the
  /// connection parts.
  Status given_up;

  std::shared_ptr<Outcome> outcome;  // of an asynchronous call
};

}  // namespace dlaunch
