// Plans along a binomial tree: ceil(log2 p) messages on the longest way, for short vectors.
//
// Thakur, Rabenseifner & Gropp (2005). broadcast: lg p (a + nb); reduce: lg p (a + nb + ng);
// all_reduce is one after the other; scatter: lg p a + (p-1)/p nb. The tree has the root at place 0
// and ranks in order after it, so that a rank receives from the children nearest to it first and
// every reduction is in the order of places.
#pragma once

#include <vector>

#include "runtime/collective/plan.h"

namespace dlaunch {

/// output: `count` elements, the root's to everybody.
Plan binomial_broadcast(int rank, int world, std::size_t count, int root);

/// input: `count` elements; output, used on the root only: the same.
Plan binomial_reduce(int rank, int world, std::size_t count, int root);

/// Reduce to rank 0 and broadcast. input and output: `count` elements.
Plan tree_all_reduce(int rank, int world, std::size_t count);

/// Hands the part `(rank - root) mod p` of the root's output to the same place of the rank's
/// output. The rest of the output is written to on the way.
Plan binomial_scatter(int rank, const Partition& parts, int root);

/// Collects all inputs on the root: its plan ends with operands[r] where rank r's input is.
/// Elsewhere `operands` is empty.
struct Gathered {
  Plan plan;
  std::vector<Slice> operands;
};
Gathered binomial_collect(int rank, int world, std::size_t count, int root);

}  // namespace dlaunch
