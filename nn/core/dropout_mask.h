// What a dropout kernel needs to know of the mask, on any device: element i is dropped if word i of
// a random sequence is below the threshold, else scaled.
#pragma once

#include <algorithm>
#include <cstdint>

#include "nn/core/random.h"

namespace dlaunch::nn {

struct DropoutMask {
  std::uint64_t seed;
  std::uint64_t stream;
  std::uint64_t first_block;  // of four words: that of elements 0 ... 3
  std::uint32_t threshold;
  float scale;
};

/// `random.position` is a multiple of four.
constexpr DropoutMask dropout_mask(double probability, const RandomState& random) {
  return {.seed = random.seed,
          .stream = random.stream,
          .first_block = random.position / 4,
          .threshold = static_cast<std::uint32_t>(std::min(probability * 0x1p32, 0x1p32 - 1)),
          .scale = static_cast<float>(1.0 / (1.0 - probability))};
}

}  // namespace dlaunch::nn
