// All-reduce by recursive doubling: partners at distance 1, 2, 4, ... exchange whole vectors.
//
// Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH"
// (2005). ceil(log2 p) exchanges of n bytes: time lg p (a + nb + ng), best for short vectors. If p
// is no power of two, the first p - 2^k pairs of ranks fold: the even one of a pair hands its
// vector to the odd one before and gets the result after, two more messages. Each pair combines in
// rank order, so both partners compute the same bits.
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

/// input and output: `count` elements.
Plan butterfly_all_reduce(int rank, int world, std::size_t count);

}  // namespace dlaunch
