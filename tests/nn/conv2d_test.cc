#include "nn/layers/conv2d.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "nn/core/ops.h"
#include "nn/cpu/cpu_backend.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

struct Conv2dCase {
  Shape x;
  Shape weights;
  std::int64_t stride;
  std::int64_t padding;
  bool bias = true;
};

class Conv2dGradients : public OpTest, public testing::WithParamInterface<Conv2dCase> {};

TEST_P(Conv2dGradients, AreThoseOfFiniteDifferences) {
  const Conv2dCase& param = GetParam();
  std::vector<Array> inputs{random_array(param.x), random_array(param.weights)};
  if (param.bias) inputs.push_back(random_array({param.weights[0]}));
  reference::check_operation(
      *backend_,
      [&](const std::vector<Tensor>& in) {
        return conv2d(in[0], in[1], param.bias ? in[2] : Tensor(), {param.stride, param.padding});
      },
      [&](const std::vector<Array>& in) {
        return reference::conv2d(in[0], in[1], param.bias ? &in[2] : nullptr, param.stride,
                                 param.padding);
      },
      inputs, random_);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Conv2dGradients,
    testing::Values(Conv2dCase{{2, 6, 5, 3}, {4, 3, 3, 3}, 1, 0},            // a stem
                    Conv2dCase{{2, 5, 5, 5}, {7, 3, 3, 5}, 1, 1},            // odd channels
                    Conv2dCase{{1, 7, 5, 3}, {5, 3, 3, 3}, 2, 1},            // stride 2, one image
                    Conv2dCase{{3, 5, 4, 6}, {5, 1, 1, 6}, 1, 0},            // 1x1
                    Conv2dCase{{2, 5, 5, 4}, {3, 1, 1, 4}, 2, 0, false},     // 1x1, stride 2
                    Conv2dCase{{1, 4, 4, 17}, {18, 3, 3, 17}, 1, 1, false},  // beyond one vector
                    Conv2dCase{{2, 6, 7, 1}, {1, 5, 5, 1}, 3, 2},
                    Conv2dCase{{1, 5, 6, 2}, {3, 2, 3, 2}, 1, 1},  // not square
                    Conv2dCase{{2, 4, 4, 16}, {16, 3, 3, 16}, 1, 1},
                    Conv2dCase{{1, 1, 1, 3}, {2, 1, 1, 3}, 1, 0},
                    Conv2dCase{{0, 6, 5, 3}, {4, 3, 3, 3}, 1, 1}));  // an empty batch

TEST_F(OpTest, Conv2dComputesALayerOfResNetAsTheReferenceDoes) {
  const Array x = random_array({2, 16, 16, 32});
  const Array w = random_array({33, 3, 3, 32});
  const Tensor y = conv2d(reference::to_tensor(*backend_, x), reference::to_tensor(*backend_, w),
                          Tensor(), {2, 1});
  reference::expect_close(y, reference::conv2d(x, w, nullptr, 2, 1), 1e-5, "result");
}

/// The largest error of a convolution's result and of its input's and weights' gradients, each as a
/// fraction of the largest magnitude.
double largest_error(Backend& backend, const Array& x, const Array& w, const Array& dy) {
  const auto plain = [](const std::vector<Array>& in) {
    return reference::conv2d(in[0], in[1], nullptr, 1, 1);
  };
  Tensor image = reference::to_tensor(backend, x);
  Tensor weights = reference::to_tensor(backend, w);
  image.set_requires_grad(true);
  weights.set_requires_grad(true);
  const Tensor y = conv2d(image, weights, Tensor(), {1, 1});
  backward(y, {.gradient = reference::to_tensor(backend, dy)});
  const auto error = [](const Tensor& actual, const Array& expected) {
    double scale = 0;
    double worst = 0;
    const auto values = actual.host_values<float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      scale = std::max(scale, std::abs(expected.values[i]));
      worst = std::max(worst, std::abs(static_cast<double>(values[i]) - expected.values[i]));
    }
    return worst / scale;
  };
  return std::max({error(y, plain({x, w})), error(image.grad(), reference::conv2d_data(dy, w)),
                   error(weights.grad(), reference::conv2d_weights(x, dy))});
}

