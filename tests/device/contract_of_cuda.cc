// The contract of a Communicator over the memory of GPUs, ranks being processes. They take the
// visible GPUs in turn, so on a machine with one they share it.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "runtime/base/job_environment.h"
#include "runtime/base/logging.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/environment.h"
#include "runtime/device/device_communicator.h"
#include "tests/comm/contract/contract.h"
#include "tests/device/on_device.h"
#include "tests/support/distributed_test.h"

namespace dlaunch::testing {
namespace {

DevicePathKind path_under_test() {
  const char* const value = std::getenv("DLAUNCH_TEST_DEVICE_PATH");  // NOLINT: nobody changes it
  return device_path_from_name(value == nullptr ? "auto" : value).value_or(DevicePathKind::kAuto);
}

// Before parameters are made of the number of GPUs.
[[maybe_unused]] const bool kAskedOfCuda = (set_gpu_environment(), true);

int visible_devices() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess ? devices : 0;
}

class GpuIsThere final : public ::testing::Environment {
 public:
  void SetUp() override {
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess) {
      GTEST_SKIP() << "all tests on CUDA are skipped: " << cudaGetErrorString(error);
    }
  }
};

const ::testing::Environment* const kGpuIsThere =
    ::testing::AddGlobalTestEnvironment(new GpuIsThere);  // NOLINT: GoogleTest owns it

/// A world like `world`, which is the fixture's and stays there.
std::unique_ptr<Communicator> copy_of(Communicator& world) {
  return world.split(0, 0).value_or_throw();
}

}  // namespace

void run_ranks(int world, const std::function<void(Communicator&)>& body) {
  run_on_ranks(world, [&](Communicator& host) {
    const int device = read_job_environment().value_or_throw().local_rank % visible_devices();
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    {
      const auto of_cuda = CudaDevice::make(device, stream).value_or_throw();
      auto made = make_device_communicator(copy_of(host), of_cuda,
                                           {.path = path_under_test(),
                                            .timeout = std::chrono::seconds(20),
                                            .logger = make_logger("gpu")});
      body(*on_device(std::move(made).value_or_throw(), of_cuda));
    }
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  });
}

std::vector<int> contract_worlds() {
  std::vector<int> worlds{1, 2, 3};
  if (path_under_test() != DevicePathKind::kNccl) return worlds;
  worlds.resize(static_cast<std::size_t>(std::clamp(visible_devices(), 1, 3)));  // a GPU for each
  return worlds;
}

std::vector<Algorithm> contract_algorithms() {
  return {Algorithm::kAuto};
}

std::uint64_t contract_seed() {
  return run_seed();
}

}  // namespace dlaunch::testing
