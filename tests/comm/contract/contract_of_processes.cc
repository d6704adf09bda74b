// The contract over processes that dlaunch starts: in shared memory, or over the transport that
// DLAUNCH_TEST_TRANSPORT names.
#include <cstdlib>

#include "tests/comm/contract/contract.h"
#include "tests/support/distributed_test.h"

namespace dlaunch::testing {

void run_ranks(int world, const std::function<void(Communicator&)>& body) {
  const char* const transport = std::getenv("DLAUNCH_TEST_TRANSPORT");  // NOLINT: nobody changes it
  RunOptions options;
  options.environment = {{"DLAUNCH_TRANSPORT", transport == nullptr ? "auto" : transport}};
  run_on_ranks(world, body, options);
}

// Of six, halving and doubling leaves out two; of five, one.
std::vector<int> contract_worlds() {
  return {1, 2, 3, 5, 6};
}

std::vector<Algorithm> contract_algorithms() {
  return {Algorithm::kAuto, Algorithm::kRing, Algorithm::kButterfly};
}

std::uint64_t contract_seed() {
  return run_seed();
}

}  // namespace dlaunch::testing
