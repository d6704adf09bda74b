// Dissemination barrier: in round k rank r signals r + 2^k and waits for r - 2^k.
//
// Hensgen, Finkel & Manber, "Two algorithms for barrier synchronization" (1988). ceil(log2 p)
// rounds for any p; after the last one every rank has heard, directly or not, from all.
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

Plan dissemination_barrier(int rank, int world);

}  // namespace dlaunch
