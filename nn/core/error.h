// nn::Error: what the nn library throws for wrong shapes and arguments.
#pragma once

#include <stdexcept>

namespace dlaunch::nn {

/// The text names the operation, what it got and what it wants:
///   "conv2d: input [32, 28, 28, 3] has 3 channels, weights [8, 3, 3, 4] want 4".
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace dlaunch::nn
