// What resnet_bag_of_tricks is made of, besides ghost batch norm: whitening patches, CELU.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/core/flat_parameters.h"
#include "nn/layers/patch_whitening.h"
#include "nn/models/model.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

class BagOfTricks : public OpTest {
 protected:
  std::vector<float> random_values(std::int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random_);
    return values;
  }
};

TEST_F(BagOfTricks, CeluAndScaleHaveTheirValuesAndGradients) {
  const Shape shape{3, 7};
  reference::check_operation(
      *backend_, [](const std::vector<Tensor>& in) { return celu(in[0], 0.3F); },
      [](const std::vector<Array>& in) {
        Array y = in[0];
        for (double& x : y.values) x = std::max(x, 0.0) + std::min(0.0, 0.3 * std::expm1(x / 0.3));
        return y;
      },
      {random_array(shape)}, random_);
  reference::check_operation(
      *backend_, [](const std::vector<Tensor>& in) { return scale(in[0], -2.5F); },
      [](const std::vector<Array>& in) {
        Array y = in[0];
        for (double& x : y.values) x *= -2.5;
        return y;
      },
      {random_array(shape)}, random_);
}

TEST_F(BagOfTricks, CeluInBf16IsRoundedOnce) {
  Array x = random_bf16({4, 33});
  const Array dy = random_bf16({4, 33});
  for (std::int64_t i = 0; i < 8; ++i) x.at(i) = -0.5 * static_cast<double>(i);  // y near -0.3
  Tensor input = convert(reference::to_tensor(*backend_, x), DType::kBF16);
  input.set_requires_grad(true);
  const Tensor output = celu(input, 0.3F);
  ASSERT_EQ(output.dtype(), DType::kBF16);
  backward(output, {.gradient = convert(reference::to_tensor(*backend_, dy), DType::kBF16)});
  const auto y = convert(output, DType::kF32).host_values<float>();
  const auto dx = convert(input.grad(), DType::kF32).host_values<float>();
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double value = x.values[i];
    const double expected = value > 0 ? value : 0.3 * std::expm1(value / 0.3);
    EXPECT_NEAR(y[i], expected, 1e-6 + std::abs(expected) / 256);
    const double slope = dy.values[i] * (value > 0 ? 1 : std::exp(value / 0.3));
    EXPECT_NEAR(dx[i], slope, 1e-30 + std::abs(slope) / 256);
  }
}

TEST_F(BagOfTricks, WhiteningMakesPatchesUncorrelatedAndOfVarianceOne) {
  constexpr std::int64_t kSide = 12, kImages = 20, kChannels = 2;
  Generator generator(3);
  std::vector<float> images = random_values(kImages * kSide * kSide * kChannels);
  // Correlated: every pixel is like its left neighbour.
  for (std::size_t i = kChannels; i < images.size(); ++i)
    images[i] = 0.3F * images[i] + 0.9F * images[i - kChannels];
  const auto fill = [&](PatchCovariance& covariance, std::size_t /*wanted*/) {
    constexpr std::size_t kSize = kSide * kSide * kChannels;
    for (std::size_t i = 0; i < 3; ++i)
      covariance.add(std::span(images).subspan(i * kSize, kSize), kSide, kSide);
    covariance.add(std::span(images).subspan(3 * kSize), kSide, kSide);  // all others at once
  };
  Sequential network;
  PatchWhitening& child = network.append(
      "whitening", std::make_unique<PatchWhitening>(*backend_, kChannels, generator));
  fill_whitening(network, fill);

  const Tensor output =
      network.forward(Tensor::from<float>(*backend_, {kImages, kSide, kSide, kChannels}, images));
  constexpr std::int64_t kOut = 9 * kChannels;
  EXPECT_EQ(output.shape(), (Shape{kImages, kSide, kSide, kOut}));
  EXPECT_TRUE(network.parameters().empty());
  EXPECT_EQ(child.weight().shape(), (Shape{kOut, 3, 3, kChannels}));
  // Away from the edges, where patches are whole.
  std::vector<double> products(kOut * kOut);
  double count = 0;
  const auto y = output.host_values<float>();
  for (std::int64_t n = 0; n < kImages; ++n)
    for (std::int64_t row = 1; row + 1 < kSide; ++row)
      for (std::int64_t column = 1; column + 1 < kSide; ++column) {
        const float* pixel =
            &y[static_cast<std::size_t>(((n * kSide + row) * kSide + column) * kOut)];
        ++count;
        for (std::int64_t i = 0; i < kOut; ++i)
          for (std::int64_t j = 0; j < kOut; ++j)
            products[static_cast<std::size_t>(i * kOut + j)] +=
                static_cast<double>(pixel[i]) * static_cast<double>(pixel[j]);
      }
  double before = 2;
  for (std::int64_t i = 0; i < kOut; ++i) {
    for (std::int64_t j = 0; j < i; ++j)
      EXPECT_NEAR(products[static_cast<std::size_t>(i * kOut + j)] / count, 0, 1e-3);
    // variance / (variance + eps): falls with the variance, from nearly 1.
    const double variance = products[static_cast<std::size_t>(i * kOut + i)] / (count - 1);
    EXPECT_LE(variance, before + 1e-6);
    EXPECT_GT(variance, 0.3);
    before = variance;
  }
  EXPECT_LE(products[0] / (count - 1), 1.001);
}

