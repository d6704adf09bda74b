// Plans in which operands go straight to the rank that reduces them, all of them, in rank order: a
// sum is rounded once, and the order is that of ReduceOrder::kRanks.
//
// Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH"
// (2005), section 4, for direct exchanges; the shared-memory version is in shared_execution.h.
// p ranks, n bytes; a latency of a message, o of each further one at the same time, b per byte
// sent, g per byte of an operand added:
//   direct all_reduce      2a + 2(p-2)o + 2(p-1)/p nb + (p-1)/p ng
//   one-shot all_reduce    a + (p-2)o + (p-1)nb + (p-1)ng
//   direct reduce_scatter  a + (p-2)o + (p-1)/p nb + (p-1)/p ng
//   direct reduce          a + (p-2)o + (p-1)nb + (p-1)ng at the root
//   direct all_gather      a + (p-2)o + (p-1)/p nb
//   direct broadcast       a + (p-2)o + (p-1)nb at the root
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

/// Rank q reduces slice q of all vectors and sends the result to everybody.
/// input and output: `count` elements.
Plan direct_all_reduce(int rank, int world, std::size_t count);

/// Everybody sends his vector to everybody, and all reduce all of it.
Plan one_shot_all_reduce(int rank, int world, std::size_t count);

/// input: total() elements. output: the reduced part `rank`.
Plan direct_reduce_scatter(int rank, const Partition& parts);

/// output: used on the root only.
Plan direct_reduce(int rank, int world, std::size_t count, int root);

/// input: part `rank`. output: total() elements.
Plan direct_all_gather(int rank, const Partition& parts);

/// output: `count` elements, the root's to everybody.
Plan direct_broadcast(int rank, int world, std::size_t count, int root);

}  // namespace dlaunch
