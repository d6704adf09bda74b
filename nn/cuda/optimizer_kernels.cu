// OptimizerKernels on CUDA: one launch for all ranges of parameters.
#include <cmath>

#include "nn/core/optimizer_formulas.h"
#include "nn/cuda/array_lists.cuh"
#include "nn/cuda/block_sums.cuh"
#include "nn/cuda/kernel_groups.h"
#include "nn/cuda/kernels.h"

namespace dlaunch::nn::cuda {
namespace {

enum class Momentum { kNone, kPlain, kNesterov };

template <Momentum kMomentum>
__global__ void sgd_all(const __grid_constant__ ArrayList<SgdRange> list,
                        const float* skip_or_null) {
  if (is_set(skip_or_null)) return;
  const Chunk chunk = chunk_of(list);
  const SgdRange& range = list.items[chunk.item];
  const SgdFactors f = *range.factors;
  const auto step = [&]<int kSize>(std::int64_t i) {
    float g[kSize];
    float p[kSize];
    [[maybe_unused]] float v[kSize] = {};
    load_pack(range.gradients + i, g);
    load_pack(range.parameters + i, p);
    if constexpr (kMomentum != Momentum::kNone) load_pack(range.velocities + i, v);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      if constexpr (kMomentum == Momentum::kNone) {
        p[k] = sgd_plain(f, g[k], p[k]);
      } else {
        const float d = g[k] + f.decay * p[k];
        v[k] = sgd_velocity(f, d, v[k]);
        p[k] -= f.rate * (kMomentum == Momentum::kNesterov ? d + f.momentum * v[k] : v[k]);
      }
    }
    if constexpr (kMomentum != Momentum::kNone) store_pack(range.velocities + i, v);
    store_pack(range.parameters + i, p);
  };
  for_packs<pack_of<float>()>(chunk, aligned(range.gradients, range.velocities, range.parameters),
                              step);
}

__global__ void adam_all(const __grid_constant__ ArrayList<AdamRange> list,
                         const float* skip_or_null) {
  if (is_set(skip_or_null)) return;
  const Chunk chunk = chunk_of(list);
  const AdamRange& range = list.items[chunk.item];
  const AdamFactors f = *range.factors;
  const auto step = [&]<int kSize>(std::int64_t i) {
    float g[kSize];
    float m[kSize];
    float s[kSize];
    float p[kSize];
    load_pack(range.gradients + i, g);
    load_pack(range.means + i, m);
    load_pack(range.squares + i, s);
    load_pack(range.parameters + i, p);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const float kept = f.keep * p[k];
      adam_moments(f, g[k] + f.decay * kept, m[k], s[k]);
      p[k] = adam_parameter(f, kept, m[k], sqrtf(s[k]));
    }
    store_pack(range.means + i, m);
    store_pack(range.squares + i, s);
    store_pack(range.parameters + i, p);
  };
  for_packs<pack_of<float>()>(
      chunk, aligned(range.gradients, range.means, range.squares, range.parameters), step);
}

__global__ void move_all(const __grid_constant__ ArrayList<AveragedValues> list, float weight) {
  const Chunk chunk = chunk_of(list);
  const AveragedValues& one = list.items[chunk.item];
  const auto move = [&]<int kSize>(std::int64_t i) {
    float x[kSize];
    float a[kSize];
    load_pack(one.values + i, x);
    load_pack(one.average + i, a);
#pragma unroll
    for (int k = 0; k < kSize; ++k) a[k] = moved_average(weight, a[k], x[k]);
    store_pack(one.average + i, a);
  };
  for_packs<pack_of<float>()>(chunk, aligned(one.values, one.average), move);
}

__global__ void sum_squares(std::int64_t count, const float* values, double* sums) {
  double sum[1] = {};
  for (std::int64_t i = global_thread(); i < count; i += all_threads()) {
    const auto value = static_cast<double>(values[i]);
    sum[0] += value * value;
  }
  sum_over_block(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum[0];
}

template <typename Write>
__global__ void sum_blocks(unsigned blocks, const double* sums, Write write) {
  double sum[1] = {};
  for (unsigned i = threadIdx.x; i < blocks; i += kThreads) sum[0] += sums[i];
  sum_over_block(sum);
  if (threadIdx.x == 0) write(sum[0]);
}

__global__ void clip_all(std::int64_t count, const double* squares, double max_norm,
                         float* values) {
  const float factor = clip_factor(sqrt(*squares), max_norm);
  if (factor == 1.0F) return;
  for_packs<pack_of<float>()>(count, aligned(values), [&]<int kSize>(std::int64_t i) {
    float own[kSize];
    load_pack(values + i, own);
#pragma unroll
    for (int k = 0; k < kSize; ++k) own[k] *= factor;
    store_pack(values + i, own);
  });
}

struct AddTotal {
  double* to;
  __device__ void operator()(double sum) const { *to += sum; }
};
struct StoreTotal {
  double* to;
  __device__ void operator()(double sum) const { *to = sum; }
};

class CudaOptimizerKernels final : public OptimizerKernels {
 public:
  CudaOptimizerKernels(Device& device, Staging& staging) : device_(device), staging_(staging) {}

  void sgd_step(std::span<const SgdRange> ranges, const float* skip_or_null,
                bool nesterov) override {
    for_lists(ranges, [&](const ArrayList<SgdRange>& list, unsigned blocks) {
      auto* kernel = sgd_all<Momentum::kPlain>;
      if (list.items[0].velocities == nullptr) {
        kernel = sgd_all<Momentum::kNone>;
      } else if (nesterov) {
        kernel = sgd_all<Momentum::kNesterov>;
      }
      launch(device_, "sgd", kernel, blocks, kThreads, list, skip_or_null);
    });
  }

  void adam_step(std::span<const AdamRange> ranges, const float* skip_or_null) override {
    for_lists(ranges, [&](const ArrayList<AdamRange>& list, unsigned blocks) {
      launch(device_, "adam", adam_all, blocks, kThreads, list, skip_or_null);
    });
  }

  void muon_directions(std::span<const MuonMatrix> matrices, const float* skip_or_null,
                       bool nesterov) override {
    cuda::muon_directions(device_, matrices, skip_or_null, nesterov);
  }
  void muon_step(std::span<const MuonMatrix> matrices, const float* skip_or_null) override {
    cuda::muon_step(device_, matrices, skip_or_null);
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
    for_lists(averages, [&](const ArrayList<AveragedValues>& list, unsigned blocks) {
      launch(device_, "averages", move_all, blocks, kThreads, list, average_weight(decay));
    });
  }

  void add_squares(std::int64_t count, const float* values, double* sum) override {
    sum_squares_of(count, values, AddTotal{sum});
  }
  void clip_norm(std::int64_t count, const double* squares, double max_norm,
                 float* values) override {
    if (count == 0) return;
    launch(device_, "clip", clip_all, blocks_for(device_, divide_up(count, pack_of<float>())),
           kThreads, count, squares, max_norm, values);
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

  Device& device_;
  Staging& staging_;
};

}  // namespace

std::unique_ptr<OptimizerKernels> make_optimizer_kernels(Device& device, Staging& staging) {
  return std::make_unique<CudaOptimizerKernels>(device, staging);
}

}  // namespace dlaunch::nn::cuda
