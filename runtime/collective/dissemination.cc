#include "runtime/collective/dissemination.h"

namespace dlaunch {

Plan dissemination_barrier(int rank, int world) {
  const Slice nothing{};
  Plan plan;
  for (int distance = 1; distance < world; distance *= 2) {
    const int to = (rank + distance) % world;
    const int from = (rank + world - distance) % world;
    plan.steps.push_back({.sends = {{to, nothing}}, .recvs = {{.peer = from, .into = nothing}}});
  }
  return plan;
}

}  // namespace dlaunch
