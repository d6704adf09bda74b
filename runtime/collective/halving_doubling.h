// Plans in which partners at distances p/2, p/4, ... exchange halves of halves: few messages, and
// no more bytes than the ring.
//
// Rabenseifner, "Optimization of collective reduction operations" (2004); Thakur, Rabenseifner &
// Gropp (2005). p a power of two, n bytes; a: latency, b: per byte sent, g: per byte reduced:
//   reduce_scatter, recursive halving   lg p a + (p-1)/p n(b + g)
//   all_gather, recursive doubling      lg p a + (p-1)/p nb
//   all_reduce, one after the other     2 lg p a + 2(p-1)/p nb + (p-1)/p ng
// Otherwise the first p - 2^k pairs of neighbours fold: the even rank hands its vector to the odd
// one before and gets its result after: + 2a and up to 2nb + ng.
// Each pair combines in rank order.
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

/// input and output: `count` elements.
Plan halving_doubling_all_reduce(int rank, int world, std::size_t count);

/// input: total() elements. output: the reduced part `rank`.
Plan recursive_halving_reduce_scatter(int rank, const Partition& parts);

/// input: part `rank`. output: total() elements.
Plan recursive_doubling_all_gather(int rank, const Partition& parts);

}  // namespace dlaunch
