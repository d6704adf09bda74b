#include "runtime/collective/butterfly.h"

#include <bit>

namespace dlaunch {

Plan butterfly_all_reduce(int rank, int world, std::size_t count) {
  const Slice input{Region::kInput, 0, count};
  const Slice output{Region::kOutput, 0, count};
  const int active = static_cast<int>(std::bit_floor(static_cast<unsigned>(world)));
  const int folded = world - active;  // pairs (0, 1), (2, 3), ... of which the even rank folds
  const bool in_pair = rank < 2 * folded;
  Plan plan;

  if (in_pair && rank % 2 == 0) {
    plan.steps.push_back({.sends = {{rank + 1, input}}});
    plan.steps.push_back({.recvs = {{.peer = rank + 1, .into = output}}});
    return plan;
  }

  Slice sum = input;  // what this rank has so far
  const auto reduce_from = [&](int peer) {
    const Landing landing = peer < rank ? Landing::kReduceReceivedFirst : Landing::kReduce;
    const PlannedRecv recv{peer, output, landing, sum};
    sum = output;
    return recv;
  };
  if (in_pair) plan.steps.push_back({.recvs = {reduce_from(rank - 1)}});

  const int place = in_pair ? rank / 2 : rank - folded;  // among the active ranks, in rank order
  for (int distance = 1; distance < active; distance *= 2) {
    const int partner = place ^ distance;
    const int peer = partner < folded ? 2 * partner + 1 : partner + folded;
    const PlannedSend send{peer, sum};
    plan.steps.push_back({.sends = {send}, .recvs = {reduce_from(peer)}});
  }

  PlanStep last{.divisions = {output}};
  if (world == 1) last.copies = {{input, output}};
  if (in_pair) last.sends = {{rank - 1, output}};
  plan.steps.push_back(std::move(last));
  return plan;
}

}  // namespace dlaunch
