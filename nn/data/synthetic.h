// A built-in data set for machines without data: every class has a smooth coloured pattern; an
// image is its class's pattern, shifted (around the edges), paler or stronger, under noise. It can
// be learned, but not at sight. A pure function of (seed, split, index), the same on every machine.
#pragma once

#include <memory>

#include "nn/data/cifar.h"  // Split
#include "nn/data/dataset.h"

namespace dlaunch::nn {

struct SyntheticOptions {
  std::uint64_t seed = 1;
  std::size_t classes = 10;
  std::size_t train_size = 10000;
  std::size_t test_size = 2000;
  ImageShape shape{32, 32, 3};
  std::uint8_t noise = 90;  // the most that noise changes a pixel by
};

std::unique_ptr<Dataset> make_synthetic(const SyntheticOptions& options, Split split);

}  // namespace dlaunch::nn
