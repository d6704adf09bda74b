#include "runtime/collective/long_vectors.h"

#include <vector>

#include "runtime/collective/embedding.h"
#include "runtime/collective/linear.h"
#include "runtime/collective/ring.h"
#include "runtime/collective/tree.h"

namespace dlaunch {

Plan scatter_all_gather_broadcast(int rank, int world, std::size_t count, int root) {
  const Partition parts = Partition::even(world, count);
  // Ranks by place: part i belongs to the i-th rank after the root.
  const int place = (rank - root + world) % world;
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(world));
  for (int i = 0; i < world; ++i) ranks.push_back((root + i) % world);
  Plan plan = binomial_scatter(rank, parts, root);
  append(plan, ring_all_gather(place, parts),
         {.ranks = ranks, .input = parts.slice(Region::kOutput, place)});
  return plan;
}

Plan reduce_scatter_gather_reduce(int rank, int world, std::size_t count, int root) {
  const Partition parts = Partition::even(world, count);
  const Slice own{Region::kScratch, 0, parts.count(rank)};
  Plan plan;
  append(plan, ring_reduce_scatter(rank, parts), {.output = own, .scratch = own.count});
  append(plan, linear_gather(rank, parts, root), {.input = own});
  return plan;
}

}  // namespace dlaunch
