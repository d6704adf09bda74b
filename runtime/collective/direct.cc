#include "runtime/collective/direct.h"

#include <utility>

namespace dlaunch {
namespace {

// A step in which this rank sends to every other rank and receives from every other one, beginning
// with its neighbours, so that not all ranks send to the same one at first.
template <typename From, typename Into>
PlanStep exchange_with_all(int rank, int world, const From& from, const Into& into) {
  PlanStep step;
  for (int distance = 1; distance < world; ++distance) {
    const int to = (rank + distance) % world;
    const int source = (rank + world - distance) % world;
    step.sends.push_back({to, from(to)});
    step.recvs.push_back({.peer = source, .into = into(source)});
  }
  return step;
}

// The operands of one slice on their way to the rank that reduces it: its own lies in the input,
// the others land side by side in the scratch memory.
struct Operands {
  int rank;
  Slice own;

  Slice of(int source) const {
    if (source == rank) return own;
    const auto slot = static_cast<std::size_t>(source < rank ? source : source - 1);
    return {Region::kScratch, slot * own.count, own.count};
  }
  PlannedReduction reduction(int world, Slice into) const {
    PlannedReduction reduction{.into = into, .complete = true};
    for (int source = 0; source < world; ++source) reduction.operands.push_back(of(source));
    return reduction;
  }
  std::size_t scratch(int world) const { return static_cast<std::size_t>(world - 1) * own.count; }
};

// Collects part `rank` of all inputs and reduces it into `into`, in a step that the caller may add
// to.
Plan collect_part(int rank, const Partition& parts, Slice into) {
  const int world = parts.parts();
  const Operands operands{rank, parts.slice(Region::kInput, rank)};
  Plan plan{.scratch = operands.scratch(world)};
  plan.steps.push_back(exchange_with_all(
      rank, world, [&](int to) { return parts.slice(Region::kInput, to); },
      [&](int source) { return operands.of(source); }));
  plan.steps.push_back({.reductions = {operands.reduction(world, into)}});
  return plan;
}

}  // namespace

Plan direct_all_reduce(int rank, int world, std::size_t count) {
  const Partition parts = Partition::even(world, count);
  const Slice own = parts.slice(Region::kOutput, rank);
  Plan plan = collect_part(rank, parts, own);
  PlanStep spread = exchange_with_all(
      rank, world, [&](int) { return own; },
      [&](int source) { return parts.slice(Region::kOutput, source); });
  std::swap(spread.reductions, plan.steps.back().reductions);
  plan.steps.back() = std::move(spread);
  return plan;
}

Plan direct_reduce_scatter(int rank, const Partition& parts) {
  return collect_part(rank, parts, {Region::kOutput, 0, parts.count(rank)});
}

Plan one_shot_all_reduce(int rank, int world, std::size_t count) {
  const Slice input{Region::kInput, 0, count};
  const Operands operands{rank, input};
  Plan plan{.scratch = operands.scratch(world)};
  plan.steps.push_back(exchange_with_all(
      rank, world, [&](int) { return input; }, [&](int source) { return operands.of(source); }));
  plan.steps.push_back({.reductions = {operands.reduction(world, {Region::kOutput, 0, count})}});
  return plan;
}

Plan direct_reduce(int rank, int world, std::size_t count, int root) {
  const Slice input{Region::kInput, 0, count};
  if (rank != root) return {.steps = {{.sends = {{root, input}}}}};
  const Operands operands{rank, input};
  Plan plan{.scratch = operands.scratch(world)};
  PlanStep collect;
  for (int peer = 0; peer < world; ++peer) {
    if (peer != rank) collect.recvs.push_back({.peer = peer, .into = operands.of(peer)});
  }
  plan.steps.push_back(std::move(collect));
  plan.steps.push_back({.reductions = {operands.reduction(world, {Region::kOutput, 0, count})}});
  return plan;
}

Plan direct_all_gather(int rank, const Partition& parts) {
  const Slice own = parts.slice(Region::kOutput, rank);
  PlanStep step = exchange_with_all(
      rank, parts.parts(), [&](int) { return own; },
      [&](int source) { return parts.slice(Region::kOutput, source); });
  step.copies = {{{Region::kInput, 0, parts.count(rank)}, own}};
  return {.steps = {std::move(step)}};
}

Plan direct_broadcast(int rank, int world, std::size_t count, int root) {
  const Slice data{Region::kOutput, 0, count};
  if (rank != root) return {.steps = {{.recvs = {{.peer = root, .into = data}}}}};
  PlanStep step;
  for (int peer = 0; peer < world; ++peer) {
    if (peer != root) step.sends.push_back({peer, data});
  }
  return {.steps = {std::move(step)}};
}

}  // namespace dlaunch
