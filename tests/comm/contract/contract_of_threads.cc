#include <random>

#include "runtime/collective/algorithms.h"
#include "tests/comm/contract/contract.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {

void run_ranks(int world, const std::function<void(Communicator&)>& body) {
  run_threads_as_ranks(world, body);
}

std::vector<int> contract_worlds() {
  return {1, 2, 3, 4, 5, 8};
}

std::vector<Algorithm> contract_algorithms() {
  const auto algorithms = algorithms_of(CollectiveKind::kAllReduce);
  return {algorithms.begin(), algorithms.end()};
}

std::uint64_t contract_seed() {
  return std::random_device{}();
}

}  // namespace dlaunch::testing
