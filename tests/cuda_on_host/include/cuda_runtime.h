// In place of CUDA's header of this name: what kernels are written in, as plain C++. A launch runs
// the kernel for one thread after another; see tests/cuda_on_host/grid.h.
#pragma once

#include <math.h>  // NOLINT(modernize-deprecated-headers): kernels call expf(), not std::exp()

#include <bit>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "cuda_runtime_api.h"
#include "tests/cuda_on_host/grid.h"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
// A block runs at a time. Names of such variables are how shared_memory.cc finds them.
#define __shared__ static

using dim3 = dlaunch::cuda_on_host::Dimensions;

inline const dim3& gridDim = dlaunch::cuda_on_host::current.grid;
inline const dim3& blockDim = dlaunch::cuda_on_host::current.block;
inline const dim3& blockIdx = dlaunch::cuda_on_host::current.block_index;
inline const dim3& threadIdx = dlaunch::cuda_on_host::current.thread_index;

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  dlaunch::cuda_on_host::wait_for_block({file, line});
}

/// By way of the reciprocal, which is 0 where it would not be a normal number.
inline float __fdividef(float x, float y) {
  constexpr float kMostNormal = 0x1p126F;
  return x * (fabsf(y) > kMostNormal ? 0.0F : 1.0F / y);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  word = dlaunch::cuda_on_host::exchange_in_warp(mask, word, distance, {file, line});
  std::memcpy(&value, &word, sizeof value);
  return value;
}

struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return dlaunch::cuda_on_host::launch(
      config->gridDim, config->blockDim, config->stream,
      [kernel, all = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
        std::apply(kernel, all);
      });
}

// NOLINTEND(readability-identifier-naming)
