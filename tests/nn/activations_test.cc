// GELU, SiLU and CELU over all arguments: what kernels make of quick exponentials and quotients.
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/ops.h"
#include "tests/nn/batch_norm_reference.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

class Activations : public OpTest {
 protected:
  Tensor tensor(const std::vector<float>& values) {
    return Tensor::from<float>(*backend_, {static_cast<std::int64_t>(values.size())}, values);
  }
  static Tensor apply(NormActivation activation, const Tensor& x) {
    if (activation == NormActivation::kCelu) return celu(x, kReferenceAlpha);
    return activation == NormActivation::kGelu ? gelu(x) : silu(x);
  }

  const std::vector<NormActivation> all_{NormActivation::kGelu, NormActivation::kSilu,
                                         NormActivation::kCelu};
};

TEST_F(Activations, AreExactInF32ToAFewBitsAtEveryArgument) {
  std::vector<float> x;
  for (float z = -30; z < 30; z += 0.0037F) x.push_back(z);
  for (float z = 1e-38F; z < 1; z *= 1.7F) {
    x.push_back(z);
    x.push_back(-z);
  }
  for (const NormActivation activation : all_) {
    Tensor input = tensor(x);
    input.set_requires_grad(true);
    const Tensor y = apply(activation, input);
    backward(y, {.gradient = tensor(std::vector<float>(x.size(), 1.0F))});
    const auto values = y.host_values<float>();
    const auto slopes = input.grad().host_values<float>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto expected = activation_reference(activation, x[i]);
      // However small a value is near 0; far below it may end too early.
      const double smallest = x[i] > -1 ? 0 : 1e-6;
      ASSERT_NEAR(values[i], expected.value, smallest + 3e-6 * std::abs(expected.value)) << x[i];
      // SiLU's is 1 - sigmoid times x, so an ulp of the sigmoid counts x times.
      const double near_one = activation == NormActivation::kSilu ? 2.4e-7 * std::abs(x[i]) : 0;
      ASSERT_NEAR(slopes[i], expected.slope, 1e-6 + near_one + 3e-6 * std::abs(expected.slope))
          << x[i];
    }
  }
}

TEST_F(Activations, HandOnNotANumberAndEndAtTheirLimits) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  constexpr float kGreatest = std::numeric_limits<float>::max();
  for (const NormActivation activation : all_) {
    const auto y = apply(activation, tensor({NAN, kInfinite, kGreatest, 100, -100, -kGreatest}))
                       .host_values<float>();
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], kInfinite);
    EXPECT_EQ(y[2], kGreatest);
    EXPECT_EQ(y[3], 100);
    const float below = activation == NormActivation::kCelu ? -kReferenceAlpha : 0;
    EXPECT_NEAR(y[4], below, 1e-30F);
    EXPECT_NEAR(y[5], below, 1e-30F);
  }
}

TEST_F(Activations, SlopesHandOnNotANumberAndEndAtTheirLimits) {
  constexpr float kGreatest = std::numeric_limits<float>::max();
  for (const NormActivation activation : all_) {
    Tensor x = tensor({NAN, kGreatest, 100, -100, -kGreatest});
    x.set_requires_grad(true);
    backward(apply(activation, x), {.gradient = tensor(std::vector<float>(5, 1.0F))});
    const auto slopes = x.grad().host_values<float>();
    EXPECT_TRUE(std::isnan(slopes[0]));
    EXPECT_EQ(slopes[1], 1);
    EXPECT_EQ(slopes[2], 1);
    EXPECT_NEAR(slopes[3], 0, 1e-30F);
    EXPECT_NEAR(slopes[4], 0, 1e-30F);
  }
}

}  // namespace
}  // namespace dlaunch::nn
