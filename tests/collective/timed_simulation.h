// How long the plans of all ranks take when a message costs a latency and bytes, a rank sends and
// receives one byte at a time, and additions and copies cost by the byte: the model of the
// formulas, without any formula.
#pragma once

#include <functional>

#include "runtime/collective/plan.h"

namespace dlaunch::testing {

struct SimulatedCosts {
  double latency = 0;
  double overhead = 0;  // of each further message of a rank in a step
  double per_element = 0;
  double reduce_per_element = 0;
  double copy_per_element = 0;
};

/// When the last rank is through. The plans are known to end.
double simulated_time(int world, const SimulatedCosts& costs,
                      const std::function<Plan(int)>& plan_of);

}  // namespace dlaunch::testing
