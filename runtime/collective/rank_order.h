// Reductions whose operands are taken in rank order, ((x0 + x1) + x2) + ..., so that all of them
// give the same bits (ReduceOrder::kRanks). The plans of direct.h do so anyway.
//
// Either a running sum visits the ranks in order, cut into a slice per rank so that all links are
// busy (a pipeline, as in Träff, Ripke, Siebert et al., "A pipelined algorithm for large,
// irregular all-gather problems" (2008)); or the operands themselves travel, along the ways of
// other algorithms, and are reduced where they end. p ranks, n bytes:
//   chain all_reduce          2(p-1)a + 3(p-1)/p nb + 2(p-1)/p ng; every rank sends at most 2n
//   chain reduce_scatter      pa + 2(p-1)/p nb + 2(p-1)/p ng
//   chain reduce              pa + (2p-1)/p nb + 2(p-1)/p ng
//   gathering all_reduce      lg p a + (p-1)nb + (p-1)ng
//   exchanging all_reduce     2 lg p a + (lg p / 2 + (p-1)/p) nb + (p-1)/p ng
//   exchanging reduce_scatter lg p a + lg p n/2 b + (p-1)/p ng
//   tree all_reduce           2 lg p a + (p-1 + lg p)nb + (p-1)ng
//   tree reduce               lg p a + (p-1)nb + (p-1)ng
#pragma once

#include "runtime/collective/plan.h"

namespace dlaunch {

/// The running sum of slice q goes 0 -> 1 -> ... -> p-1 and from there on round the ring.
/// input and output of an all_reduce: `count` elements.
Plan chain_all_reduce(int rank, int world, std::size_t count);

/// input: total() elements. output: the reduced part `rank`.
Plan chain_reduce_scatter(int rank, const Partition& parts);

/// input: `count` elements; output, used on the root only: the same.
Plan chain_reduce(int rank, int world, std::size_t count, int root);

/// Everybody gathers all vectors (bruck.h).
Plan gathering_all_reduce(int rank, int world, std::size_t count);

/// Rank q gets slice q of all vectors (bruck.h); the results are gathered by all.
Plan exchanging_all_reduce(int rank, int world, std::size_t count);
Plan exchanging_reduce_scatter(int rank, const Partition& parts);

/// All vectors go to the root along a binomial tree, and the result back the same way.
Plan rank_order_tree_all_reduce(int rank, int world, std::size_t count);
Plan rank_order_tree_reduce(int rank, int world, std::size_t count, int root);

}  // namespace dlaunch
