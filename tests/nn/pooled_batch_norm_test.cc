// Batch norm that pools its input first: against pooling and normalisation in double, and against
// MaxPool2d and BatchNorm one after the other, whose bits it gives.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "nn/layers/batch_norm.h"
#include "nn/layers/pooling.h"
#include "tests/nn/batch_norm_reference.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

struct PooledCase {
  Shape x;
  Pool2dOptions pool;
};

/// Windows of 2x2 and 3x3 beside each other, with borders that no window has; overlapping ones,
/// ones with padding or gaps, and large ones.
const std::vector<PooledCase> kCases{
    {{2, 6, 6, 16}, {2}},    {{3, 7, 5, 3}, {2}},       {{2, 4, 3, 8}, {2}},
    {{2, 9, 15, 31}, {2}},   {{5, 15, 15, 64}, {2}},    {{2, 9, 6, 24}, {3}},
    {{3, 11, 7, 5}, {3}},    {{2, 10, 8, 16}, {3}},     {{2, 7, 7, 5}, {3, 2, 1}},
    {{2, 5, 6, 19}, {2, 1}}, {{2, 6, 6, 8}, {2, 2, 1}}, {{2, 9, 9, 4}, {2, 3}},
    {{5, 4, 4, 33}, {4}},    {{9, 3, 2, 7}, {1}}};

class PooledBatchNorm : public OpTest {
 protected:
  static Tensor buffer(const BatchNorm& layer, const std::string& name) {
    for (const NamedBuffer& buffer : layer.buffers())
      if (buffer.name == name) return buffer.tensor;
    return {};
  }
};

class PooledBatchNormShapes : public PooledBatchNorm,
                              public testing::WithParamInterface<PooledCase> {};
INSTANTIATE_TEST_SUITE_P(Shapes, PooledBatchNormShapes, testing::ValuesIn(kCases));

TEST_P(PooledBatchNormShapes, EqualsPoolingAndNormalisationInDouble) {
  const Shape& shape = GetParam().x;
  const Pool2dOptions& pool = GetParam().pool;
  BatchNorm layer(*backend_, shape[-1], {.pool = pool});
  BatchNormReference norm{.channels = static_cast<std::size_t>(shape[-1])};
  give_values(layer, norm, random_);
  const Array x = distinct_array(shape);
  const std::int64_t stride = pool.stride == 0 ? pool.kernel : pool.stride;
  const auto plain = [&](const std::vector<Array>& in) {
    Array y = reference::max_pool2d(in[0], pool.kernel, stride, pool.padding);
    norm.forward(y.values);
    y.values = norm.y;
    return y;
  };
  reference::check_operation(
      *backend_, [&](const std::vector<Tensor>& in) { return layer.forward(in[0]); }, plain, {x},
      random_, 2e-5);

  const auto rows = static_cast<double>(norm.y.size() / norm.channels);
  const auto mean = buffer(layer, "running_mean").host_values<float>();
  const auto variance = buffer(layer, "running_var").host_values<float>();
  plain({x});
  for (std::size_t c = 0; c < norm.channels; ++c) {
    const double unbiased = norm.variance[c] * rows / (rows - 1);
    EXPECT_NEAR(mean[c], 0.1 * norm.mean[c], 1e-5 * std::max(1.0, std::abs(norm.mean[c])));
    EXPECT_NEAR(variance[c], 0.9 + 0.1 * unbiased, 1e-5 * (1 + unbiased));
  }
}

/// What a layer makes of an input, and the gradients that reach it and its parameters.
struct Outcome {
  std::vector<std::vector<float>> values;

  void expect_same_bits(const Outcome& other, const std::string& what) const {
    ASSERT_EQ(values.size(), other.values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      // But for the sign of a zero: pooling's backward adds to one, which takes it away.
      EXPECT_EQ(values[i], other.values[i]) << what << ", tensor " << i;
    }
  }
};

class PooledBatchNormBits : public PooledBatchNormShapes {
 protected:
  struct Batch {
    Array x, residual, dy;
    DType type;
  };

