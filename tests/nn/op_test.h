// A test of operations: a backend and fresh random inputs, whose seed is printed with a failure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/flat_parameters.h"
#include "runtime/base/half.h"
#include "tests/nn/reference.h"
#include "tests/nn/test_backend.h"

namespace dlaunch::nn {

class OpTest : public testing::Test {
 protected:
  void TearDown() override {
    if (HasFailure()) std::cerr << "seed " << seed_ << "\n";
  }

  reference::Array random_array(const Shape& shape) {
    return reference::random_array(shape, random_);
  }
  /// No two of which are near each other: a finite difference does not change the greatest one.
  reference::Array distinct_array(const Shape& shape) {
    reference::Array array(shape);
    std::iota(array.values.begin(), array.values.end(), 0.0);
    std::shuffle(array.values.begin(), array.values.end(), random_);
    for (double& value : array.values) value = 8 * value / static_cast<double>(shape.size()) - 4;
    return array;
  }
  /// Random values that are exact in bf16 and, there being no tiny ones, in f16.
  reference::Array random_bf16(const Shape& shape) {
    reference::Array array = random_array(shape);
    for (double& value : array.values) {
      value = static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value))));
      if (std::abs(value) < 0x1p-14) value = 0;
    }
    return array;
  }

  /// That activations may have on this backend.
  std::vector<DType> types() const {
    if (!backend_->computes_in(DType::kF16)) return {DType::kF32, DType::kBF16};
    return {DType::kF32, DType::kBF16, DType::kF16};
  }

  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  std::unique_ptr<Backend> backend_ = make_test_backend();
};

/// Whether every parameter has got a gradient that is not all zero.
inline void expect_gradients_everywhere(const FlatParameters& flat) {
  for (const FlatView& view : flat.views) {
    double squares = 0;
    for (const float g :
         Tensor::view_of(flat.gradients, view.offset, {view.count}).host_values<float>())
      squares += static_cast<double>(g) * static_cast<double>(g);
    EXPECT_GT(squares, 0) << view.name;
  }
}

}  // namespace dlaunch::nn
