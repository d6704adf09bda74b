// That kernels on the host do what they do on a device, and that what is undefined there shows.
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda_runtime.h"

namespace dlaunch::nn::cuda {  // in which shared variables are found
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr unsigned kWarp = 32;
constexpr unsigned kAll = 0xffffffff;

__global__ void write_positions(unsigned* counts) {
  const unsigned row = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned column = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  ++counts[row * blockDim.x * blockDim.y * blockDim.z + column];
}

// Without the second barrier, or the first, a thread reads what is not there.
__global__ void rotate(int rounds, bool meets_before, bool meets_after, float* values) {
  __shared__ float shared[kWarp * 3];
  for (int round = 0; round < rounds; ++round) {
    shared[threadIdx.x] = values[threadIdx.x];
    if (meets_before) __syncthreads();
    values[threadIdx.x] = shared[(threadIdx.x + 1) % blockDim.x];
    if (meets_after) __syncthreads();
  }
}

__global__ void read_uninitialised(float* value) {
  __shared__ float shared[2];
  *value = shared[1];
  __syncthreads();
  shared[1] = 1;
}

__global__ void meet_apart() {
  if (threadIdx.x == 5) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void meet_without_the_first() {
  if (threadIdx.x > 0) __syncthreads();
}

__global__ void add_over_warp(unsigned lanes, unsigned mask, double* sums) {
  if (threadIdx.x >= lanes) return;
  double sum = threadIdx.x;
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(mask, sum, distance);
  sums[threadIdx.x] = sum;
}

// What a kernel did that is undefined; empty if nothing.
template <typename... Parameters, typename... Arguments>
std::string fault_of(void (*kernel)(Parameters...), dim3 grid, dim3 block, Arguments... arguments) {
  cudaLaunchConfig_t config;
  config.gridDim = grid;
  config.blockDim = block;
  if (const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
      status != cudaSuccess)
    return cudaGetErrorName(status);
  const cudaError_t status = cudaStreamSynchronize(nullptr);
  return status == cudaSuccess ? "" : cudaGetErrorString(status);
}

// Whether `rotate` does what it should, in every one of several runs.
bool rotates(bool meets_before, bool meets_after) {
  constexpr int kRounds = 7;
  constexpr int kRuns = 20;
  bool right = true;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<float> values(kWarp * 3);
    std::iota(values.begin(), values.end(), 0.0F);
    std::vector<float> expected = values;
    std::rotate(expected.begin(), expected.begin() + kRounds, expected.end());
    EXPECT_EQ(fault_of(rotate, 1, kWarp * 3, kRounds, meets_before, meets_after, values.data()),
              "");
    right = right && values == expected;
  }
  return right;
}

TEST(KernelsOnHost, RunOnceForEveryThreadOfEveryBlock) {
  std::vector<unsigned> counts(std::size_t{5} * 3 * 2 * 7 * 2 * 3);
  EXPECT_EQ(fault_of(write_positions, dim3(5, 3, 2), dim3(7, 2, 3), counts.data()), "");
  EXPECT_EQ(counts, std::vector<unsigned>(counts.size(), 1));
}

TEST(KernelsOnHost, AreQueuedUntilSomebodyWaits) {
  unsigned count = 0;
  cudaLaunchConfig_t config;
  ASSERT_EQ(cudaLaunchKernelEx(&config, write_positions, &count), cudaSuccess);
  EXPECT_EQ(count, 0U);
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(count, 1U);
}

TEST(KernelsOnHost, MeetAtBarriersAndFailWithoutThem) {
  EXPECT_TRUE(rotates(true, true));
  EXPECT_FALSE(rotates(false, true));
  EXPECT_FALSE(rotates(true, false));
}

TEST(KernelsOnHost, FindSharedMemoryUninitialisedInEveryBlock) {
  for (int launch = 0; launch < 3; ++launch) {
    float value = 0;
    EXPECT_EQ(fault_of(read_uninitialised, 3, 4, &value), "");
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(KernelsOnHost, NameAThreadThatWaitsAtAnotherBarrier) {
  EXPECT_THAT(fault_of(meet_apart, dim3(1, 2), dim3(7, 3)),
              AllOf(HasSubstr("kernels_on_host_test.cc"),
                    HasSubstr("waits at another barrier than"), HasSubstr("seed")));
}

// Threads that have ended are not waited for.
TEST(KernelsOnHost, WaitForThreadsThatHaveNotEnded) {
  EXPECT_EQ(fault_of(meet_without_the_first, 3, 40), "");
}

TEST(KernelsOnHost, ExchangeValuesWithinWarps) {
  std::vector<double> sums(2 * kWarp);
  EXPECT_EQ(fault_of(add_over_warp, 3, 2 * kWarp, 2 * kWarp, kAll, sums.data()), "");
  for (std::size_t i = 0; i < sums.size(); ++i)
    EXPECT_EQ(sums[i], i < kWarp ? 31.0 * 16 : 31.0 * 16 + 32 * 32) << i;
}

TEST(KernelsOnHost, NameALaneThatIsMissingFromAnExchange) {
  std::vector<double> sums(kWarp);
  EXPECT_THAT(fault_of(add_over_warp, 1, kWarp, 31U, kAll, sums.data()),
              HasSubstr("exchanges values in its warp without thread (31, 0, 0), which has ended"));
  EXPECT_THAT(fault_of(add_over_warp, 1, 20, 20U, kAll, sums.data()),
              HasSubstr("which is not there"));
  EXPECT_THAT(fault_of(add_over_warp, 1, kWarp, 16U, 0xffffU, sums.data()),
              HasSubstr("wants a value that its mask does not name"));
}

TEST(KernelsOnHost, RefuseSizesThatNoDeviceHas) {
  for (const dim3 block : {dim3(1025), dim3(32, 33), dim3(0), dim3(1, 1, 65)})
    EXPECT_EQ(fault_of(write_positions, 1, block, static_cast<unsigned*>(nullptr)),
              "cudaErrorInvalidConfiguration");
  for (const dim3 grid : {dim3(0), dim3(1, 65536), dim3(1, 1, 65536), dim3(0x80000000)})
    EXPECT_EQ(fault_of(write_positions, grid, 1, static_cast<unsigned*>(nullptr)),
              "cudaErrorInvalidConfiguration");
}

}  // namespace
}  // namespace dlaunch::nn::cuda
