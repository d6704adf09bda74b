// 3x3 convolutions in bf16 by Winograd's algorithm, against the reference in double.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>

#include "nn/core/ops.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/cpu/winograd.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

struct WinogradCase {
  Shape x;
  std::int64_t out, padding;
};

/// Relative errors (root of the summed squares) of a convolution's result and gradients.
struct Errors {
  double result, data, weights, bias;
};

double relative_error(const Tensor& actual, const Array& expected) {
  const Tensor plain = convert(actual, DType::kF32);
  const auto values = plain.host_values<float>();
  double squares = 0;
  double scale = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    squares += std::pow(values[i] - expected.values[i], 2);
    scale += std::pow(expected.values[i], 2);
  }
  return std::sqrt(squares / scale);
}

Array column_sums(const Array& matrix) {
  const std::int64_t columns = matrix.shape[-1];
  Array sums({columns});
  for (std::int64_t i = 0; i < matrix.shape.size(); ++i) sums.at(i % columns) += matrix.at(i);
  return sums;
}

class WinogradInBf16 : public OpTest, public testing::WithParamInterface<WinogradCase> {
 protected:
  void SetUp() override {
    if (!direct_->computes_in(DType::kBF16)) GTEST_SKIP() << "this CPU does not multiply in bf16";
  }

  std::unique_ptr<Backend> direct_ = make_cpu_backend();
  std::unique_ptr<Backend> winograd_ = make_cpu_backend({.winograd = true});
};

struct Expected {
  Array result, data, weights, bias;
};

struct Inputs {
  Array x, w, b, dy;
  std::int64_t padding;

  Expected expected() const {
    return {.result = reference::conv2d(x, w, &b, 1, padding),
            .data = reference::conv2d_data(dy, w, padding),
            .weights = reference::conv2d_weights(x, dy, 1, padding),
            .bias = column_sums(dy)};
  }
};

Errors errors_of(Backend& backend, const Inputs& in, const Expected& expected) {
  Tensor image = convert(reference::to_tensor(backend, in.x), DType::kBF16);
  Tensor weights = reference::to_tensor(backend, in.w);
  Tensor bias = reference::to_tensor(backend, in.b);
  for (Tensor* each : {&image, &weights, &bias}) each->set_requires_grad(true);
  const Tensor y = conv2d(image, weights, bias, {1, in.padding});
  backward(y, {.gradient = convert(reference::to_tensor(backend, in.dy), DType::kBF16)});
  return {.result = relative_error(y, expected.result),
          .data = relative_error(image.grad(), expected.data),
          .weights = relative_error(weights.grad(), expected.weights),
          .bias = relative_error(bias.grad(), expected.bias)};
}

// Images and gradients are exact in bf16. The direct algorithm then rounds the weights and the
// results, 1.7e-3 each; its weight gradients are exact but for f32. Winograd's rounds transformed
// patches and filters besides.
TEST_P(WinogradInBf16, IsAsExactAsBf16AllowsForwardAndBackward) {
  const auto [shape, out, padding] = GetParam();
  const Shape output{shape[0], shape[1] + 2 * padding - 2, shape[2] + 2 * padding - 2, out};
  const Inputs inputs{.x = random_bf16(shape),
                      .w = random_array({out, 3, 3, shape[3]}),
                      .b = random_array({out}),
                      .dy = random_bf16(output),
                      .padding = padding};
  const Expected expected = inputs.expected();
  const Errors errors = errors_of(*winograd_, inputs, expected);
  EXPECT_LT(errors.result, 6e-3);
  EXPECT_LT(errors.data, 6e-3);
  EXPECT_LT(errors.weights, 6e-3);
  EXPECT_LT(errors.bias, 1e-5);

  const Errors direct = errors_of(*direct_, inputs, expected);
  EXPECT_LT(errors.result, 3 * direct.result);
  EXPECT_LT(errors.data, 3 * direct.data);
}

