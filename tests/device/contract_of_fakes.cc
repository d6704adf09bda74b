// The contract of a Communicator over memory of fake devices, ranks being threads: what is queued,
// staged and told by flags, without a GPU.
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "runtime/collective/algorithms.h"
#include "runtime/device/device_communicator.h"
#include "tests/comm/contract/contract.h"
#include "tests/device/fake_ranks.h"
#include "tests/device/on_device.h"

namespace dlaunch::testing {
namespace {

// DLAUNCH_TEST_DEVICE_PATH: ipc (default), staging, or ipc-rounds: by slots of 4 KiB, so that most
// operations go in rounds.
std::string path_under_test() {
  const char* const value = std::getenv("DLAUNCH_TEST_DEVICE_PATH");  // NOLINT: nobody changes it
  return value == nullptr ? "ipc" : value;
}

DeviceCommunicatorOptions options_under_test() {
  const std::string path = path_under_test();
  DeviceCommunicatorOptions options{.timeout = std::chrono::seconds(30)};
  options.path = path == "staging" ? DevicePathKind::kStaging : DevicePathKind::kIpc;
  options.memory = path == "ipc-rounds"
                       ? MemoryPathOptions{.slot_bytes = 4096, .one_shot_bytes = 100}
                       : MemoryPathOptions{.slot_bytes = 1 << 20, .one_shot_bytes = 4096};
  return options;
}

}  // namespace

void run_ranks(int world, const std::function<void(Communicator&)>& body) {
  run_fake_ranks(world, options_under_test(), [&](FakeRank rank) {
    body(*on_device(std::move(rank.communicator), rank.device));
  });
}

std::vector<int> contract_worlds() {
  const std::string path = path_under_test();
  if (path == "staging") return {2, 3};
  return path == "ipc" ? std::vector<int>{1, 2, 5} : std::vector<int>{3};
}

// A path chooses its own.
std::vector<Algorithm> contract_algorithms() {
  return {Algorithm::kAuto};
}

std::uint64_t contract_seed() {
  return std::random_device{}();
}

}  // namespace dlaunch::testing
