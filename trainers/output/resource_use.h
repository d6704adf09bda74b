// What the steps of a run took, of time and of memory, on every rank: the table at its end.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/comm/communicator.h"
#include "trainers/output/memory_account.h"
#include "trainers/output/step_clock.h"

namespace dlaunch {

struct ResourceUse {
  struct Rank {
    StepTimes step;  // seconds of a step, the mean
    MemoryUse memory;
  };

  std::size_t steps = 0;  // of this process: after a resume not the whole run's
  double p50 = 0;         // seconds of a step, on this rank
  double p90 = 0;
  std::vector<Rank> ranks;

  /// The mean over the ranks.
  StepTimes mean() const;
};

/// Collective: every rank gets the figures of all. Throws StatusError.
ResourceUse gather_use(Communicator& world, const StepClock& clock, const MemoryUse& memory);

/// Several lines without a newline at the end; empty if there was no step.
std::string format_use(const ResourceUse& use);
nlohmann::ordered_json use_to_json(const ResourceUse& use);

}  // namespace dlaunch
