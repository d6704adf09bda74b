// The contract of a Communicator over NcclPath, on fake devices.
#include <random>

#include "runtime/collective/algorithms.h"
#include "tests/comm/contract/contract.h"
#include "tests/cuda_on_host/nccl_ranks.h"
#include "tests/device/on_device.h"

namespace dlaunch::testing {

void run_ranks(int world, const std::function<void(Communicator&)>& body) {
  run_nccl_ranks(world, std::chrono::seconds(30), [&](FakeRank rank) {
    body(*on_device(std::move(rank.communicator), rank.device));
  });
}

std::vector<int> contract_worlds() {
  return {1, 2, 3, 5};
}

// NCCL chooses its own.
std::vector<Algorithm> contract_algorithms() {
  return {Algorithm::kAuto};
}

std::uint64_t contract_seed() {
  return std::random_device{}();
}

}  // namespace dlaunch::testing
