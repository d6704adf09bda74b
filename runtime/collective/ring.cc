#include "runtime/collective/ring.h"

namespace dlaunch {
namespace {

struct Ring {
  int rank;
  int world;

  int next() const { return (rank + 1) % world; }
  int previous() const { return (rank + world - 1) % world; }
  /// The part `back` places behind this rank; back <= 2 * world.
  int part(int back) const { return (rank + 2 * world - back) % world; }
};

}  // namespace

Plan ring_reduce_scatter(int rank, const Partition& parts) {
  const Ring ring{rank, parts.parts()};
  const Slice own{Region::kOutput, 0, parts.count(rank)};
  Plan plan;
  if (ring.world == 1) {
    plan.steps.push_back(
        {.copies = {{parts.slice(Region::kInput, rank), own}}, .divisions = {own}});
    return plan;
  }
  // A partial sum is received into one half of the scratch memory while the one before is sent from
  // the other.
  const std::size_t half = parts.longest();
  plan.scratch = ring.world > 2 ? 2 * half : 0;
  Slice outgoing = parts.slice(Region::kInput, ring.part(1));
  for (int s = 0; s < ring.world - 1; ++s) {
    const int part = ring.part(s + 2);
    const bool last = s == ring.world - 2;
    const Slice into =
        last ? own : Slice{Region::kScratch, s % 2 == 0 ? 0 : half, parts.count(part)};
    plan.steps.push_back(
        {.sends = {{ring.next(), outgoing}},
         .recvs = {{ring.previous(), into, Landing::kReduce, parts.slice(Region::kInput, part)}}});
    outgoing = into;
  }
  plan.steps.push_back({.divisions = {own}});
  return plan;
}

Plan ring_all_gather(int rank, const Partition& parts) {
  const Ring ring{rank, parts.parts()};
  Plan plan;
  plan.steps.push_back(
      {.copies = {{{Region::kInput, 0, parts.count(rank)}, parts.slice(Region::kOutput, rank)}}});
  for (int s = 0; s < ring.world - 1; ++s) {
    plan.steps.push_back({.sends = {{ring.next(), parts.slice(Region::kOutput, ring.part(s))}},
                          .recvs = {{.peer = ring.previous(),
                                     .into = parts.slice(Region::kOutput, ring.part(s + 1))}}});
  }
  return plan;
}

Plan ring_all_reduce(int rank, int world, std::size_t count) {
  const Ring ring{rank, world};
  const Partition parts = Partition::even(world, count);
  Plan plan;
  if (world == 1) {
    const Slice whole{Region::kOutput, 0, count};
    plan.steps.push_back({.copies = {{{Region::kInput, 0, count}, whole}}, .divisions = {whole}});
    return plan;
  }
  // Reduce-scatter: after world - 1 steps this rank holds the whole sum of the part before its own
  // successor's, part rank + 1.
  for (int s = 0; s < world - 1; ++s) {
    const int part = ring.part(s + 1);
    const Region source = s == 0 ? Region::kInput : Region::kOutput;
    plan.steps.push_back({.sends = {{ring.next(), parts.slice(source, ring.part(s))}},
                          .recvs = {{ring.previous(), parts.slice(Region::kOutput, part),
                                     Landing::kReduce, parts.slice(Region::kInput, part)}}});
  }
  // All-gather of the sums.
  for (int s = 0; s < world - 1; ++s) {
    PlanStep step{
        .sends = {{ring.next(), parts.slice(Region::kOutput, ring.part(s + world - 1))}},
        .recvs = {{.peer = ring.previous(), .into = parts.slice(Region::kOutput, ring.part(s))}}};
    if (s == 0) step.divisions = {parts.slice(Region::kOutput, ring.part(world - 1))};
    plan.steps.push_back(std::move(step));
  }
  return plan;
}

}  // namespace dlaunch
