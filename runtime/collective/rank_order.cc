#include "runtime/collective/rank_order.h"

#include <bit>
#include <utility>

#include "runtime/collective/bruck.h"
#include "runtime/collective/embedding.h"
#include "runtime/collective/halving_doubling.h"
#include "runtime/collective/tree.h"

namespace dlaunch {

Plan gathering_all_reduce(int rank, int world, std::size_t count) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(world), count);
  Collected collected = bruck_collect_parts(rank, Partition::of(counts));
  collected.plan.steps.push_back({.reductions = {{.operands = std::move(collected.from),
                                                  .into = {Region::kOutput, 0, count},
                                                  .complete = true}}});
  return std::move(collected.plan);
}

Plan exchanging_reduce_scatter(int rank, const Partition& parts) {
  Collected collected = bruck_collect_slices(rank, parts);
  collected.plan.steps.push_back({.reductions = {{.operands = std::move(collected.from),
                                                  .into = {Region::kOutput, 0, parts.count(rank)},
                                                  .complete = true}}});
  return std::move(collected.plan);
}

Plan exchanging_all_reduce(int rank, int world, std::size_t count) {
  const Partition parts = Partition::even(world, count);
  const Slice own = parts.slice(Region::kOutput, rank);
  Plan plan;
  append(plan, exchanging_reduce_scatter(rank, parts), {.output = own});
  const bool even = std::has_single_bit(static_cast<unsigned>(world));
  append(plan, even ? recursive_doubling_all_gather(rank, parts) : bruck_all_gather(rank, parts),
         {.input = own});
  return plan;
}

Plan rank_order_tree_reduce(int rank, int world, std::size_t count, int root) {
  Gathered gathered = binomial_collect(rank, world, count, root);
  if (rank != root) return std::move(gathered.plan);
  gathered.plan.steps.push_back({.reductions = {{.operands = std::move(gathered.operands),
                                                 .into = {Region::kOutput, 0, count},
                                                 .complete = true}}});
  return std::move(gathered.plan);
}

Plan rank_order_tree_all_reduce(int rank, int world, std::size_t count) {
  Plan plan = rank_order_tree_reduce(rank, world, count, 0);
  append(plan, binomial_broadcast(rank, world, count, 0));
  return plan;
}

}  // namespace dlaunch
