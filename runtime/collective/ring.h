// Plans that send only to the next rank of a ring and receive only from the previous one.
//
// Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
// With p ranks and n bytes an all_reduce costs 2(p-1) messages of n/p bytes per rank: time
// 2(p-1)a + 2(p-1)/p nb + (p-1)/p ng (a latency, b per byte sent, g per byte reduced), which no
// algorithm beats for long vectors. The order of the additions depends on the element's part only,
// so all ranks hold the same bits.
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

/// input: total() elements. output: the reduced part `rank`.
Plan ring_reduce_scatter(int rank, const Partition& parts);

/// input: part `rank`. output: total() elements, all parts.
Plan ring_all_gather(int rank, const Partition& parts);

/// input and output: `count` elements.
Plan ring_all_reduce(int rank, int world, std::size_t count);

}  // namespace dlaunch
