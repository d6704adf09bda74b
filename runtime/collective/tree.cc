#include "runtime/collective/tree.h"

#include <algorithm>
#include <utility>

#include "runtime/collective/embedding.h"

namespace dlaunch {
namespace {

// A rank's place in the tree: `place` 0 is the root, and the parent of a place is that place
// without its lowest set bit.
struct Tree {
  int rank;
  int world;
  int root;

  int place() const { return (rank - root + world) % world; }
  int rank_at(int place) const { return (place + root) % world; }
  /// Children are place() + 1, + 2, + 4, ... below this distance; at it lies the parent.
  int reach() const {
    int distance = 1;
    while (distance < world && (place() & distance) == 0) distance *= 2;
    return distance;
  }
  int parent() const { return rank_at(place() - reach()); }
  bool has_child(int distance) const { return place() + distance < world; }
  int child(int distance) const { return rank_at(place() + distance); }
  /// The last place, plus 1, of the subtree of the place `distance` after this one, or of its own.
  int end(int distance) const { return std::min(place() + 2 * distance, world); }
  int end() const { return std::min(place() + reach(), world); }
};

}  // namespace

Plan binomial_broadcast(int rank, int world, std::size_t count, int root) {
  const Tree tree{rank, world, root};
  const Slice data{Region::kOutput, 0, count};
  Plan plan;
  if (rank != root) plan.steps.push_back({.recvs = {{.peer = tree.parent(), .into = data}}});
  PlanStep hand_on;  // the largest subtree first: it takes longest
  for (int distance = tree.reach() / 2; distance >= 1; distance /= 2) {
    if (tree.has_child(distance)) hand_on.sends.push_back({tree.child(distance), data});
  }
  if (!hand_on.sends.empty()) plan.steps.push_back(std::move(hand_on));
  return plan;
}

Plan binomial_reduce(int rank, int world, std::size_t count, int root) {
  const Tree tree{rank, world, root};
  const Slice accumulator{rank == root ? Region::kOutput : Region::kScratch, 0, count};
  Slice sum{Region::kInput, 0, count};
  Plan plan;
  for (int distance = 1; distance < tree.reach(); distance *= 2) {
    if (!tree.has_child(distance)) break;
    plan.steps.push_back({.recvs = {{tree.child(distance), accumulator, Landing::kReduce, sum}}});
    sum = accumulator;
  }
  if (rank == root) {
    PlanStep last{.divisions = {accumulator}};
    if (world == 1) last.copies = {{sum, accumulator}};
    plan.steps.push_back(std::move(last));
    return plan;
  }
  if (sum == accumulator) plan.scratch = count;
  plan.steps.push_back({.sends = {{tree.parent(), sum}}});
  return plan;
}

Plan tree_all_reduce(int rank, int world, std::size_t count) {
  Plan plan = binomial_reduce(rank, world, count, 0);
  append(plan, binomial_broadcast(rank, world, count, 0));
  return plan;
}

Plan binomial_scatter(int rank, const Partition& parts, int root) {
  const Tree tree{rank, parts.parts(), root};
  const auto places = [&](int first, int last) {
    return Slice{Region::kOutput, parts.offset(first), parts.offset(last) - parts.offset(first)};
  };
  Plan plan;
  if (rank != root) {
    plan.steps.push_back(
        {.recvs = {{.peer = tree.parent(), .into = places(tree.place(), tree.end())}}});
  }
  PlanStep hand_on;
  for (int distance = tree.reach() / 2; distance >= 1; distance /= 2) {
    if (!tree.has_child(distance)) continue;
    hand_on.sends.push_back(
        {tree.child(distance), places(tree.place() + distance, tree.end(distance))});
  }
  if (!hand_on.sends.empty()) plan.steps.push_back(std::move(hand_on));
  return plan;
}

Gathered binomial_collect(int rank, int world, std::size_t count, int root) {
  const Tree tree{rank, world, root};
  const Slice input{Region::kInput, 0, count};
  // The inputs of the subtree, from its own place on.
  const auto places = [&](int first, int last) {
    return Slice{Region::kScratch, static_cast<std::size_t>(first - tree.place()) * count,
                 static_cast<std::size_t>(last - first) * count};
  };
  const Slice all = places(tree.place(), tree.end());
  Gathered result;
  PlanStep collect;
  for (int distance = 1; distance < tree.reach() && tree.has_child(distance); distance *= 2) {
    collect.recvs.push_back({.peer = tree.child(distance),
                             .into = places(tree.place() + distance, tree.end(distance))});
  }
  const bool leaf = collect.recvs.empty();
  if (!leaf) {
    result.plan.scratch = all.count;
    if (rank != root) collect.copies = {{input, places(tree.place(), tree.place() + 1)}};
    result.plan.steps.push_back(std::move(collect));
  }
  if (rank != root) {
    result.plan.steps.push_back({.sends = {{tree.parent(), leaf ? input : all}}});
    return result;
  }
  for (int peer = 0; peer < world; ++peer) {
    const int place = (peer - root + world) % world;
    result.operands.push_back(place == 0 ? input : places(place, place + 1));
  }
  return result;
}

}  // namespace dlaunch
