// Ema: an exponential moving average of tensors, weights and running statistics alike (Polyak &
// Juditsky 1992). One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/checkpoint/named_tensors.h"

namespace dlaunch::nn {

class Ema {
 public:
  /// Follows `tensors` (f32), whose memory it shares; begins as a copy of them. Error unless decay
  /// is in [0, 1).
  Ema(std::vector<NamedTensor> tensors, double decay);

  /// average = average + (1 - decay) (tensor - average), as torch.lerp: to the last bit the
  /// same where the two are.
  void update();
  /// Starts anew from the tensors as they are.
  void reset();
  /// Exchanges the tensors' contents with the averages'. Twice changes nothing.
  void swap();

  /// The averages, under the tensors' names.
  const std::vector<NamedTensor>& averages() const { return averages_; }

 private:
  std::vector<NamedTensor> tensors_;
  std::vector<NamedTensor> averages_;
  double decay_;
};

}  // namespace dlaunch::nn
