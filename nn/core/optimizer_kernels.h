// OptimizerKernels: the part of a Backend that updates parameters.
#pragma once

namespace dlaunch::nn {

class OptimizerKernels {
 public:
  virtual ~OptimizerKernels() = default;
};

}  // namespace dlaunch::nn