TEST_F(OpTest, Conv2dByWinogradIsAlmostAsExactAsDirectly) {
  const Array x = random_array({2, 9, 10, 32});  // tiles of 4 x 4 do not fit evenly
  const Array w = random_array({48, 3, 3, 32});
  const Array dy = random_array({2, 9, 10, 48});
  const auto winograd = make_cpu_backend({.winograd = true});
  EXPECT_LT(largest_error(*backend_, x, w, dy), 2e-6);
  EXPECT_LT(largest_error(*winograd, x, w, dy), 1e-5);
}

TEST_F(OpTest, Conv2dOfManyChannelsOnFewPixelsHasTheReferencesGradients) {
  const Array x = random_array({2, 3, 4, 256});
  const Array w = random_array({256, 3, 3, 256});
  // Sums of 2,304 products: the rounding of a random walk, 48 x 6e-8, with a margin.
  EXPECT_LT(largest_error(*backend_, x, w, random_array({2, 3, 4, 256})), 1e-5);
}

TEST_F(OpTest, Conv2dSeesWeightsThatChange) {
  const Array x = random_array({1, 4, 4, 16});
  const Array before = random_array({16, 3, 3, 16});
  const Array after = random_array({16, 3, 3, 16});
  const Tensor image = reference::to_tensor(*backend_, x);
  const Tensor flat = Tensor::zeros(*backend_, {3000});
  Tensor weights = reference::to_tensor(*backend_, before);
  weights.move_into(flat, 64);
  reference::expect_close(conv2d(image, weights, Tensor()),
                          reference::conv2d(x, before, nullptr, 1, 0), 1e-5, "before");
  const std::vector<float> values(after.values.begin(), after.values.end());
  Tensor::view_of(flat, 64, after.shape).set_values<float>(values);
  reference::expect_close(conv2d(image, weights, Tensor()),
                          reference::conv2d(x, after, nullptr, 1, 0), 1e-5, "after");
}

TEST_F(OpTest, Conv2dRunsOneWeightOnImagesOfManySizes) {
  const Array w = random_array({16, 3, 3, 16});
  const Tensor weights = reference::to_tensor(*backend_, w);
  for (const Shape& shape : {Shape{1, 4, 4, 16}, Shape{64, 3, 9, 16}, Shape{1, 4, 4, 16}}) {
    const Array x = random_array(shape);
    reference::expect_close(conv2d(reference::to_tensor(*backend_, x), weights, Tensor(), {1, 1}),
                            reference::conv2d(x, w, nullptr, 1, 1), 1e-5, shape.to_string());
  }
}

TEST_F(OpTest, Conv2dRefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros(*backend_, {2, 5, 5, 3});
  const Tensor w = Tensor::zeros(*backend_, {4, 3, 3, 3});
  EXPECT_THROW(conv2d(x, Tensor::zeros(*backend_, {4, 3, 3, 2}), Tensor()), Error);
  EXPECT_THROW(conv2d(x, Tensor::zeros(*backend_, {4, 7, 3, 3}), Tensor()), Error);
  EXPECT_THROW(conv2d(x, w, Tensor::zeros(*backend_, {3})), Error);
  EXPECT_THROW(conv2d(x, w, Tensor(), {0, 0}), Error);
  EXPECT_THROW(conv2d(x, w, Tensor(), {1, -1}), Error);
  EXPECT_THROW(conv2d(Tensor::zeros(*backend_, {2, 75}), w, Tensor()), Error);
  EXPECT_THROW(conv2d(Tensor::zeros(*backend_, {2, 5, 5, 3}, DType::kI32), w, Tensor()), Error);
}

TEST_F(OpTest, Conv2dLayerKnowsItsShapesAndCosts) {
  Generator generator(seed_);
  const Conv2d layer(*backend_, 3, 16, 3, generator, {.stride = 2, .padding = 1});
  EXPECT_EQ(layer.output_shape({8, 32, 32, 3}), (Shape{8, 16, 16, 16}));
  EXPECT_EQ(layer.multiply_adds({8, 32, 32, 3}), 8 * 16 * 16 * 16 * 27);
  EXPECT_EQ(layer.parameter_count(), 16 * 27 + 16);
  EXPECT_EQ(layer.kind(), "Conv2d(3, 16, kernel 3, stride 2, padding 1)");
  EXPECT_THROW(layer.output_shape({8, 32, 32, 4}), Error);
}

}  // namespace
}  // namespace dlaunch::nn
