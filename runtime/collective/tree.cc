#include "runtime/collective/tree.h"

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

}  // namespace dlaunch
