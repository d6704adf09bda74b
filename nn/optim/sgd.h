// Stochastic gradient descent with momentum, as torch.optim.SGD defines it (without dampening).
#pragma once

#include <cstdint>
#include <vector>

#include "nn/checkpoint/named_tensors.h"
#include "nn/core/flat_parameters.h"

namespace dlaunch::nn {

/// Weight decay of each kind of parameter.
struct WeightDecay {
  double weight = 0;
  double bias = 0;
  double norm = 0;

  /// The same for everything, as torch's weight_decay.
  static WeightDecay uniform(double decay) { return {decay, decay, decay}; }
  /// Biases and normalisation parameters are left alone.
  static WeightDecay weights_only(double decay) { return {decay, 0, 0}; }
};

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;  // needs momentum
  WeightDecay weight_decay;
};

/// Shares the parameters' memory, owns the velocities. One thread at a time.
class Sgd {
 public:
  /// Error for negative options, a momentum of 1 or more, or Nesterov without momentum.
  Sgd(FlatParameters parameters, SgdOptions options);

  /// Updates every parameter from its gradient, which it leaves as it is:
  ///   d = g + weight_decay p;  v = momentum v + d;  d = nesterov ? d + momentum v : v
  ///   p = p - learning_rate d
  void step(double learning_rate);

  /// For a checkpoint: "velocity.NAME" of each parameter, sharing memory; none without momentum.
  std::vector<NamedTensor> state() const;

 private:
  /// Neighbours in the flat tensors that decay alike: one kernel call.
  struct Range {
    std::int64_t offset = 0;
    std::int64_t count = 0;
    double weight_decay = 0;
  };

  FlatParameters parameters_;
  SgdOptions options_;
  Tensor velocities_;
  std::vector<Range> ranges_;
};

/// Scales all gradients by max_norm / (norm + 1e-6) if their Euclidean norm is above max_norm, as
/// torch.nn.utils.clip_grad_norm_ does. Returns the norm before.
double clip_gradient_norm(FlatParameters& parameters, double max_norm);

}  // namespace dlaunch::nn
