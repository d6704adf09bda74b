// NormKernels: the part of a Backend that batch normalisation runs on.
#pragma once

namespace dlaunch::nn {

class NormKernels {
 public:
  virtual ~NormKernels() = default;
};

}  // namespace dlaunch::nn