  Tensor given(const Array& values, DType type) {
    return convert(reference::to_tensor(*backend_, values), type);
  }
  /// With the layer's own pooling, or pooling it before.
  Outcome outcome_of(BatchNormOptions options, bool fused, bool training, const Batch& batch) {
    const Pool2dOptions pool = GetParam().pool;
    options.pool = fused ? std::optional(pool) : std::nullopt;
    BatchNorm layer(*backend_, batch.x.shape[-1], options);
    for (const NamedBuffer& buffer : layer.buffers())
      buffer.tensor.set_values<float>(
          std::vector<float>(static_cast<std::size_t>(buffer.tensor.size()), 0.75F));
    layer.train(training);
    Tensor x = given(batch.x, batch.type);
    x.set_requires_grad(true);
    Tensor residual = given(batch.residual, batch.type);
    residual.set_requires_grad(true);
    const bool added = options.activation == NormActivation::kRelu;
    const Tensor y = layer.forward(fused ? x : max_pool2d(x, pool), added ? residual : Tensor());
    backward(y, {.gradient = given(batch.dy, batch.type)});
    Outcome outcome;
    const auto keep = [&](const Tensor& tensor) {
      outcome.values.push_back(convert(tensor, DType::kF32).host_values<float>());
    };
    keep(y);
    keep(x.grad());
    if (added) keep(residual.grad());
    for (const NamedParameter& parameter : layer.parameters()) keep(parameter.tensor.grad());
    for (const NamedBuffer& buffer : layer.buffers()) keep(buffer.tensor);
    return outcome;
  }
};
INSTANTIATE_TEST_SUITE_P(Shapes, PooledBatchNormBits, testing::ValuesIn(kCases));

TEST_P(PooledBatchNormBits, AreThoseOfPoolingAndNormalisingOneAfterTheOther) {
  const Shape result = max_pool2d_geometry(GetParam().x, GetParam().pool).output();
  for (const DType type : types()) {
    Batch batch{random_array(GetParam().x), random_bf16(result), random_bf16(result), type};
    for (double& value : batch.x.values) value = std::round(4 * value);  // so that many are equal
    for (const auto activation :
         {NormActivation::kNone, NormActivation::kRelu, NormActivation::kGelu,
          NormActivation::kSilu, NormActivation::kCelu})
      for (const bool training : {true, false}) {
        const BatchNormOptions options{.activation = activation};
        outcome_of(options, true, training, batch)
            .expect_same_bits(outcome_of(options, false, training, batch),
                              std::string(to_string(type)) + ", " +
                                  BatchNorm(*backend_, 1, options).kind() +
                                  (training ? ", training" : ", evaluation"));
      }
  }
}

TEST_F(PooledBatchNorm, GivesTheGradientToTheFirstOfEqualElementsAndNoneToTheBorder) {
  BatchNorm layer(*backend_, 1, {.affine = false, .pool = {{.kernel = 2}}});
  // Two images of one window each, and a border below and to the right.
  Tensor x =
      Tensor::from<float>(*backend_, {2, 3, 3, 1},
                          std::vector<float>{1, 5, 9, 5, 5, 9, 9, 9, 9, 2, 2, 9, 2, 2, 9, 9, 9, 9});
  x.set_requires_grad(true);
  backward(layer.forward(x),
           {.gradient = Tensor::from<float>(*backend_, {2, 1, 1, 1}, std::vector<float>{1, 0})});
  const auto dx = x.grad().host_values<float>();
  // Of two values the one's gradient is nearly 0 and the other's its negative.
  for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_EQ(dx[i] != 0, i == 1 || i == 9) << i;
}

TEST_F(PooledBatchNorm, HandsNotANumberOnInItsChannel) {
  BatchNorm layer(*backend_, 8, {.pool = {{.kernel = 2}}});
  Array x = random_array({2, 4, 6, 8});
  x.at(1, 2, 3, 5) = std::numeric_limits<double>::quiet_NaN();
  const auto y = layer.forward(reference::to_tensor(*backend_, x)).host_values<float>();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i % 8 == 5) << i;
}

