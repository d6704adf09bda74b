// What the networks of the speedruns are made of, and these networks.
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/core/flat_parameters.h"
#include "nn/layers/batch_norm.h"
#include "nn/layers/conv2d.h"
#include "nn/layers/linear.h"
#include "nn/layers/pad2d.h"
#include "nn/layers/patch_whitening.h"
#include "nn/layers/pooling.h"
#include "nn/models/model.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

class Speedrun : public OpTest {
 protected:
  std::vector<float> normal_values(std::int64_t count, float mean = 0) {
    std::normal_distribution<float> normal(mean);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random_);
    return values;
  }
};

Array with_each(const Array& x, double (*function)(double)) {
  Array y = x;
  for (double& value : y.values) value = function(value);
  return y;
}

double plain_gelu(double x) {
  return x * 0.5 * std::erfc(-x / std::sqrt(2.0));
}

double plain_silu(double x) {
  return x / (1 + std::exp(-x));
}

TEST_F(Speedrun, GeluAndSiluHaveTheirValuesAndGradients) {
  for (const Shape& shape : {Shape{3, 7}, Shape{2, 5, 3, 9}, Shape{0, 4}}) {
    Array x = random_array(shape);
    for (double& value : x.values) value *= 3;
    reference::check_operation(
        *backend_, [](const std::vector<Tensor>& in) { return gelu(in[0]); },
        [](const std::vector<Array>& in) { return with_each(in[0], plain_gelu); }, {x}, random_);
    reference::check_operation(
        *backend_, [](const std::vector<Tensor>& in) { return silu(in[0]); },
        [](const std::vector<Array>& in) { return with_each(in[0], plain_silu); }, {x}, random_);
  }
}

TEST_F(Speedrun, ActivationsKeepTheirTypeAndAreRoundedOnce) {
  const Array x = random_bf16({4, 33});
  for (const DType type : types())
    for (const bool is_gelu : {true, false}) {
      const Tensor input = convert(reference::to_tensor(*backend_, x), type);
      const Tensor output = is_gelu ? gelu(input) : silu(input);
      EXPECT_EQ(output.dtype(), type);
      const auto actual = convert(output, DType::kF32).host_values<float>();
      for (std::size_t i = 0; i < actual.size(); ++i) {
        const double expected = is_gelu ? plain_gelu(x.values[i]) : plain_silu(x.values[i]);
        EXPECT_NEAR(actual[i], expected, 1e-6 + std::abs(expected) / 256);
      }
    }
}

/// Rows and columns of zeros, or fewer of them, written out plainly.
Array plain_pad(const Array& x, const Padding& padding) {
  Array y({x.shape[0], x.shape[1] + padding.top + padding.bottom,
           x.shape[2] + padding.left + padding.right, x.shape[3]});
  for (std::int64_t n = 0; n < y.shape[0]; ++n)
    for (std::int64_t r = 0; r < y.shape[1]; ++r)
      for (std::int64_t c = 0; c < y.shape[2]; ++c)
        for (std::int64_t k = 0; k < y.shape[3]; ++k) {
          const std::int64_t row = r - padding.top, column = c - padding.left;
          const bool inside = row >= 0 && row < x.shape[1] && column >= 0 && column < x.shape[2];
          y.at(n, r, c, k) = inside ? x.at(n, row, column, k) : 0;
        }
  return y;
}

TEST_F(Speedrun, PaddingAddsZerosAndCutsOff) {
  for (const Padding& padding : {Padding{0, 1, 0, 1}, Padding{2, 0, 3, 1}, Padding{-1, 0, 0, -2},
                                 Padding{1, -1, -2, 2}, Padding{-1, -1, 5, -3}})
    for (const auto& [n, channels] : {std::pair(2, 5), {2, 8}, {0, 5}})
      reference::check_operation(
          *backend_, [&](const std::vector<Tensor>& in) { return pad2d(in[0], padding); },
          [&](const std::vector<Array>& in) { return plain_pad(in[0], padding); },
          {random_array({n, 3, 4, channels})}, random_);
  EXPECT_THROW(pad2d(Tensor::zeros(*backend_, {1, 3, 3, 2}), {.top = -2, .bottom = -1}), Error);
}

