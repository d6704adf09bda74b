// What a compressing exchange carries from step to step: needed to go on from a checkpoint with the
// same bits.
#pragma once

#include <cstdint>
#include <vector>

namespace dlaunch {

struct ExchangeMemory {
  std::vector<float> errors;   // beside the gradients: what this rank has left out
  std::vector<float> factors;  // the same on all ranks
  std::uint32_t random = 0;    // state of the random numbers, the same on all ranks

  bool empty() const { return factors.empty(); }
};

}  // namespace dlaunch