TEST_F(PooledBatchNorm, VarianceSurvivesAMeanFarAboveTheDeviation) {
  for (const std::int64_t channels : {9, 16}) {
    BatchNorm layer(*backend_, channels, {.momentum = 1.0, .affine = false, .pool = {{2}}});
    Array x({16, 16, 16, channels});
    const auto values = normal_values(x.values.size(), random_, 1000.0);
    std::copy(values.begin(), values.end(), x.values.begin());
    const auto y = layer.forward(reference::to_tensor(*backend_, x)).host_values<float>();
    BatchNormReference expected{.channels = static_cast<std::size_t>(channels)};
    expected.forward(reference::max_pool2d(x, 2, 2, 0).values);
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected.y[i], 2e-5);
    const auto variance = buffer(layer, "running_var").host_values<float>();
    for (std::size_t c = 0; c < expected.channels; ++c) {
      const double unbiased = expected.variance[c] * 1024 / 1023;
      EXPECT_NEAR(variance[c], unbiased, 2e-5 * unbiased);
    }
  }
}

TEST_F(PooledBatchNorm, AnEmptyBatchRunsBothWaysAndChangesNothing) {
  BatchNorm layer(*backend_, 8, {.pool = {{.kernel = 2}}});
  Tensor x = Tensor::zeros(*backend_, {0, 5, 4, 8});
  x.set_requires_grad(true);
  const Tensor y = layer.forward(x);
  EXPECT_EQ(y.shape(), (Shape{0, 2, 2, 8}));
  backward(y, {.gradient = Tensor::zeros(*backend_, y.shape())});
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(buffer(layer, "running_mean").host_values<float>(), std::vector<float>(8, 0.0F));
  EXPECT_EQ(buffer(layer, "running_var").host_values<float>(), std::vector<float>(8, 1.0F));
}

TEST_F(PooledBatchNorm, WithoutGradientsNothingIsKept) {
  BatchNorm layer(*backend_, 16, {.pool = {{.kernel = 2}}});
  const NoGradGuard guard;
  for (const bool training : {true, false}) {
    layer.train(training);
    Tensor x = reference::to_tensor(*backend_, random_array({4, 32, 32, 16}));
    const std::size_t before = backend_->memory().in_use;
    backend_->reset_peak();
    const Tensor y = layer.forward(std::move(x));
    constexpr std::size_t kPooled = std::size_t{4} * 16 * 16 * 16 * sizeof(float);
    EXPECT_LT(backend_->memory().peak, before + kPooled + 4096);
    EXPECT_EQ(y.shape(), (Shape{4, 16, 16, 16}));
  }
}

TEST_F(PooledBatchNorm, KnowsWhatItMakesAndRefusesWhatDoesNotFit) {
  BatchNorm layer(*backend_, 4, {.scale = false, .pool = {{.kernel = 2}}});
  EXPECT_EQ(layer.kind(), "BatchNorm(4, no scale, after MaxPool2d(2))");
  EXPECT_EQ(layer.output_shape({3, 7, 4, 4}), (Shape{3, 3, 2, 4}));
  EXPECT_THROW(layer.output_shape({3, 4}), Error);
  EXPECT_THROW(layer.output_shape({3, 4, 4, 5}), Error);
  EXPECT_THROW(layer.output_shape({3, 1, 4, 4}), Error);
  const Tensor x = Tensor::zeros(*backend_, {2, 4, 4, 4});
  EXPECT_THROW(layer.forward(x, x), Error);
  EXPECT_NO_THROW(layer.forward(x, Tensor::zeros(*backend_, {2, 2, 2, 4})));
  // Of four pixels a single value per channel is left; a device says so once it is there.
  EXPECT_THROW(layer.forward(Tensor::zeros(*backend_, {1, 2, 2, 4})).host_values<float>(), Error);
}

}  // namespace
}  // namespace dlaunch::nn
