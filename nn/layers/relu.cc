#include "nn/layers/relu.h"

#include <utility>

namespace dlaunch::nn {

Tensor ReLU::forward(Tensor input) {
  return relu(std::move(input));
}

}  // namespace dlaunch::nn