INSTANTIATE_TEST_SUITE_P(Shapes, WinogradInBf16,
                         testing::Values(WinogradCase{{2, 5, 6, 64}, 80, 1},    // tiles do not fit
                                         WinogradCase{{3, 7, 5, 64}, 64, 0},    // no border
                                         WinogradCase{{1, 2, 3, 96}, 64, 2},    // a wide one
                                         WinogradCase{{1, 3, 3, 64}, 128, 0},   // one output pixel
                                         WinogradCase{{1, 29, 17, 64}, 64, 1},  // several blocks
                                         WinogradCase{{33, 2, 2, 64}, 64, 1}));

TEST(WinogradTiling, CoversAllTilesWithBlocksOfWhichNoneIsEmpty) {
  std::mt19937 random(std::random_device{}());
  const auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  for (int i = 0; i < 20'000; ++i) {
    const cpu::WinogradTiling t(draw(1, 300), draw(1, 64), draw(1, 64), 1, draw(1, 200));
    SCOPED_TRACE(testing::Message() << t.tiles() << " tiles, " << t.block << " in a block");
    ASSERT_EQ(t.block % 2, 1);
    ASSERT_GE(t.block * t.block_count, t.tiles());
    ASSERT_LT(t.block * (t.block_count - 1), t.tiles());
  }
}

TEST_F(WinogradInBf16, AddsToTheWeightsGradientAndSeesWeightsThatChange) {
  const Array x = random_bf16({2, 4, 4, 64});
  const Array dy = random_bf16({2, 4, 4, 64});
  Tensor weights = Tensor::zeros(*winograd_, {64, 3, 3, 64});
  weights.set_requires_grad(true);
  const Tensor image = convert(reference::to_tensor(*winograd_, x), DType::kBF16);
  Array twice = reference::conv2d_weights(x, dy);
  for (double& value : twice.values) value *= 2;
  for (int pass = 0; pass < 2; ++pass) {
    backward(conv2d(image, weights, Tensor(), {1, 1}),
             {.gradient = convert(reference::to_tensor(*winograd_, dy), DType::kBF16)});
  }
  EXPECT_LT(relative_error(weights.grad(), twice), 6e-3);

  const Array after = random_array({64, 3, 3, 64});
  const auto values = weights.values<float>();
  std::copy(after.values.begin(), after.values.end(), values.begin());
  EXPECT_LT(relative_error(conv2d(image, weights, Tensor(), {1, 1}),
                           reference::conv2d(x, after, nullptr, 1, 1)),
            6e-3);
}

TEST_F(WinogradInBf16, PassesOnWhatIsNoNumber) {
  Array x = random_bf16({1, 4, 4, 64});
  x.at(0, 3, 3, 7) = NAN;
  const Tensor weights = reference::to_tensor(*winograd_, random_array({64, 3, 3, 64}));
  const Tensor y = convert(
      conv2d(convert(reference::to_tensor(*winograd_, x), DType::kBF16), weights, Tensor(), {1, 1}),
      DType::kF32);
  EXPECT_TRUE(std::isnan(y.values<const float>()[15 * 64]));
  EXPECT_FALSE(std::isnan(y.values<const float>()[0])) << "the tile of (0, 0) does not see it";
}

TEST_F(WinogradInBf16, PassesOnNaNsOfAnyBitsInWeightsAndBias) {
  for (const std::uint32_t bits : {0x7fc00000U, 0x7fffffffU, 0xffffffffU, 0x7f800001U}) {
    const Tensor weights = reference::to_tensor(*winograd_, random_array({64, 3, 3, 64}));
    const Tensor bias = reference::to_tensor(*winograd_, random_array({64}));
    weights.values<float>()[4 * 64] = bias.values<float>()[1] = std::bit_cast<float>(bits);
    const Tensor x =
        convert(reference::to_tensor(*winograd_, random_bf16({1, 2, 2, 64})), DType::kBF16);
    const Tensor y = convert(conv2d(x, weights, bias, {1, 1}), DType::kF32);
    for (std::int64_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(std::isnan(y.values<const float>()[static_cast<std::size_t>(i)]), i % 64 < 2) << i;
  }
}

}  // namespace
}  // namespace dlaunch::nn
