// How long the plans of all ranks take when a message costs a latency and bytes, a rank sends and
// receives one byte at a time, and additions and copies cost by the byte: the model of the
// formulas, without any formula.
//
// Messages between hosts cost other times. All ranks of a host share its cable, in each direction,
// over which messages go one after the other, in the order in which they are sent or arrive.
#pragma once

#include <functional>
#include <span>

#include "runtime/collective/plan.h"

namespace dlaunch::testing {

struct SimulatedMessage {
  double latency = 0;
  double overhead = 0;  // of each further message of a rank in a step
  double per_element = 0;
};

struct SimulatedCosts {
  SimulatedMessage message;  // inside a host
  SimulatedMessage network;  // between hosts
  double reduce_per_element = 0;
  double copy_per_element = 0;
};

/// When the last rank is through. `hosts` has the host of every rank, as numbers from 0. The plans
/// are known to end.
double simulated_time(std::span<const int> hosts, const SimulatedCosts& costs,
                      const std::function<Plan(int)>& plan_of);

}  // namespace dlaunch::testing
