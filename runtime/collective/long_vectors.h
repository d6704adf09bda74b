// Rooted collectives of long vectors: the vector is cut into a part per rank, so that every link is
// used.
//
// van de Geijn, "On global combine operations" (1994); Thakur, Rabenseifner & Gropp (2005).
//   broadcast: binomial scatter, ring all-gather   (lg p + p-1)a + 2(p-1)/p nb
//   reduce: ring reduce-scatter, gather            (p-1)(a + o) + 2(p-1)/p nb + (p-1)/p ng
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

/// output: `count` elements, the root's to everybody.
Plan scatter_all_gather_broadcast(int rank, int world, std::size_t count, int root);

/// input: `count` elements; output, used on the root only: the same.
Plan reduce_scatter_gather_reduce(int rank, int world, std::size_t count, int root);

}  // namespace dlaunch
