#include "nn/layers/pooling.h"

#include <random>
#include <vector>

#include "nn/core/ops.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

struct PoolCase {
  Shape x;
  std::int64_t kernel, stride, padding;
};

class MaxPoolGradients : public OpTest, public testing::WithParamInterface<PoolCase> {};

TEST_P(MaxPoolGradients, AreThoseOfFiniteDifferences) {
  const PoolCase& param = GetParam();
  reference::check_operation(
      *backend_,
      [&](const std::vector<Tensor>& in) {
        return max_pool2d(in[0], {param.kernel, param.stride, param.padding});
      },
      [&](const std::vector<Array>& in) {
        return reference::max_pool2d(in[0], param.kernel, param.stride, param.padding);
      },
      {distinct_array(param.x)}, random_);
}

INSTANTIATE_TEST_SUITE_P(Shapes, MaxPoolGradients,
                         testing::Values(PoolCase{{2, 6, 6, 16}, 2, 2, 0},
                                         PoolCase{{2, 7, 5, 3}, 2, 2, 0},    // a border is left out
                                         PoolCase{{1, 7, 7, 5}, 3, 2, 1},    // overlapping, padded
                                         PoolCase{{2, 5, 6, 19}, 3, 1, 1},   // beyond one vector
                                         PoolCase{{1, 9, 9, 2}, 2, 3, 0},    // gaps
                                         PoolCase{{3, 4, 4, 33}, 4, 4, 0},   // whole image
                                         PoolCase{{0, 6, 6, 4}, 2, 2, 0}));  // an empty batch

TEST_F(OpTest, MaxPoolGivesTheGradientToOneOfEqualElements) {
  Tensor x = Tensor::zeros(*backend_, {1, 2, 2, 1});
  x.set_requires_grad(true);
  const Tensor y = max_pool2d(x, {2});
  const Tensor three = Tensor::from<float>(*backend_, {1, 1, 1, 1}, std::vector<float>{3.0F});
  backward(y, {.gradient = three});
  EXPECT_EQ(x.grad().host_values<float>(), (std::vector<float>{3.0F, 0.0F, 0.0F, 0.0F}));
}

TEST_F(OpTest, MaxPoolHandsNaNAndMinusInfinityOn) {
  const Tensor x = Tensor::from<float>(
      *backend_, {2, 2, 2, 1},
      std::vector<float>{1, NAN, 3, 2, -INFINITY, -INFINITY, -INFINITY, -INFINITY});
  const auto y = max_pool2d(x, {2});
  EXPECT_TRUE(std::isnan(y.host_values<float>()[0]));
  EXPECT_EQ(y.host_values<float>()[1], -INFINITY);
}

// Each window has three places of padding and one element.
TEST_F(OpTest, MaxPoolGivesNoGradientToPadding) {
  for (const float value : {-INFINITY, -1.0F}) {
    Tensor x = Tensor::from<float>(*backend_, {1, 2, 2, 1}, std::vector<float>(4, value));
    x.set_requires_grad(true);
    const Tensor y = max_pool2d(x, {2, 2, 1});
    const std::vector<float> gradients{1, 2, 3, 4};
    backward(y, {.gradient = Tensor::from<float>(*backend_, {1, 2, 2, 1}, gradients)});
    EXPECT_EQ(y.host_values<float>(), std::vector<float>(4, value));
    EXPECT_EQ(x.grad().host_values<float>(), gradients);
  }
}

TEST_F(OpTest, MaxPoolRefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros(*backend_, {1, 4, 4, 1});
  EXPECT_THROW(max_pool2d(x, {0}), Error);
  EXPECT_THROW(max_pool2d(x, {5}), Error);
  EXPECT_THROW(max_pool2d(x, {2, 1, 2}), Error);
  EXPECT_THROW(max_pool2d(x, {2, -1}), Error);
  EXPECT_THROW(max_pool2d(Tensor::zeros(*backend_, {4, 4}), {2}), Error);
  EXPECT_THROW(max_pool2d(Tensor::zeros(*backend_, {1, 0, 4, 4}), {2, 1, 1}), Error);
}

TEST_F(OpTest, GlobalAvgPoolGradientsAreThoseOfFiniteDifferences) {
  for (const Shape& shape :
       {Shape{2, 4, 4, 16}, Shape{3, 5, 3, 7}, Shape{1, 1, 1, 1}, Shape{0, 4, 4, 3}}) {
    reference::check_operation(
        *backend_, [](const std::vector<Tensor>& in) { return global_avg_pool(in[0]); },
        [](const std::vector<Array>& in) { return reference::global_avg_pool(in[0]); },
        {random_array(shape)}, random_);
  }
  EXPECT_THROW(global_avg_pool(Tensor::zeros(*backend_, {2, 0, 3, 4})), Error);
  // Sums in turn would be a percent off.
  const std::vector<float> tenths(1500 * 1501, 0.1F);
  const Tensor large = Tensor::from<float>(*backend_, {1, 1500, 1501, 1}, tenths);
  EXPECT_NEAR(global_avg_pool(large).item(), 0.1, 1e-6);
}

TEST_F(OpTest, PoolingLayersKnowTheirShapes) {
  const MaxPool2d layer({.kernel = 3, .stride = 2, .padding = 1});
  EXPECT_EQ(layer.output_shape({2, 32, 32, 8}), (Shape{2, 16, 16, 8}));
  EXPECT_EQ(layer.kind(), "MaxPool2d(3, stride 2, padding 1)");
  EXPECT_EQ(GlobalAvgPool().output_shape({2, 8, 8, 64}), (Shape{2, 64}));
  EXPECT_THROW(GlobalAvgPool().output_shape({2, 8}), Error);
}

}  // namespace
}  // namespace dlaunch::nn
