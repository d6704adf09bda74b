// The formulas that kernels of every device share: what they say is checked here, on the host.
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/batch_statistics.h"
#include "nn/core/dropout_mask.h"
#include "nn/core/norm_coefficients.h"
#include "nn/core/optimizer_formulas.h"
#include "nn/core/smooth_activations.h"

namespace dlaunch::nn {
namespace {

// They can be used where only constants can: so in device code too.
static_assert(split(0.5).rest == 0);
static_assert(philox_block(1, 2, 3)[0] != philox_block(1, 2, 4)[0]);
static_assert(dropout_mask(0.5, {.position = 8}).first_block == 2);
static_assert(sgd_plain({.rate = 0.5F, .decay = 1}, 2, 4) == 1);

TEST(Formulas, PhiloxBlocksAreTheWordsOfAGenerator) {
  const RandomState start{.seed = 0x123456789abcdefU, .stream = 77, .position = 4000};
  Generator generator(start);
  for (std::uint64_t block = 1000; block < 1003; ++block)
    for (const std::uint32_t word : philox_block(start.seed, start.stream, block))
      EXPECT_EQ(word, generator());
}

TEST(Formulas, DropoutKeepsTheMeanAndDropsItsShare) {
  const DropoutMask mask = dropout_mask(0.25, {});
  EXPECT_EQ(mask.threshold, 1U << 30);
  EXPECT_NEAR(mask.scale, 1 / 0.75, 1e-6);
}

// The moments of parts, each about its first value, as the threads of a GPU compute them in float.
TEST(Formulas, MomentsOfManyPartsAreThoseOfTheWholeFarFromZero) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(1000, 1);
  std::vector<float> values(100000);
  for (float& value : values) value = static_cast<float>(normal(random));
  PackedMoments total;
  constexpr std::size_t kPart = 64;
  for (std::size_t begin = 0; begin < values.size(); begin += kPart) {
    const std::size_t end = std::min(begin + kPart, values.size());
    const float shift = values[begin];
    float sum = 0;
    float squares = 0;
    for (std::size_t i = begin; i < end; ++i) {
      sum += values[i] - shift;
      squares += (values[i] - shift) * (values[i] - shift);
    }
    const auto count = static_cast<double>(end - begin);
    const PackedMoments part = pack(shift, count, sum, squares);
    total.sum += part.sum;
    total.square_sum += part.square_sum;
  }
  const auto count = static_cast<double>(values.size());
  double mean = 0;
  for (const float value : values) mean += value / count;
  double m2 = 0;
  for (const float value : values) m2 += (value - mean) * (value - mean);
  const Moments whole = unpack(count, total);
  EXPECT_NEAR(whole.mean, mean, 1e-7);
  EXPECT_NEAR(whole.m2 / m2, 1, 1e-6);
}

// Adam's first update is the rate times the gradient's sign, but for eps, whatever the betas: what
// 1 - beta loses by rounding must be what the correction loses.
TEST(Formulas, AdamsFirstUpdateIsExactForBetasNearOne) {
  for (const double beta2 : {0.9, 0.999, 0.9999, 0.99999, 0.999999}) {
    SCOPED_TRACE(beta2);
    const AdamArguments arguments{.learning_rate = 0.01,
                                  .beta1 = 1 - (1 - beta2) / 3,
                                  .beta2 = beta2,
                                  .eps = 1e-8,
                                  .correction1 = (1 - beta2) / 3,
                                  .correction2 = 1 - beta2};
    const AdamFactors factors = adam_factors(arguments, std::sqrt(arguments.correction2));
    float mean = 0, square = 0;
    const float gradient = 0.37F;
    adam_moments(factors, gradient, mean, square);
    const double update = -adam_parameter(factors, 0, mean, std::sqrt(square));
    const double g = gradient;
    EXPECT_NEAR(update / (0.01 * g / (g + 1e-8)), 1, 5e-7);
  }
}

TEST(Formulas, TheNormalDistributionsTailIsRightHoweverSmall) {
  for (float a = 0; a < 13; a += 0.001F) {
    const double expected = std::erfc(static_cast<double>(a) / std::sqrt(2.0)) / 2;
    const auto exponential = static_cast<float>(std::exp(-static_cast<double>(a) * a / 2));
    const float tail = normal_tail(1 / (kTailShift + a), exponential);
    ASSERT_NEAR(tail / expected, 1, 1.5e-6) << a;
  }
}

// From exponentials that are wrong as much as those of GPUs.
TEST(Formulas, ExponentialsMinusOneAreRightNearZero) {
  for (float x = -1e-7F; x > -30; x *= 1.01F) {
    const double expected = std::expm1(static_cast<double>(x));
    for (const double wrong : {-2e-7, 0.0, 2e-7}) {
      const auto exponential = static_cast<float>(std::exp(static_cast<double>(x)) * (1 + wrong));
      ASSERT_NEAR(expm1_below_zero(x, exponential) / expected, 1, 2.5e-6) << x;
    }
  }
  EXPECT_EQ(expm1_below_zero(0, 1), 0);
}

TEST(Formulas, NormalisingLosesNothingWhereTheMeanIsLarge) {
  const double mean = 1000.123456789, inv_std = 0.7, gamma = -1.5, beta = 0.25;
  const NormaliseCoefficients of = normalise_coefficients(mean, inv_std, gamma, beta);
  for (const float x : {999.0F, 1000.0F, 1002.5F}) {
    const double expected = gamma * (static_cast<double>(x) - mean) * inv_std + beta;
    EXPECT_NEAR((x - of.shift) * of.scale + of.offset, expected, 1e-6);
  }
}

TEST(Formulas, BackwardIsTheDerivativeWrittenOut) {
  const double mean = 300.4, inv_std = 1.3, gamma = 0.8, count = 12, s1 = 3.5, s2 = -2.25;
  const BackwardCoefficients of = backward_coefficients(mean, inv_std, gamma, 1 / count, s1, s2);
  const BackwardCoefficients fixed = backward_coefficients(mean, inv_std, gamma, 0, 0, 0);
  for (const float x : {299.0F, 300.0F, 301.5F}) {
    const float dy = 0.75F;
    const double xhat = (static_cast<double>(x) - mean) * inv_std;
    const double expected =
        gamma * inv_std * (static_cast<double>(dy) - s1 / count - xhat * s2 / count);
    EXPECT_NEAR(dy * of.scale + (x - of.shift) * of.slope + of.offset, expected, 1e-6);
    EXPECT_NEAR(dy * fixed.scale + (x - fixed.shift) * fixed.slope + fixed.offset,
                gamma * inv_std * static_cast<double>(dy), 1e-6);
  }
}

TEST(Formulas, AnAverageComesFromTheNearerSideAsTorchsLerp) {
  EXPECT_EQ(moved_average(1, 1e8F, 1), 1);
  EXPECT_NEAR(moved_average(0.75F, 1e8F, 1), 0.25e8, 1);
  EXPECT_NEAR(moved_average(0.25F, 1e8F, 1), 0.75e8, 4);
  for (const float weight : {0.0F, 0.3F, 0.7F, 1.0F})
    EXPECT_EQ(moved_average(weight, 0.1F, 0.1F), 0.1F) << weight;
}

TEST(Formulas, ANormThatIsNoNumberIsHandedOnToAllGradients) {
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 1)));
  EXPECT_EQ(clip_factor(HUGE_VAL, 1), 0);
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_NEAR(clip_factor(4, 1), 0.25, 1e-6);
}

TEST(Formulas, SumsWithXhatFollowFromSumsAboutTheShift) {
  const std::vector<double> x{1000.1, 1001.7, 998.2}, dy{0.5, -1, 2};
  const double mean = 1000.01, inv_std = 0.6;
  const SplitMean parts = split(mean);
  double sum = 0, shifted = 0, expected = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sum += dy[i];
    shifted += dy[i] * (x[i] - static_cast<double>(parts.shift));
    expected += dy[i] * (x[i] - mean) * inv_std;
  }
  EXPECT_NEAR(sum_with_xhat(parts, inv_std, sum, shifted), expected, 1e-9);
}

}  // namespace
}  // namespace dlaunch::nn
