// LossScaler: scales the loss of steps on a device so that gradients fit into f16, and has steps
// skipped whose gradients do not (nn/core/loss_scaling.h). All it decides is decided on the device,
// for which the host does not wait, and on all ranks alike.
//
//   scaler.prepare(samples, micro_batches);
//   gradient = scaler.begin_step();
//   backward of every micro-batch's loss, a sum over samples, with that gradient
//   sum gradients over the ranks
//   scaler.unscale(...);  // all that this rank updates
//   scaler.decide();
//   update parameters, unless *scaler.skip() is not 0
//
// Times the scale, gradients are those of the mean over a rank's micro-batch, whatever the number
// of ranks and micro-batches: as large as torch.amp.GradScaler's. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "nn/checkpoint/named_tensors.h"
#include "nn/core/loss_scaling.h"
#include "nn/core/tensor.h"
#include "runtime/comm/communicator.h"
#include "trainers/config/config.h"

namespace dlaunch {

class LossScaler {
 public:
  /// `sharded`: no rank sees all gradients. Both must outlive it.
  LossScaler(nn::Backend& backend, Communicator& world, const LossScaling& options, bool sharded);

  /// Before a step, whose totals these are: of all ranks, and of each of them.
  void prepare(double samples, std::size_t micro_batches);

  // Kernels and a collective, so that they can be recorded (nn::Backend::record):
  /// For nn::BackwardOptions::gradient, in every micro-batch.
  nn::Tensor begin_step();
  /// Makes means of `count` sums of gradients, and looks at them.
  void unscale(std::int64_t count, float* gradients);
  /// Ends the step: moves the scale. Collective if sharded. Throws StatusError.
  void decide();

  /// The word for nn::Optimizer::skip_when().
  nn::Tensor skip() const { return not_finite_; }
  /// For checkpoints, the same on all ranks; shares memory.
  std::vector<nn::NamedTensor> state() const;
  /// Waits for the device.
  nn::LossScaleState read() const;

 private:
  nn::LossScaleState* device_state() const;
  const nn::LossScaleStep* device_step() const;

  nn::Backend& backend_;
  Communicator& world_;
  nn::LossScaleRule rule_;
  bool sharded_;
  nn::Tensor state_;          // [3]: a LossScaleState
  nn::Tensor step_;           // [2]: a LossScaleStep
  nn::Tensor loss_gradient_;  // []
  nn::Tensor not_finite_;     // [1]: 1 if a gradient of the step is not finite, else 0
};

}  // namespace dlaunch
