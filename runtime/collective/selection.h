// Which algorithm an all_reduce uses when the caller leaves it open.
#pragma once

#include <cstddef>

#include "runtime/collective/types.h"

namespace dlaunch {

/// What a message and a reduction cost; the defaults are those of TCP on one host.
struct CostModel {
  double message_seconds = 20e-6;            // alpha: latency of one message
  double transfer_seconds_per_byte = 4e-10;  // beta
  double reduce_seconds_per_byte = 1e-10;    // gamma
};

/// Predicted time of an all_reduce of `bytes` on `ranks` ranks; the formulas are in ring.h and
/// butterfly.h.
double ring_seconds(const CostModel& cost, std::size_t bytes, int ranks);
double butterfly_seconds(const CostModel& cost, std::size_t bytes, int ranks);

/// The one with the lower prediction. A pure function: every rank chooses the same.
Algorithm choose_all_reduce(std::size_t bytes, int ranks, const CostModel& cost = {});

}  // namespace dlaunch
