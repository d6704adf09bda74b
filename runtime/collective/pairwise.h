// All-to-all in which every part goes straight to its rank, one partner at a time: in step s rank r
// sends to r + s and receives from r - s, so that no rank is sent to by two at once.
//
// Thakur, Rabenseifner & Gropp (2005), section 4.3: (p-1)a + (p-1)/p nb.
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

/// input: one part for every rank, as `sent` says. output: one part from every rank, as `received`
/// says. What rank a sends to b is what b receives from a; a mistake shows as a message of another
/// length.
Plan pairwise_all_to_all(int rank, const Partition& sent, const Partition& received);

}  // namespace dlaunch
