#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "runtime/cuda/cuda_status.h"
#include "runtime/cuda/reduce_kernels.h"
#include "runtime/device/device.h"
#include "runtime/device/reduce_element.h"

namespace dlaunch {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kPackBytes = 16;
// Enough to keep the memory of any device busy; each block then goes on through the vector.
constexpr std::size_t kMostBlocks = 1024;

struct Operands {
  const void* memory[kMostOperands];
  int number;
};

// The device's own conversions of halves, which round to nearest even as those of half.h do.
template <typename Wide, typename T>
__device__ Wide load(T value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return __half2float(__ushort_as_half(value.bits));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return __bfloat162float(__ushort_as_bfloat16(value.bits));
  } else {
    return static_cast<Wide>(value);
  }
}
template <typename T, typename Wide>
__device__ void store(T& to, Wide value) {
  if constexpr (std::is_same_v<T, Float16>) {
    to.bits = __half_as_ushort(__float2half_rn(value));
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    to.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  } else {
    to = static_cast<T>(value);
  }
}

template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Elements {
  T values[kWidth];
};

// `kWidth` elements of the vector, from the element `kWidth * i` on.
template <ReduceOp kOp, typename T, int kWidth>
__device__ void reduce_pack(T* into, const Operands& operands, std::size_t i, int divisor) {
  using Wide = ReducedIn<kOp, T>;
  using Pack = Elements<T, kWidth>;
  Wide sums[kWidth];
  const Pack first = static_cast<const Pack*>(operands.memory[0])[i];
#pragma unroll
  for (int k = 0; k < kWidth; ++k) sums[k] = load<Wide>(first.values[k]);
#pragma unroll 4
  for (int r = 1; r < operands.number; ++r) {
    const Pack next = static_cast<const Pack*>(operands.memory[r])[i];
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      sums[k] = combine_elements<kOp>(sums[k], load<Wide>(next.values[k]));
    }
  }
  Pack result;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) store(result.values[k], finish_element(sums[k], divisor));
  reinterpret_cast<Pack*>(into)[i] = result;
}

// The first `packs` packs of 16 bytes, then single elements.
template <ReduceOp kOp, typename T>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(T* into, const Operands operands, std::size_t packs, std::size_t count,
                  int divisor) {
  constexpr int kWidth = static_cast<int>(kPackBytes / sizeof(T));
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t threads = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = thread; i < packs; i += threads) {
    reduce_pack<kOp, T, kWidth>(into, operands, i, divisor);
  }
  for (std::size_t i = packs * kWidth + thread; i < count; i += threads) {
    reduce_pack<kOp, T, 1>(into, operands, i, divisor);
  }
}

template <typename T>
using Kernel = void (*)(T*, Operands, std::size_t, std::size_t, int);

/// Null for other reductions, and for floating types.
template <typename T>
Kernel<T> bitwise_kernel_of(ReduceOp op) {
  if constexpr (std::is_integral_v<T>) {
    if (op == ReduceOp::kBand) return reduce_kernel<ReduceOp::kBand, T>;
    if (op == ReduceOp::kBor) return reduce_kernel<ReduceOp::kBor, T>;
    if (op == ReduceOp::kBxor) return reduce_kernel<ReduceOp::kBxor, T>;
  }
  return nullptr;
}

/// Null for a reduction that T does not have.
template <typename T>
Kernel<T> kernel_of(ReduceOp op) {
  // Floating averages are sums, divided at the end.
  constexpr ReduceOp kAdding = std::is_integral_v<T> ? ReduceOp::kAvg : ReduceOp::kSum;
  switch (op) {
    case ReduceOp::kSum:
      return reduce_kernel<ReduceOp::kSum, T>;
    case ReduceOp::kAvg:
      return reduce_kernel<kAdding, T>;
    case ReduceOp::kProd:
      return reduce_kernel<ReduceOp::kProd, T>;
    case ReduceOp::kMin:
      return reduce_kernel<ReduceOp::kMin, T>;
    case ReduceOp::kMax:
      return reduce_kernel<ReduceOp::kMax, T>;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      break;
  }
  return bitwise_kernel_of<T>(op);
}

template <typename T>
cudaError_t launch(Kernel<T> kernel, T* into, const Operands& operands, std::size_t packs,
                   std::size_t count, int divisor, cudaStream_t stream) {
  const std::size_t items = std::max(packs, count - packs * (kPackBytes / sizeof(T)));
  const std::size_t blocks =
      std::clamp<std::size_t>((items + kThreads - 1) / kThreads, 1, kMostBlocks);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, into, operands, packs, count, divisor);
}

bool aligned(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % kPackBytes == 0;
}

}  // namespace

Status queue_reduction(ReduceOp op, DType dtype, void* into, std::span<const void* const> operands,
                       std::size_t count, int divisor, cudaStream_t stream) {
  if (count == 0) return Status();
  if (operands.empty() || operands.size() > kMostOperands) {
    return Status(StatusCode::kInvalidArgument, "too many operands for one kernel");
  }
  Operands all{};
  all.number = static_cast<int>(operands.size());
  std::ranges::copy(operands, all.memory);
  const bool wide = aligned(into) && std::ranges::all_of(operands, aligned);
  const std::size_t packs = wide ? count * size_of(dtype) / kPackBytes : 0;
  if (op != ReduceOp::kAvg) divisor = 1;
  const cudaError_t launched = visit_dtype(dtype, [&]<typename T>() {
    const Kernel<T> kernel = kernel_of<T>(op);
    if (kernel == nullptr) return cudaErrorInvalidValue;
    return launch(kernel, static_cast<T*>(into), all, packs, count, divisor, stream);
  });
  return cuda_status(launched, "reduction kernel");
}

Status load_reduction_kernels() {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : reductions_of(dtype)) {
      const cudaError_t loaded = visit_dtype(dtype, [&]<typename T>() {
        cudaFuncAttributes attributes{};
        return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel_of<T>(op)));
      });
      DLAUNCH_RETURN_IF_ERROR(cuda_status(loaded, "loading the reduction kernels"));
    }
  }
  return Status();
}

}  // namespace dlaunch
