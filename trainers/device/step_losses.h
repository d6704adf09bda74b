// StepLosses: the losses of steps on a device that the host does not wait for: each step's sum over
// its micro-batches stays on the device until somebody wants to know, together with those of the
// steps before it. One thread.
#pragma once

#include <cstddef>
#include <vector>

#include "nn/core/tensor.h"
#include "runtime/comm/communicator.h"

namespace dlaunch {

class StepLosses {
 public:
  /// Both must outlive it.
  StepLosses(nn::Backend& backend, Communicator& world);

  // Kernels only, so that they can be recorded (nn::Backend::record):
  void begin_step();
  /// Of a micro-batch of this rank, one element.
  void add(const nn::Tensor& loss);

  /// The step is over.
  void end_step();
  /// Whether take() must be called before another step begins.
  bool is_full() const { return count_ == kKept; }
  /// Collective: the losses of the steps since the last call, each summed over all ranks, in their
  /// order. Waits for the device. Throws StatusError.
  std::vector<double> take();

 private:
  static constexpr std::size_t kKept = 16;

  Communicator& world_;
  nn::Tensor step_;  // [1], of the step that is going on
  nn::Tensor kept_;  // [kKept]
  std::size_t count_ = 0;
};

}  // namespace dlaunch
