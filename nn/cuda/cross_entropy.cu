// With a row's maximum taken out, log softmax_k = z_k - m - log sum exp(z - m) cannot overflow. A
// warp to each row; the rows' losses are added up by one block, always in the same order.
#include <cmath>

#include "nn/cuda/kernels.h"
#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kRowsPerBlock = kThreads / kWarp;
constexpr unsigned kAllLanes = 0xffffffffU;

template <typename T, typename Combine>
__device__ T over_warp(T value, Combine combine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

struct Plus {
  __device__ double operator()(double a, double b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

__global__ void rows_of_cross_entropy(std::int64_t n, std::int64_t classes, const float* logits,
                                      const std::int32_t* labels, double on_label, double on_each,
                                      double* losses, float* gradient, int* fault) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= n) return;  // the whole warp
  const std::int64_t lane = threadIdx.x % kWarp;
  const float* const z = logits + row * classes;
  const std::int64_t label = labels[row];
  if (label < 0 || label >= classes) {
    if (lane == 0) *fault = kLabelOutOfRange;
    return;  // the whole warp; the results are not used
  }
  float largest = -INFINITY;
  for (std::int64_t k = lane; k < classes; k += kWarp) largest = fmaxf(largest, z[k]);
  largest = over_warp(largest, Larger{});
  double sum = 0;
  double shifted_sum = 0;
  for (std::int64_t k = lane; k < classes; k += kWarp) {
    sum += static_cast<double>(expf(z[k] - largest));
    shifted_sum += static_cast<double>(z[k]) - static_cast<double>(largest);
  }
  sum = over_warp(sum, Plus{});
  shifted_sum = over_warp(shifted_sum, Plus{});
  if (lane == 0) {
    const double of_label = static_cast<double>(z[label]) - static_cast<double>(largest);
    const double of_each = on_each != 0 ? on_each * shifted_sum : 0.0;  // the sum may be infinite
    losses[row] = log(sum) - on_label * of_label - of_each;
  }
  if (gradient == nullptr) return;
  float* const g = gradient + row * classes;
  for (std::int64_t k = lane; k < classes; k += kWarp) {
    const double probability = static_cast<double>(expf(z[k] - largest)) / sum;
    g[k] = static_cast<float>(probability - on_each - (k == label ? on_label : 0.0));
  }
}

__global__ void add_losses(std::int64_t n, const double* losses, float* loss) {
  __shared__ double shared[kThreads];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) sum += losses[i];
  shared[threadIdx.x] = sum;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss = static_cast<float>(shared[0]);
}

}  // namespace

void cross_entropy(Device& device, std::int64_t n, std::int64_t classes, const float* logits,
                   const std::int32_t* labels, float smoothing, float* loss, float* gradient) {
  const double on_label = 1.0 - static_cast<double>(smoothing);
  const double on_each = static_cast<double>(smoothing) / static_cast<double>(classes);
  const ScratchMemory losses(device.memory(), static_cast<std::size_t>(n) * sizeof(double));
  auto* const of_rows = static_cast<double*>(losses.get());
  if (n > 0)
    launch(device, "cross_entropy", rows_of_cross_entropy,
           static_cast<unsigned>(divide_up(n, kRowsPerBlock)), kThreads, n, classes, logits, labels,
           on_label, on_each, of_rows, gradient, device.fault());
  launch(device, "cross_entropy", add_losses, 1, kThreads, n, of_rows, loss);
}

}  // namespace dlaunch::nn::cuda
