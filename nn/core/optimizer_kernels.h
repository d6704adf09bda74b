// OptimizerKernels: the part of a Backend that updates parameters. The rules of backend.h hold.
#pragma once

#include <cstdint>

namespace dlaunch::nn {

struct SgdArguments {
  double learning_rate = 0;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

class OptimizerKernels {
 public:
  virtual ~OptimizerKernels() = default;

  /// One step of stochastic gradient descent as PyTorch defines it, for `count` parameters p with
  /// gradients g and velocities v (zeros before the first step; null without momentum):
  ///   d = g + weight_decay p;  v = momentum v + d;  d = nesterov ? d + momentum v : v
  ///   p = p - learning_rate d
  virtual void sgd_step(std::int64_t count, const SgdArguments& arguments, const float* gradients,
                        float* velocities, float* parameters) = 0;

  /// The sum of the squares, in double, as a host value: waits for the device.
  virtual double sum_of_squares(std::int64_t count, const float* values) = 0;
};

}  // namespace dlaunch::nn
