// OptimizerKernels on CUDA: one launch for all parameters that are alike, a thread for each four.
#include <cmath>

#include "nn/core/optimizer_formulas.h"
#include "nn/cuda/kernel_groups.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {
namespace {

enum class Momentum { kNone, kPlain, kNesterov };

__device__ bool is_set(const float* skip_or_null) {
  return skip_or_null != nullptr && *skip_or_null != 0;
}

template <int kWidth, Momentum kMomentum>
__global__ void sgd_all(std::int64_t packs, const SgdFactors* factors, const float* skip_or_null,
                        const float* gradients, float* velocities, float* parameters) {
  if (is_set(skip_or_null)) return;
  const SgdFactors f = *factors;
  for (std::int64_t i = global_thread(); i < packs; i += all_threads()) {
    float g[kWidth];
    float p[kWidth];
    float v[kWidth] = {};
    load_pack(gradients + i * kWidth, g);
    load_pack(parameters + i * kWidth, p);
    if constexpr (kMomentum != Momentum::kNone) load_pack(velocities + i * kWidth, v);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if constexpr (kMomentum == Momentum::kNone) {
        p[k] = sgd_plain(f, g[k], p[k]);
      } else {
        const float d = g[k] + f.decay * p[k];
        v[k] = sgd_velocity(f, d, v[k]);
        p[k] -= f.rate * (kMomentum == Momentum::kNesterov ? d + f.momentum * v[k] : v[k]);
      }
    }
    if constexpr (kMomentum != Momentum::kNone) store_pack(velocities + i * kWidth, v);
    store_pack(parameters + i * kWidth, p);
  }
}

template <int kWidth>
__global__ void adam_all(std::int64_t packs, const AdamFactors* factors, const float* skip_or_null,
                         const float* gradients, float* means, float* squares, float* parameters) {
  if (is_set(skip_or_null)) return;
  const AdamFactors f = *factors;
  for (std::int64_t i = global_thread(); i < packs; i += all_threads()) {
    float g[kWidth];
    float m[kWidth];
    float s[kWidth];
    float p[kWidth];
    load_pack(gradients + i * kWidth, g);
    load_pack(means + i * kWidth, m);
    load_pack(squares + i * kWidth, s);
    load_pack(parameters + i * kWidth, p);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const float kept = f.keep * p[k];
      adam_moments(f, g[k] + f.decay * kept, m[k], s[k]);
      p[k] = adam_parameter(f, kept, m[k], sqrtf(s[k]));
    }
    store_pack(means + i * kWidth, m);
    store_pack(squares + i * kWidth, s);
    store_pack(parameters + i * kWidth, p);
  }
}

// The sum of the values of a block's threads, in the first of them; always in the same order.
__device__ double sum_over_block(double value) {
  __shared__ double shared[kThreads];
  shared[threadIdx.x] = value;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
  }
  return shared[0];
}

