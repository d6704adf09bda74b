// Broadcast and reduce along a binomial tree: ceil(log2 p) rounds, time lg p (a + nb) and, for the
// reduction, lg p ng more. Rank numbers are counted from the root, so any rank can be the root.
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

/// output: `count` elements, read on the root and written elsewhere. The input is not used.
Plan binomial_broadcast(int rank, int world, std::size_t count, int root);

/// input: `count` elements everywhere. output: `count` elements, used on the root only.
Plan binomial_reduce(int rank, int world, std::size_t count, int root);

}  // namespace dlaunch