TEST_F(Speedrun, MaximumPlusMeanOverThePixels) {
  GlobalMaxPlusMean layer;
  reference::check_operation(
      *backend_, [&](const std::vector<Tensor>& in) { return layer.forward(in[0]); },
      [](const std::vector<Array>& in) {
        const Array& x = in[0];
        Array y({x.shape[0], x.shape[3]});
        for (std::int64_t n = 0; n < x.shape[0]; ++n)
          for (std::int64_t c = 0; c < x.shape[3]; ++c) {
            double highest = -1e30, sum = 0;
            for (std::int64_t p = 0; p < 9; ++p) {
              highest = std::max(highest, x.at(n, p / 3, p % 3, c));
              sum += x.at(n, p / 3, p % 3, c);
            }
            y.at(n, c) = highest + sum / 9;
          }
        return y;
      },
      {random_array({4, 3, 3, 7})}, random_);
  EXPECT_THROW((void)layer.output_shape({1, 2, 3, 4}), Error);
}

TEST_F(Speedrun, DiracFiltersBeginAsTheIdentityOnTheFirstChannels) {
  Generator generator(seed_);
  const auto x = normal_values(2L * 5 * 5 * 3);
  const Tensor input = Tensor::from<float>(*backend_, {2, 5, 5, 3}, x);
  for (const std::int64_t kernel : {1, 2, 3}) {
    Conv2d layer(
        *backend_, 3, 4, kernel, generator,
        {.padding = kernel == 3 ? 1 : 0, .bias = false, .initialisation = Initialisation::kDirac});
    // The centre of an even kernel lies behind the middle: its zeros lie before the image.
    const Tensor padded = kernel == 2 ? pad2d(input, {.top = 1, .left = 1}) : input;
    const auto y = layer.forward(padded).host_values<float>();
    double fourth = 0;
    for (std::size_t pixel = 0; pixel < 50; ++pixel) {
      for (std::size_t c = 0; c < 3; ++c) EXPECT_NEAR(y[pixel * 4 + c], x[pixel * 3 + c], 1e-6);
      fourth += std::abs(static_cast<double>(y[pixel * 4 + 3]));
    }
    EXPECT_GT(fourth, 0.1);
  }
  const Tensor head = make_weights(*backend_, {10, 40}, Initialisation::kUnitDeviation, generator);
  const auto w = head.host_values<float>();
  const double mean = std::accumulate(w.begin(), w.end(), 0.0) / 400;
  double squares = 0;
  for (const float value : w) squares += std::pow(static_cast<double>(value) - mean, 2);
  EXPECT_NEAR(squares / 399, 1, 1e-5);
}

TEST_F(Speedrun, BatchNormWithoutScaleIsOneWhoseScaleStaysOne) {
  BatchNorm with(*backend_, 6), without(*backend_, 6, {.scale = false});
  ASSERT_EQ(without.parameters().size(), 1U);
  EXPECT_EQ(without.parameters()[0].name, "bias");
  const auto bias = normal_values(6);
  with.parameters()[1].tensor.set_values<float>(bias);
  without.parameters()[0].tensor.set_values<float>(bias);
  const auto x = normal_values(30), slopes = normal_values(30);
  const auto run = [&](BatchNorm& layer) {
    Tensor input = Tensor::from<float>(*backend_, {5, 6}, x);
    input.set_requires_grad(true);
    const Tensor y = layer.forward(input);
    backward(y, {.gradient = Tensor::from<float>(*backend_, {5, 6}, slopes)});
    auto all = y.host_values<float>();
    const auto dx = input.grad().host_values<float>();
    const auto db = layer.parameters().back().tensor.grad().host_values<float>();
    all.insert(all.end(), dx.begin(), dx.end());
    all.insert(all.end(), db.begin(), db.end());
    return all;
  };
  EXPECT_EQ(run(with), run(without));
}