TEST_F(BagOfTricks, WhiteningIsExactForAMeanAThousandTimesTheDeviation) {
  constexpr std::size_t kSide = 16, kImages = 10, kChannels = 3;
  std::vector<float> images = random_values(kImages * kSide * kSide * kChannels);
  for (std::size_t i = 1; i < images.size(); ++i) images[i] += 0.5F * images[i - 1];
  for (float& value : images) value = 1000 + value;
  PatchCovariance covariance(1, kChannels);
  covariance.add(images, kSide, kSide);
  const std::vector<float> filters = covariance.filters(0, /*centred=*/true);

  // Pixels after the filters: uncorrelated, of variance 1.
  std::array<double, kChannels> sums{};
  std::array<std::array<double, kChannels>, kChannels> products{};
  for (std::size_t at = 0; at < images.size(); at += kChannels) {
    std::array<double, kChannels> out{};
    for (std::size_t i = 0; i < kChannels; ++i) {
      for (std::size_t c = 0; c < kChannels; ++c)
        out[i] += static_cast<double>(filters[i * kChannels + c]) *
                  (static_cast<double>(images[at + c]) - 1000);  // near its mean
      sums[i] += out[i];
      for (std::size_t j = 0; j <= i; ++j) products[i][j] += out[i] * out[j];
    }
  }
  constexpr double kCount = kImages * kSide * kSide;
  for (std::size_t i = 0; i < kChannels; ++i)
    for (std::size_t j = 0; j <= i; ++j)
      EXPECT_NEAR((products[i][j] - sums[i] * sums[j] / kCount) / (kCount - 1), i == j ? 1 : 0,
                  1e-5);
}

TEST_F(BagOfTricks, WhiteningFillsANetworkThatIsNothingElse) {
  Generator generator(3);
  const PatchWhitening network(*backend_, 1, generator, {.kernel = 1});
  fill_whitening(network, [](PatchCovariance& covariance, std::size_t /*wanted*/) {
    covariance.add(std::vector<float>{3, -3, 3}, 1, 3);
  });
  EXPECT_NEAR(network.weight().host_values<float>()[0], 1 / std::sqrt(27.0 / 2 + 1e-2), 1e-6);
}

// Eigenvectors have no sign of their own.
TEST_F(BagOfTricks, WhiteningFiltersAreAboveZeroWhereTheyAreLargest) {
  constexpr std::size_t kValues = 3 * 3 * 2;
  PatchCovariance covariance(3, 2);
  covariance.add(random_values(20L * 8 * 8 * 2), 8, 8);
  const std::vector<float> filters = covariance.filters(1e-2, true);
  ASSERT_EQ(filters.size(), kValues * kValues);
  for (std::size_t i = 0; i < kValues; ++i) {
    const std::span<const float> filter(&filters[i * kValues], kValues);
    const auto [least, most] = std::ranges::minmax(filter);
    EXPECT_GE(most, -least) << "filter " << i;
  }
}

TEST_F(BagOfTricks, WhiteningRefusesWhatItCannotDo) {
  Generator generator(3);
  EXPECT_THROW(PatchWhitening(*backend_, 3, generator, {.kernel = 2}), Error);
  EXPECT_THROW(PatchWhitening(*backend_, 3, generator, {.kernel = 0, .pad = false}), Error);
  EXPECT_NO_THROW(PatchWhitening(*backend_, 3, generator, {.kernel = 2, .pad = false}));
  PatchCovariance alike(1, 2);
  EXPECT_THROW((void)alike.filters(1e-2, true), Error);  // no patches
  alike.add(std::vector<float>(20, 1.5F), 2, 5);
  EXPECT_THROW((void)alike.filters(0, true), Error);
  for (const float value : alike.filters(1e-2, true)) EXPECT_TRUE(std::isfinite(value));
}

TEST_F(BagOfTricks, TheNetworkRunsForwardAndBackwardInEitherType) {
  const auto images = random_values(4L * 32 * 32 * 3);
  const std::vector<std::int32_t> labels{1, 2, 3, 4};
  std::vector<float> losses;
  for (const DType type : {DType::kF32, DType::kBF16}) {
    Generator generator(5);
    const auto network =
        make_model("resnet_bag_of_tricks", {.num_classes = 10, .compute_type = type}, *backend_,
                   generator, nullptr);
    EXPECT_EQ(network->output_shape({4, 32, 32, 3}), (Shape{4, 10}));
    const FlatParameters flat = flatten_parameters(*network);
    const Tensor logits = network->forward(Tensor::from<float>(*backend_, {4, 32, 32, 3}, images));
    const Tensor loss = cross_entropy(logits, std::span<const std::int32_t>(labels));
    backward(loss);
    losses.push_back(loss.item());
    expect_gradients_everywhere(flat);
  }
  ASSERT_TRUE(std::isfinite(losses[0]));
  EXPECT_NEAR(losses[1], losses[0], 0.1);
  EXPECT_NE(losses[1], losses[0]);
}

}  // namespace
}  // namespace dlaunch::nn
