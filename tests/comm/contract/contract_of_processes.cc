#include "tests/comm/contract/contract.h"
#include "tests/support/distributed_test.h"

namespace dlaunch::testing {

void run_ranks(int world, const std::function<void(Communicator&)>& body) {
  run_on_ranks(world, body);
}

std::vector<int> contract_worlds() {
  return {1, 2, 3, 5};
}

std::vector<Algorithm> contract_algorithms() {
  return {Algorithm::kAuto, Algorithm::kRing, Algorithm::kButterfly};
}

std::uint64_t contract_seed() {
  return run_seed();
}

}  // namespace dlaunch::testing
