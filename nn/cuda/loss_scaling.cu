// Loss scaling: numbers of a step that only the device knows, and gradients made means again.
#include "nn/core/loss_scaling.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {
namespace {

__global__ void begin_one(const LossScaleState* state, const LossScaleStep* step, float* gradient,
                          float* not_finite) {
  *gradient = scaled_loss_gradient(*state, *step);
  *not_finite = 0;
}

// All threads that write to *not_finite write the same.
__global__ void unscale_all(std::int64_t count, const LossScaleState* state,
                            const LossScaleStep* step, float* gradients, float* not_finite) {
  const float factor = unscaling_factor(*state, *step);
  bool finite = true;
  for_packs<pack_of<float>()>(count, aligned(gradients), [&]<int kWidth>(std::int64_t i) {
    float g[kWidth];
    load_pack(gradients + i, g);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      g[k] *= factor;
      finite = finite && is_finite(g[k]);
    }
    store_pack(gradients + i, g);
  });
  if (!finite) *not_finite = 1;
}

__global__ void move_one(LossScaleRule rule, const float* not_finite, LossScaleState* state) {
  *state = next_loss_scale(rule, *not_finite == 0, *state);
}

}  // namespace

void begin_scaled_step(Device& device, const LossScaleState* state, const LossScaleStep* step,
                       float* gradient, float* not_finite) {
  launch(device, "loss scale", begin_one, 1, 1, state, step, gradient, not_finite);
}

void unscale(Device& device, std::int64_t count, const LossScaleState* state,
             const LossScaleStep* step, float* gradients, float* not_finite) {
  if (count == 0) return;
  launch(device, "unscale", unscale_all, blocks_for(device, divide_up(count, pack_of<float>())),
         kThreads, count, state, step, gradients, not_finite);
}

void move_loss_scale(Device& device, const LossScaleRule& rule, const float* not_finite,
                     LossScaleState* state) {
  launch(device, "loss scale", move_one, 1, 1, rule, not_finite, state);
}

}  // namespace dlaunch::nn::cuda
