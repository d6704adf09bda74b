#include "runtime/collective/halving_doubling.h"

#include <bit>
#include <utility>

namespace dlaunch {
namespace {

// Which ranks take part in the exchanges. Of the first 2 * folded ranks only the odd ones do, for
// their lower neighbours as well. The ranks that do are numbered by place, in rank order.
struct Folding {
  int rank;
  int world;
  int active = static_cast<int>(std::bit_floor(static_cast<unsigned>(world)));
  int folded = world - active;

  bool in_pair() const { return rank < 2 * folded; }
  bool takes_part() const { return !in_pair() || rank % 2 == 1; }
  int place() const { return in_pair() ? rank / 2 : rank - folded; }
  int rank_at(int place) const { return place < folded ? 2 * place + 1 : place + folded; }
  /// The first of the ranks that a place stands for.
  int first_rank(int place) const { return place < folded ? 2 * place : place + folded; }
};

// The vector as cut among the places: a place owns the parts of all ranks it stands for.
Partition by_place(const Folding& folding, const Partition& parts) {
  std::vector<std::size_t> counts;
  counts.reserve(static_cast<std::size_t>(folding.active));
  for (int place = 0; place < folding.active; ++place) {
    counts.push_back(parts.offset(folding.first_rank(place + 1)) -
                     parts.offset(folding.first_rank(place)));
  }
  return Partition::of(counts);
}

Slice places(const Partition& blocks, Region region, int first, int last) {
  return {region, blocks.offset(first), blocks.offset(last) - blocks.offset(first)};
}

// Adds the exchanges after which the block of this rank's place is reduced, in `work`. Returns
// where it is then: still in the input if there was nothing to exchange.
Region append_halving(Plan& plan, const Folding& folding, const Partition& blocks, Region work) {
  Region sum = Region::kInput;  // what this rank has so far
  const auto reduce_from = [&](int peer, Slice range) {
    const Landing landing = peer < folding.rank ? Landing::kReduceReceivedFirst : Landing::kReduce;
    const Slice with{sum, range.offset, range.count};
    return PlannedRecv{peer, range, landing, with};
  };
  if (folding.in_pair()) {
    const Slice whole{work, 0, blocks.total()};
    plan.steps.push_back({.recvs = {reduce_from(folding.rank - 1, whole)}});
    sum = work;
  }
  const int place = folding.place();
  int first = 0;  // this rank still works for the places from here
  for (int distance = folding.active / 2; distance >= 1; distance /= 2) {
    const int peer = folding.rank_at(place ^ distance);
    const bool upper = (place & distance) != 0;
    const int kept = upper ? first + distance : first;
    const int given = upper ? first : first + distance;
    plan.steps.push_back(
        {.sends = {{peer, places(blocks, sum, given, given + distance)}},
         .recvs = {reduce_from(peer, places(blocks, work, kept, kept + distance))}});
    sum = work;
    first = kept;
  }
  return sum;
}

// Adds the exchanges after which this rank has the blocks of all places, in the output.
void append_doubling(Plan& plan, const Folding& folding, const Partition& blocks) {
  const int place = folding.place();
  for (int distance = 1; distance < folding.active; distance *= 2) {
    const int partner = place ^ distance;
    const int own = place & ~(distance - 1);
    const int theirs = partner & ~(distance - 1);
    plan.steps.push_back(
        {.sends = {{folding.rank_at(partner),
                    places(blocks, Region::kOutput, own, own + distance)}},
         .recvs = {{.peer = folding.rank_at(partner),
                    .into = places(blocks, Region::kOutput, theirs, theirs + distance)}}});
  }
}

}  // namespace

Plan halving_doubling_all_reduce(int rank, int world, std::size_t count) {
  const Folding folding{rank, world};
  const Slice whole{Region::kOutput, 0, count};
  Plan plan;
  if (!folding.takes_part()) {
    plan.steps.push_back({.sends = {{rank + 1, {Region::kInput, 0, count}}}});
    plan.steps.push_back({.recvs = {{.peer = rank + 1, .into = whole}}});
    return plan;
  }
  const Partition blocks = Partition::even(folding.active, count);
  const Region sum = append_halving(plan, folding, blocks, Region::kOutput);
  const Slice own = blocks.slice(Region::kOutput, folding.place());
  PlanStep finish{.divisions = {own}};
  if (sum == Region::kInput) finish.copies = {{blocks.slice(sum, folding.place()), own}};
  plan.steps.push_back(std::move(finish));
  append_doubling(plan, folding, blocks);
  if (folding.in_pair()) plan.steps.push_back({.sends = {{rank - 1, whole}}});
  return plan;
}

Plan recursive_halving_reduce_scatter(int rank, const Partition& parts) {
  const Folding folding{rank, parts.parts()};
  const Slice own{Region::kOutput, 0, parts.count(rank)};
  Plan plan;
  if (!folding.takes_part()) {
    plan.steps.push_back({.sends = {{rank + 1, {Region::kInput, 0, parts.total()}}}});
    plan.steps.push_back({.recvs = {{.peer = rank + 1, .into = own}}});
    return plan;
  }
  plan.scratch = parts.parts() > 1 ? parts.total() : 0;
  const Region sum = append_halving(plan, folding, by_place(folding, parts), Region::kScratch);
  PlanStep finish{.copies = {{parts.slice(sum, rank), own}}, .divisions = {own}};
  if (folding.in_pair()) {
    const Slice others = parts.slice(sum, rank - 1);
    finish.divisions.push_back(others);
    finish.sends = {{rank - 1, others}};
  }
  plan.steps.push_back(std::move(finish));
  return plan;
}

Plan recursive_doubling_all_gather(int rank, const Partition& parts) {
  const Folding folding{rank, parts.parts()};
  const Slice input{Region::kInput, 0, parts.count(rank)};
  const Slice whole{Region::kOutput, 0, parts.total()};
  Plan plan;
  if (!folding.takes_part()) {
    plan.steps.push_back({.sends = {{rank + 1, input}}});
    plan.steps.push_back({.recvs = {{.peer = rank + 1, .into = whole}}});
    return plan;
  }
  PlanStep first{.copies = {{input, parts.slice(Region::kOutput, rank)}}};
  if (folding.in_pair()) {
    first.recvs = {{.peer = rank - 1, .into = parts.slice(Region::kOutput, rank - 1)}};
  }
  plan.steps.push_back(std::move(first));
  append_doubling(plan, folding, by_place(folding, parts));
  if (folding.in_pair()) plan.steps.push_back({.sends = {{rank - 1, whole}}});
  return plan;
}

}  // namespace dlaunch
