// Carries out plans of all ranks of a world over the loopback network, in one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/deadline.h"
#include "runtime/collective/executor.h"
#include "runtime/collective/signature.h"
#include "transport/loopback/loopback.h"

namespace dlaunch::testing {

using Bytes = std::vector<std::byte>;

/// The endpoints of a world, with one execution each to begin with.
struct LoopbackPlans {
  explicit LoopbackPlans(int world) : network(world, describe_signature) {
    for (int rank = 0; rank < world; ++rank) {
      endpoints.push_back(network.endpoint(rank));
      executions.push_back(std::make_unique<PlanExecution>(*endpoints.back()));
    }
  }

  /// Takes in what has arrived, and drives `execution` of `rank`.
  void drive(std::size_t rank, PlanExecution& execution) {
    endpoints[rank]->poll(Deadline::after({}));
    if (!execution.done()) execution.advance();
  }

  /// Until all executions have ended. A failure if that takes too long.
  void drive_all() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    for (bool open = true; open;) {
      open = false;
      for (std::size_t rank = 0; rank < executions.size(); ++rank) {
        drive(rank, *executions[rank]);
        open = open || !executions[rank]->done();
      }
      if (deadline.expired()) {
        ADD_FAILURE() << "plans do not end";
        return;
      }
    }
  }

  LoopbackNetwork network;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<std::unique_ptr<PlanExecution>> executions;
};

}  // namespace dlaunch::testing