TEST_F(Speedrun, WhiteningOfBothSignsHasABiasWhoseGradientIsTheSumOverPixels) {
  constexpr std::int64_t kSide = 6, kChannels = 3, kOut = 24;
  for (const DType type : types()) {
    Generator generator(seed_);
    Sequential network;
    auto& layer = network.append(
        std::make_unique<PatchWhitening>(*backend_, kChannels, generator,
                                         PatchWhiteningOptions{.kernel = 2,
                                                               .pad = false,
                                                               .negated = true,
                                                               .bias = StemBias::kZeros,
                                                               .centred = true,
                                                               .eps = 1e-4,
                                                               .images = 7,
                                                               .compute_type = type}));
    // Far from zero: only the centred covariance is that of the noise.
    std::size_t asked = 0;
    fill_whitening(network, [&](PatchCovariance& covariance, std::size_t images) {
      asked = images;
      for (int i = 0; i < 400; ++i)
        covariance.add(normal_values(kSide * kSide * kChannels, 50), kSide, kSide);
    });
    EXPECT_EQ(asked, 7U);
    const auto filters = layer.weight().host_values<float>();
    ASSERT_EQ(filters.size(), 24U * 12);
    for (std::size_t i = 0; i < 12 * 12; ++i) EXPECT_EQ(filters[i], -filters[144 + i]);
    for (std::size_t f = 0; f < 12; ++f) {  // unit variance in all directions: unit filters
      double squares = 0;
      for (std::size_t i = 0; i < 12; ++i)
        squares += std::pow(static_cast<double>(filters[f * 12 + i]), 2);
      EXPECT_NEAR(squares, 1, 0.15);
    }

    const FlatParameters flat = flatten_parameters(network);
    ASSERT_EQ(flat.views.size(), 1U);
    EXPECT_EQ(flat.views[0].kind, ParameterKind::kStem);
    const Shape out{2, kSide - 1, kSide - 1, kOut};
    const Tensor y = network.forward(Tensor::from<float>(
        *backend_, {2, kSide, kSide, kChannels}, normal_values(2 * kSide * kSide * kChannels)));
    EXPECT_EQ(y.shape(), out);
    EXPECT_EQ(y.dtype(), type);
    const Array slopes = random_bf16(out);
    backward(y, {.gradient = convert(reference::to_tensor(*backend_, slopes), type)});
    const auto gradient = flat.gradients.host_values<float>();
    for (std::int64_t c = 0; c < kOut; ++c) {
      double sum = 0;
      for (std::int64_t p = 0; p < 50; ++p) sum += slopes.at(p * kOut + c);
      EXPECT_NEAR(gradient[static_cast<std::size_t>(c)], sum, 1e-4);
    }
  }
}

TEST_F(Speedrun, TheNetworksTrainInEveryTypeAndTakeSmallerImages) {
  for (const std::string name : {"airbench94", "speedrun100"})
    for (const DType type : types()) {
      SCOPED_TRACE(name);
      Generator generator(5);
      const auto network = make_model(name, {.num_classes = 10, .compute_type = type}, *backend_,
                                      generator, nullptr);
      const FlatParameters flat = flatten_parameters(*network);
      const std::int64_t side = name == "speedrun100" ? 20 : 32;
      const std::vector<std::int32_t> labels{1, 2, 3, 4};
      const Tensor loss =
          cross_entropy(network->forward(Tensor::from<float>(*backend_, {4, side, side, 3},
                                                             normal_values(4 * side * side * 3))),
                        std::span<const std::int32_t>(labels));
      backward(loss);
      EXPECT_TRUE(std::isfinite(loss.item()));
      expect_gradients_everywhere(flat);
      EXPECT_EQ(flat.views.back().name, "head.weight");  // which Muon leaves to SGD
    }
}

}  // namespace
}  // namespace dlaunch::nn
