// Exchanges in ceil(log2 p) steps for any number of ranks, for short messages.
//
// Bruck, Ho, Kipnis, Upfal & Weathersby, "Efficient algorithms for all-to-all communications in
// multiport message-passing systems" (1997).
//   all_gather: rank r sends what it has so far to r - 2^k: lg p a + (p-1)/p nb (n bytes in all)
//   all_to_all: a block that has to travel d ranks goes 2^k on for every bit k of d: blocks are
//               handed on together, lg p a + lg p n/2 b (n bytes sent by a rank in all)
#pragma once

#include <vector>

#include "runtime/collective/plan.h"

namespace dlaunch {

/// input: part `rank`. output: total() elements.
Plan bruck_all_gather(int rank, const Partition& parts);

/// input and output: `world` blocks of `each` elements.
Plan bruck_all_to_all(int rank, int world, std::size_t each);

/// A plan that ends with one slice from every rank somewhere in this rank's memory.
struct Collected {
  Plan plan;
  std::vector<Slice> from;  // by rank
};

/// Every rank's part: bruck_all_gather without the last copies.
Collected bruck_collect_parts(int rank, const Partition& parts);

/// Part `rank` of every rank's input of total() elements: bruck_all_to_all without the last copies.
Collected bruck_collect_slices(int rank, const Partition& parts);

}  // namespace dlaunch
