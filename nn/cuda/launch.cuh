// What kernels have in common: how they are launched, activations of any type as floats, packs
// of elements that are loaded at once, and the size of grids.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "nn/core/backend.h"
#include "nn/cuda/check.h"
#include "nn/cuda/device.h"

namespace dlaunch::nn::cuda {

constexpr int kThreads = 256;  // of a block
// Blocks of these that a multiprocessor has room for, if no thread has more than 32 registers.
constexpr int kBlocksAtOnce = 8;
constexpr int kPackBytes = 16;

/// Elements that are loaded at once of arrays of these types, if all are aligned for it.
template <typename... T>
constexpr int pack_of() {
  std::size_t largest = 1;
  ((largest = sizeof(T) > largest ? sizeof(T) : largest), ...);
  return kPackBytes / static_cast<int>(largest);
}

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
struct Elements {
  T values[kWidth];
};

/// So many elements that are read at once, in words as registers have them: compilers would take a
/// half out of its word as soon as it is there, and so wait for it, wherever it is used.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  static constexpr std::size_t kBytes = sizeof(T) * kWidth;
  using Word = std::conditional_t<kBytes % sizeof(std::uint32_t) == 0, std::uint32_t, T>;
  Word words[kBytes / sizeof(Word)];
};

template <int kWidth, typename T>
__device__ inline Pack<T, kWidth> read_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}
template <typename T, int kWidth>
__device__ inline void write_pack(T* to, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}
template <typename T, int kWidth>
__device__ inline Elements<T, kWidth> elements_of(const Pack<T, kWidth>& pack) {
  return std::bit_cast<Elements<T, kWidth>>(pack);
}

template <int kWidth, typename T>
__device__ inline void to_floats(const Pack<T, kWidth>& pack, float (&to)[kWidth]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && kWidth % 2 == 0) {
    // One instruction for each, where taking it out of the word would be another one.
#pragma unroll
    for (int k = 0; k < kWidth; k += 2) {
      to[k] = std::bit_cast<float>(pack.words[k / 2] << 16U);
      to[k + 1] = std::bit_cast<float>(pack.words[k / 2] & 0xffff0000U);
    }
  } else {
    const Elements<T, kWidth> elements = elements_of(pack);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to[k] = load(elements.values[k]);
  }
}
template <int kWidth, typename T>
__device__ inline void load_pack(const T* from, float (&to)[kWidth]) {
  to_floats(read_pack<kWidth>(from), to);
}

template <int kWidth, typename T>
__device__ inline void store_pack(T* to, const float (&from)[kWidth]) {
  Elements<T, kWidth> elements;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) store(elements.values[k], from[k]);
  write_pack(to, std::bit_cast<Pack<T, kWidth>>(elements));
}

/// Whether packs of 16 bytes may be read at all of these; null is.
template <typename... T>
__host__ __device__ bool aligned(const T*... memory) {
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

/// The word by which optimizers are told to leave things alone.
__device__ inline bool is_set(const float* skip_or_null) {
  return skip_or_null != nullptr && *skip_or_null != 0;
}

constexpr std::int64_t divide_up(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

/// Blocks for `items` in loops that go through the whole grid: enough to fill the device, few
/// enough that each has something to do. At least one.
inline unsigned blocks_for(const Device& device, std::int64_t items) {
  const std::int64_t most = std::int64_t{kBlocksAtOnce} * device.multiprocessors();
  return static_cast<unsigned>(std::clamp<std::int64_t>(divide_up(items, kThreads), 1, most));
}

__device__ inline std::int64_t global_thread() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t all_threads() {
  return std::int64_t{gridDim.x} * blockDim.x;
}

/// Calls function.operator()<elements at once>(first element) for what thread number `thread` of
/// `threads` does of the elements [begin, end): in packs of kWidth if that can be read, and for
/// what is left over one by one.
template <int kWidth, typename Function>
__device__ inline void for_packs(std::int64_t begin, std::int64_t end, std::int64_t thread,
                                 std::int64_t threads, bool is_aligned, const Function& function) {
  const std::int64_t packs = is_aligned ? (end - begin) / kWidth : 0;
  for (std::int64_t i = thread; i < packs; i += threads)
    function.template operator()<kWidth>(begin + i * kWidth);
  for (std::int64_t i = begin + packs * kWidth + thread; i < end; i += threads)
    function.template operator()<1>(i);
}
/// The same for what this thread of the grid does of `count` elements.
template <int kWidth, typename Function>
__device__ inline void for_packs(std::int64_t count, bool is_aligned, const Function& function) {
  for_packs<kWidth>(0, count, global_thread(), all_threads(), is_aligned, function);
}

}  // namespace dlaunch::nn::cuda
