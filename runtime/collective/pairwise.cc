#include "runtime/collective/pairwise.h"

namespace dlaunch {

Plan pairwise_all_to_all(int rank, const Partition& sent, const Partition& received) {
  const int world = sent.parts();
  Plan plan;
  plan.steps.push_back(
      {.copies = {{sent.slice(Region::kInput, rank), received.slice(Region::kOutput, rank)}}});
  for (int s = 1; s < world; ++s) {
    const int to = (rank + s) % world;
    const int from = (rank + world - s) % world;
    plan.steps.push_back(
        {.sends = {{to, sent.slice(Region::kInput, to)}},
         .recvs = {{.peer = from, .into = received.slice(Region::kOutput, from)}}});
  }
  return plan;
}

}  // namespace dlaunch
