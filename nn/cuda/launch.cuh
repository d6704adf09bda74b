// What kernels have in common: how they are launched, activations of any type as floats, packs
// of elements that are loaded at once, and the size of grids.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "nn/core/backend.h"
#include "nn/cuda/check.h"
#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

constexpr int kThreads = 256;  // of a block
constexpr int kPackBytes = 16;

/// Starts a kernel on the device's stream. Throws Error, about `name`, if that cannot be.
template <typename... Parameters, typename... Arguments>
void launch(const Device& device, const char* name, void (*kernel)(Parameters...), dim3 grid,
            dim3 block, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = device.stream();
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}

__device__ inline float load(float value) {
  return value;
}
__device__ inline float load(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ inline float load(__half value) {
  return __half2float(value);
}
__device__ inline void store(float& to, float value) {
  to = value;
}
__device__ inline void store(__nv_bfloat16& to, float value) {
  to = __float2bfloat16_rn(value);
}
__device__ inline void store(__half& to, float value) {
  to = __float2half_rn(value);
}

template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};

template <int kWidth, typename T>
__device__ inline Pack<T, kWidth> read_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}
template <int kWidth, typename T>
__device__ inline void to_floats(const Pack<T, kWidth>& pack, float (&to)[kWidth]) {
#pragma unroll
  for (int k = 0; k < kWidth; ++k) to[k] = load(pack.values[k]);
}
template <int kWidth, typename T>
__device__ inline void load_pack(const T* from, float (&to)[kWidth]) {
  to_floats(read_pack<kWidth>(from), to);
}

template <int kWidth, typename T>
__device__ inline void store_pack(T* to, const float (&from)[kWidth]) {
  Pack<T, kWidth> pack;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) store(pack.values[k], from[k]);
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

/// Whether packs of 16 bytes may be read at all of these; null is.
template <typename... T>
bool aligned(const T*... memory) {
  return ((reinterpret_cast<std::uintptr_t>(memory) % kPackBytes == 0) && ...);
}

/// Calls function.operator()<T>() with the element type of activations.
template <typename Function>
void visit_activation(DType dtype, const Function& function) {
  if (dtype == DType::kBF16) {
    function.template operator()<__nv_bfloat16>();
  } else if (dtype == DType::kF16) {
    function.template operator()<__half>();
  } else {
    function.template operator()<float>();
  }
}

constexpr std::int64_t divide_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

/// Blocks for `items` in loops that go through the whole grid: enough to fill the device, few
/// enough that each has something to do. At least one.
inline unsigned blocks_for(const Device& device, std::int64_t items) {
  const std::int64_t most = std::int64_t{8} * device.multiprocessors();
  return static_cast<unsigned>(std::clamp<std::int64_t>(divide_up(items, kThreads), 1, most));
}

__device__ inline std::int64_t global_thread() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t all_threads() {
  return std::int64_t{gridDim.x} * blockDim.x;
}

}  // namespace dlaunch::nn::cuda
