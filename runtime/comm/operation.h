// Operation: one call on its way - its plan in execution, its name for error messages, its
// deadline.
//
// Made by Lane::prepare on the caller's thread, then used by the thread that drives the lane.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/collective/executor.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/outcome.h"

namespace dlaunch {

/// One end of a point-to-point message.
struct MessageCall {
  bool outgoing = false;
  Buffer data;  // only read if outgoing
  int peer = -1;
  std::uint64_t tag = 0;
};

/// What a caller asks for.
using Request = std::variant<CollectiveCall, MessageCall>;

struct Operation {
  explicit Operation(Endpoint& endpoint) : execution(endpoint) {}

  /// "all_reduce #12 sum f32[1000] ring", "recv f32[10] from rank 3 tag 7".
  std::string name() const;
  bool is_collective() const { return sequence > 0; }

  std::uint64_t sequence = 0;  // 0: a message
  bool outgoing = false;       // of a message
  std::shared_ptr<const Plan> plan;
  Assignment assignment;
  PlanExecution execution;

  std::chrono::nanoseconds timeout{};
  Deadline deadline = Deadline::after({});
  Deadline announce_at = Deadline::after({});  // moves on whenever something has moved
  bool announced = false;

  // The average of i32 or u8 is computed in 64 bits: copies of input and output in that width, and
  // the buffers they stand for.
  bool widened = false;
  ConstBuffer narrow_input;
  Buffer narrow_output;
  std::vector<std::int64_t> wide_input;
  std::vector<std::int64_t> wide_output;

  std::shared_ptr<Outcome> outcome;  // of an asynchronous call
};

}  // namespace dlaunch