__global__ void sum_squares(std::int64_t count, const float* values, double* sums) {
  double sum = 0;
  for (std::int64_t i = global_thread(); i < count; i += all_threads()) {
    const auto value = static_cast<double>(values[i]);
    sum += value * value;
  }
  sum = sum_over_block(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <typename Write>
__global__ void sum_blocks(unsigned blocks, const double* sums, Write write) {
  double sum = 0;
  for (unsigned i = threadIdx.x; i < blocks; i += kThreads) sum += sums[i];
  sum = sum_over_block(sum);
  if (threadIdx.x == 0) write(sum);
}

__global__ void clip_all(std::int64_t count, const double* squares, double max_norm,
                         float* values) {
  const float factor = clip_factor(sqrt(*squares), max_norm);
  if (factor == 1.0F) return;
  for (std::int64_t i = global_thread(); i < count; i += all_threads()) values[i] *= factor;
}

struct AddTotal {
  double* to;
  __device__ void operator()(double sum) const { *to += sum; }
};
struct StoreTotal {
  double* to;
  __device__ void operator()(double sum) const { *to = sum; }
};
struct InverseNorm {
  double eps;
  float* to;
  __device__ void operator()(double squares) const {
    *to = squares == 0 ? 0.0F : static_cast<float>(1 / (sqrt(squares) + eps));
  }
};

// What fits into a kernel's arguments.
constexpr std::size_t kMostAverages = 128;
constexpr unsigned kBlocksPerAverage = 64;
struct AverageList {
  int count;
  AveragedValues averages[kMostAverages];
};
static_assert(sizeof(AverageList) <= 4000);

// A row of blocks to each tensor.
__global__ void move_all(AverageList list, float kept) {
  const AveragedValues& one = list.averages[blockIdx.y];
  for (std::int64_t i = global_thread(); i < one.count; i += all_threads())
    one.average[i] = moved_average(kept, one.average[i], one.values[i]);
}

constexpr int kWidth = kPackBytes / static_cast<int>(sizeof(float));

class CudaOptimizerKernels final : public OptimizerKernels {
 public:
  CudaOptimizerKernels(Device& device, Staging& staging) : device_(device), staging_(staging) {}

  void sgd_step(std::int64_t count, const SgdFactors* factors, const float* skip_or_null,
                bool nesterov, const float* gradients, float* velocities,
                float* parameters) override {
    in_packs(count, aligned(gradients, velocities, parameters),
             [&]<int kSize>(std::int64_t begin, std::int64_t packs) {
               const float* g = gradients + begin;
               float* v = velocities == nullptr ? nullptr : velocities + begin;
               float* p = parameters + begin;
               auto* kernel = sgd_all<kSize, Momentum::kPlain>;
               if (velocities == nullptr) {
                 kernel = sgd_all<kSize, Momentum::kNone>;
               } else if (nesterov) {
                 kernel = sgd_all<kSize, Momentum::kNesterov>;
               }
               launch(device_, "sgd", kernel, blocks_for(device_, packs), kThreads, packs, factors,
                      skip_or_null, g, v, p);
             });
  }

  void adam_step(std::int64_t count, const AdamFactors* factors, const float* skip_or_null,
                 const float* gradients, float* means, float* squares, float* parameters) override {
    in_packs(count, aligned(gradients, means, squares, parameters),
             [&]<int kSize>(std::int64_t begin, std::int64_t packs) {
               launch(device_, "adam", adam_all<kSize>, blocks_for(device_, packs), kThreads, packs,
                      factors, skip_or_null, gradients + begin, means + begin, squares + begin,
                      parameters + begin);
             });
  }

  void restore(std::int64_t count, const float* skip, const float* saved, float* values) override {
    cuda::restore(device_, count, skip, saved, values);
  }
  void begin_scaled_step(const LossScaleState* state, const LossScaleStep* step, float* gradient,
                         float* not_finite) override {
    cuda::begin_scaled_step(device_, state, step, gradient, not_finite);
  }
  void unscale(std::int64_t count, const LossScaleState* state, const LossScaleStep* step,
               float* gradients, float* not_finite) override {
    cuda::unscale(device_, count, state, step, gradients, not_finite);
  }
  void move_loss_scale(const LossScaleRule& rule, const float* not_finite,
                       LossScaleState* state) override {
    cuda::move_loss_scale(device_, rule, not_finite, state);
  }

  void move_averages(std::span<const AveragedValues> averages, double decay) override {
    while (!averages.empty()) {
      AverageList list{};
      list.count = static_cast<int>(std::min<std::size_t>(averages.size(), kMostAverages));
      std::copy_n(averages.begin(), list.count, list.averages);
      averages = averages.subspan(static_cast<std::size_t>(list.count));
      const dim3 blocks(kBlocksPerAverage, static_cast<unsigned>(list.count));
      launch(device_, "averages", move_all, blocks, kThreads, list, static_cast<float>(decay));
    }
  }

  void inverse_norm(std::int64_t count, const float* values, double eps, float* result) override {
    sum_squares_of(count, values, InverseNorm{eps, result});
  }

  void add_squares(std::int64_t count, const float* values, double* sum) override {
    sum_squares_of(count, values, AddTotal{sum});
  }
  void clip_norm(std::int64_t count, const double* squares, double max_norm,
                 float* values) override {
    launch(device_, "clip", clip_all, blocks_for(device_, count), kThreads, count, squares,
           max_norm, values);
  }

  double sum_of_squares(std::int64_t count, const float* values) override {
    const ScratchMemory scratch(device_.memory(), sizeof(double));
    auto* const sum = static_cast<double*>(scratch.get());
    sum_squares_of(count, values, StoreTotal{sum});
    double total = 0;
    staging_.to_host(&total, sum, sizeof total);
    return total;
  }

 private:
  /// Calls write(sum of the squares) on the device.
  template <typename Write>
  void sum_squares_of(std::int64_t count, const float* values, const Write& write) {
    // By the count alone, so that the sum does not depend on the device.
    const auto blocks = static_cast<unsigned>(
        std::clamp<std::int64_t>(divide_up(count, std::int64_t{16} * kThreads), 1, 1024));
    const ScratchMemory scratch(device_.memory(), blocks * sizeof(double));
    auto* const sums = static_cast<double*>(scratch.get());
    launch(device_, "sum of squares", sum_squares, blocks, kThreads, count, values, sums);
    launch(device_, "sum of squares", sum_blocks<Write>, 1, kThreads, blocks, sums, write);
  }

  // Calls function.operator()<elements at once>(first element, packs) for what can be read in packs
  // and for what is left over.
  template <typename Function>
  static void in_packs(std::int64_t count, bool is_aligned, const Function& function) {
    const std::int64_t packs = is_aligned ? count / kWidth : 0;
    if (packs > 0) function.template operator()<kWidth>(0, packs);
    const std::int64_t begin = packs * kWidth;
    if (begin < count) function.template operator()<1>(begin, count - begin);
  }

  Device& device_;
  Staging& staging_;
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_optimizer_kernels(Device& device, Staging& staging) {
  return std::make_unique<CudaOptimizerKernels>(device, staging);
}

}  // namespace dlaunch::nn::cuda
