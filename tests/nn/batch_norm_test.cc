#include "nn/layers/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/core/ops.h"
#include "tests/nn/batch_norm_reference.h"
#include "tests/nn/test_backend.h"

namespace dlaunch::nn {
namespace {

class BatchNormTest : public testing::Test {
 protected:
  Tensor tensor(const Shape& shape, const std::vector<float>& values) {
    return Tensor::from(*backend_, shape, values);
  }
  Tensor leaf(const Shape& shape, const std::vector<float>& values) {
    Tensor x = tensor(shape, values);
    x.set_requires_grad(true);
    return x;
  }
  std::vector<float> normal(std::int64_t count, double mean = 0, double deviation = 1) {
    return normal_values(static_cast<std::size_t>(count), random_, mean, deviation);
  }
  /// Gives the parameters random values and returns them as the reference wants them.
  BatchNormReference randomise(BatchNorm& layer, std::int64_t channels) {
    BatchNormReference reference{.channels = static_cast<std::size_t>(channels)};
    for (const NamedParameter& parameter : layer.parameters()) {
      const std::vector<float> values = normal(channels, 0.5);
      parameter.tensor.set_values<float>(values);
      (parameter.name == "weight" ? reference.gamma : reference.beta) = in_double(values);
    }
    return reference;
  }

  static void expect_near(std::span<const float> actual, const std::vector<double>& expected,
                          double tolerance, const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], tolerance) << what << " at " << i;
    }
  }
  static std::vector<float> values(const Tensor& t) { return t.host_values<float>(); }
  static Tensor named(const BatchNorm& layer, const std::string& name) {
    for (const NamedParameter& p : layer.parameters()) {
      if (p.name == name) return p.tensor;
    }
    for (const NamedBuffer& b : layer.buffers()) {
      if (b.name == name) return b.tensor;
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }

  std::unique_ptr<Backend> backend_ = make_test_backend();
  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

class BatchNormShapes : public BatchNormTest, public testing::WithParamInterface<Shape> {};

TEST_P(BatchNormShapes, EqualsThePlainDoubleReference) {
  const Shape shape = GetParam();
  const std::int64_t channels = shape[-1];
  BatchNorm layer(*backend_, channels);
  BatchNormReference reference = randomise(layer, channels);
  const std::vector<float> x = normal(shape.size(), 0.3, 1.5);
  const std::vector<float> dy = normal(shape.size());
  const Tensor input = leaf(shape, x);

  const Tensor output = layer.forward(input);
  backward(output, {.gradient = tensor(shape, dy)});

  reference.forward(in_double(x));
  reference.backward(in_double(x), in_double(dy));
  expect_near(values(output), reference.y, 1e-5, "output");
  // Of two rows, the standard deviation may be near 0 and the gradient steep.
  const double steepest =
      1 / std::sqrt(*std::min_element(reference.variance.begin(), reference.variance.end()));
  expect_near(values(input.grad()), reference.dx, 1e-5 * std::max(1.0, steepest), "dx");
  const std::int64_t rows = shape.size() / channels;
  const double terms = std::sqrt(static_cast<double>(rows));
  expect_near(values(named(layer, "weight").grad()), reference.dgamma, 2e-5 * terms, "dgamma");
  expect_near(values(named(layer, "bias").grad()), reference.dbeta, 2e-5 * terms, "dbeta");
}

INSTANTIATE_TEST_SUITE_P(Shapes, BatchNormShapes,
                         testing::Values(Shape{8, 1}, Shape{3, 5}, Shape{32, 128}, Shape{64, 257},
                                         Shape{129, 31}, Shape{4, 5, 7, 3}, Shape{2, 8, 8, 16},
                                         Shape{1, 3, 2, 17}, Shape{3, 40, 41, 67}));

struct Fusion {
  NormActivation activation = NormActivation::kNone;
  bool residual = false;
  Shape shape;
  bool affine = true;
};

class FusedBatchNorm : public BatchNormTest, public testing::WithParamInterface<Fusion> {};

TEST_P(FusedBatchNorm, EqualsNormalisationAdditionAndActivationInDouble) {
  const Shape shape = GetParam().shape;
  const NormActivation activation = GetParam().activation;
  BatchNorm layer(
      *backend_, shape[-1],
      {.affine = GetParam().affine, .activation = activation, .celu_alpha = kReferenceAlpha});
  BatchNormReference reference = randomise(layer, shape[-1]);
  const std::vector<float> x = normal(shape.size(), 0.3, 1.5);
  const double deviation = GetParam().residual ? 1 : 0;
  const std::vector<float> added = normal(shape.size(), 0.2 * deviation, deviation);
  const std::vector<float> dy = normal(shape.size());
  const Tensor input = leaf(shape, x);
  const Tensor residual = GetParam().residual ? leaf(shape, added) : Tensor();

  const Tensor output = layer.forward(input, residual);
  backward(output, {.gradient = tensor(shape, dy)});

  reference.forward(in_double(x));
  std::vector<double> expected(x.size());
  std::vector<double> dz(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at =
        activation_reference(activation, reference.y[i] + static_cast<double>(added[i]));
    expected[i] = at.value;
    dz[i] = static_cast<double>(dy[i]) * at.slope;
  }
  reference.backward(in_double(x), dz);
  expect_near(values(output), expected, 1e-5, "output");
  expect_near(values(input.grad()), reference.dx, 1e-5, "dx");
  if (GetParam().residual) expect_near(values(residual.grad()), dz, 1e-6, "residual's gradient");
  if (!GetParam().affine) return;
  expect_near(values(named(layer, "weight").grad()), reference.dgamma, 2e-4, "dgamma");
  expect_near(values(named(layer, "bias").grad()), reference.dbeta, 2e-4, "dbeta");
}

INSTANTIATE_TEST_SUITE_P(Fusions, FusedBatchNorm,
                         testing::Values(Fusion{NormActivation::kRelu, false, {3, 5, 4, 33}},
                                         Fusion{NormActivation::kRelu, true, {3, 5, 4, 33}},
                                         Fusion{NormActivation::kNone, true, {3, 5, 4, 33}},
                                         Fusion{NormActivation::kGelu, false, {3, 5, 4, 33}},
                                         Fusion{NormActivation::kSilu, false, {3, 5, 4, 33}},
                                         Fusion{NormActivation::kCelu, false, {3, 5, 4, 33}},
                                         Fusion{NormActivation::kCelu, false, {2, 6, 3, 24}, false},
                                         Fusion{NormActivation::kRelu, false, {4, 7, 3, 16}, false},
                                         Fusion{NormActivation::kGelu, false, {4, 7, 3, 16}, false},
                                         Fusion{NormActivation::kSilu, false, {65, 24}, false}),
                         [](const auto& instance) { return std::to_string(instance.index); });

// Backward makes the argument again: the same bits, or this would count others.
TEST_F(BatchNormTest, GradientGoesThroughReluWhereTheOutputIsAboveZero) {
  constexpr std::int64_t kChannels = 16;
  const Shape shape{64, 9, 9, kChannels};
  BatchNorm layer(*backend_, kChannels, {.activation = NormActivation::kRelu});
  const Tensor output = layer.forward(leaf(shape, normal(shape.size(), 500)));
  const std::vector<float> ones(static_cast<std::size_t>(shape.size()), 1.0F);
  backward(output, {.gradient = tensor(shape, ones)});
  std::vector<double> above(kChannels, 0.0);
  const std::vector<float> y = values(output);
  for (std::size_t i = 0; i < y.size(); ++i) above[i % kChannels] += y[i] > 0 ? 1 : 0;
  expect_near(values(named(layer, "bias").grad()), above, 0, "outputs above zero");
}

TEST_F(BatchNormTest, KeepsNoArgumentOfItsActivation) {
  for (const NormActivation activation : {NormActivation::kRelu, NormActivation::kGelu}) {
    BatchNorm layer(*backend_, 64, {.activation = activation});
    const Shape shape{16, 8, 8, 64};
    const Tensor input = leaf(shape, normal(shape.size()));
    const std::size_t before = backend_->memory().in_use;
    Tensor output = layer.forward(input);
    EXPECT_LT(backend_->memory().in_use, before + values(output).size() * sizeof(float) + 4096);
  }
}

TEST_F(BatchNormTest, RefusesAResidualBeforeASmoothActivation) {
  BatchNorm layer(*backend_, 4, {.activation = NormActivation::kGelu});
  const Tensor x = tensor({2, 4}, normal(8));
  try {
    layer.forward(x, x);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("apply GELU after the layer"), std::string::npos)
        << error.what();
  }
}

TEST_F(BatchNormTest, RefusesAResidualThatDoesNotFit) {
  BatchNorm layer(*backend_, 4);
  const Tensor x = tensor({2, 4}, normal(8));
  EXPECT_THROW(layer.forward(x, tensor({4, 4}, normal(16))), Error);
  EXPECT_THROW(layer.forward(x, Tensor::zeros(*backend_, {2, 4}, DType::kBF16)), Error);
}

TEST_F(BatchNormTest, GradientsEqualFiniteDifferencesInDouble) {
  const Shape shape{3, 2, 2, 3};
  BatchNorm layer(*backend_, 3);
  const BatchNormReference reference = randomise(layer, 3);
  const std::vector<float> x = normal(shape.size());
  const std::vector<float> dy = normal(shape.size());
  const Tensor input = leaf(shape, x);
  backward(layer.forward(input), {.gradient = tensor(shape, dy)});

  // The loss sum(dy * y) as a function of everything, in double.
  const auto loss =
      [&](const std::function<void(BatchNormReference&, std::vector<double>&)>& move) {
        BatchNormReference moved = reference;
        std::vector<double> at = in_double(x);
        move(moved, at);
        moved.forward(at);
        double sum = 0;
        for (std::size_t i = 0; i < at.size(); ++i) sum += static_cast<double>(dy[i]) * moved.y[i];
        return sum;
      };
  constexpr double kStep = 1e-6;
  const auto slope = [&](auto place) {
    const double up = loss([&](auto& r, auto& at) { place(r, at) += kStep; });
    const double down = loss([&](auto& r, auto& at) { place(r, at) -= kStep; });
    return (up - down) / (2 * kStep);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = slope([i](auto&, auto& at) -> double& { return at[i]; });
    EXPECT_NEAR(values(input.grad())[i], expected, 2e-5) << "dx at " << i;
  }
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(values(named(layer, "weight").grad())[c],
                slope([c](auto& r, auto&) -> double& { return r.gamma[c]; }), 2e-5);
    EXPECT_NEAR(values(named(layer, "bias").grad())[c],
                slope([c](auto& r, auto&) -> double& { return r.beta[c]; }), 2e-5);
  }
}

TEST_F(BatchNormTest, RunningStatisticsFollowMeanAndUnbiasedVariance) {
  BatchNorm layer(*backend_, 5, {.momentum = 0.3});
  std::vector<double> mean(5, 0.0);
  std::vector<double> variance(5, 1.0);
  for (int batch = 0; batch < 3; ++batch) {
    const std::vector<float> x = normal(35, 2.0, 3.0);
    layer.forward(tensor({7, 5}, x));
    BatchNormReference reference{.channels = 5};
    reference.forward(in_double(x));
    for (std::size_t c = 0; c < 5; ++c) {
      mean[c] = 0.7 * mean[c] + 0.3 * reference.mean[c];
      variance[c] = 0.7 * variance[c] + 0.3 * reference.variance[c] * 7 / 6;
    }
  }
  expect_near(values(named(layer, "running_mean")), mean, 1e-5, "running mean");
  expect_near(values(named(layer, "running_var")), variance, 2e-5, "running variance");
}

TEST_F(BatchNormTest, EvaluationUsesRunningStatisticsAndLeavesThem) {
  BatchNorm layer(*backend_, 4);
  const BatchNormReference parameters = randomise(layer, 4);
  for (int i = 0; i < 3; ++i) layer.forward(tensor({16, 4}, normal(64, 1, 2)));
  layer.eval();
  const auto mean = in_double(values(named(layer, "running_mean")));
  const auto variance = in_double(values(named(layer, "running_var")));
  const std::vector<float> x = normal(8);  // two rows
  const std::vector<float> dy = normal(8);
  const Tensor input = leaf({2, 4}, x);
  const Tensor output = layer.forward(input);
  backward(output, {.gradient = tensor({2, 4}, dy)});
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % 4;
    const double slope = parameters.gamma[c] / std::sqrt(variance[c] + 1e-5);
    EXPECT_NEAR(values(output)[i],
                (static_cast<double>(x[i]) - mean[c]) * slope + parameters.beta[c], 1e-5);
    EXPECT_NEAR(values(input.grad())[i], static_cast<double>(dy[i]) * slope, 1e-5);
  }
  for (std::size_t c = 0; c < 4; ++c) {
    const double xhat0 = (static_cast<double>(x[c]) - mean[c]) / std::sqrt(variance[c] + 1e-5);
    const double xhat1 = (static_cast<double>(x[4 + c]) - mean[c]) / std::sqrt(variance[c] + 1e-5);
    EXPECT_NEAR(values(named(layer, "weight").grad())[c],
                static_cast<double>(dy[c]) * xhat0 + static_cast<double>(dy[4 + c]) * xhat1, 1e-5);
  }
  EXPECT_EQ(mean, in_double(values(named(layer, "running_mean"))));
  EXPECT_EQ(variance, in_double(values(named(layer, "running_var"))));
}

TEST_F(BatchNormTest, WithoutRunningStatisticsEvaluationUsesTheBatch) {
  BatchNorm layer(*backend_, 3, {.affine = false, .track_running_stats = false});
  EXPECT_TRUE(layer.parameters().empty());
  EXPECT_TRUE(layer.buffers().empty());
  layer.eval();
  const std::vector<float> x = normal(30, 5, 2);
  BatchNormReference reference{.channels = 3};
  reference.forward(in_double(x));
  expect_near(values(layer.forward(tensor({10, 3}, x))), reference.y, 1e-5, "output");
}

TEST_F(BatchNormTest, VarianceSurvivesAMeanFarAboveTheDeviation) {
  for (const double ratio : {1e2, 1e3, 1e4}) {
    BatchNorm layer(*backend_, 9, {.momentum = 1.0, .affine = false});
    const std::vector<float> x = normal(36864, ratio);
    const Tensor output = layer.forward(tensor({4096, 9}, x));
    BatchNormReference reference{.channels = 9};
    reference.forward(in_double(x));
    expect_near(values(output), reference.y, 2e-5, "output");
    for (std::size_t c = 0; c < 9; ++c) {
      const double expected = reference.variance[c] * 4096 / 4095;
      EXPECT_NEAR(values(named(layer, "running_var"))[c], expected, 1e-5 * expected);
    }
  }
}

TEST_F(BatchNormTest, VarianceSurvivesOutliers) {
  // Every 256th row, so also all those whose mean serves as shift, is far from the rest.
  std::vector<float> x = normal(12288);
  for (std::size_t row = 0; row < 4096; row += 256) {
    for (std::size_t c = 0; c < 3; ++c) x[row * 3 + c] += 1000.0F;
  }
  BatchNorm layer(*backend_, 3, {.momentum = 1.0});
  layer.forward(tensor({4096, 3}, x));
  BatchNormReference reference{.channels = 3};
  reference.forward(in_double(x));
  for (std::size_t c = 0; c < 3; ++c) {
    const double expected = reference.variance[c] * 4096 / 4095;
    EXPECT_NEAR(values(named(layer, "running_var"))[c], expected, 1e-4 * expected);
  }
}

TEST_F(BatchNormTest, AddsToGradientsThatAreThere) {
  BatchNorm layer(*backend_, 6);
  BatchNormReference reference = randomise(layer, 6);
  std::vector<double> dgamma(6);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const std::vector<float> x = normal(48);
    const std::vector<float> dy = normal(48);
    backward(layer.forward(tensor({8, 6}, x)), {.gradient = tensor({8, 6}, dy)});
    reference.forward(in_double(x));
    reference.backward(in_double(x), in_double(dy));
    for (std::size_t c = 0; c < 6; ++c) dgamma[c] += reference.dgamma[c];
  }
  expect_near(values(named(layer, "weight").grad()), dgamma, 2e-5, "dgamma");
}

TEST_F(BatchNormTest, AnEmptyBatchRunsBothWaysAndChangesNothing) {
  BatchNorm layer(*backend_, 7);
  for (const Shape& shape : {Shape{0, 7}, Shape{0, 4, 4, 7}}) {
    const Tensor input = leaf(shape, {});
    const Tensor output = layer.forward(input);
    EXPECT_EQ(output.shape(), shape);
    backward(output, {.gradient = tensor(shape, {})});
  }
  for (std::size_t c = 0; c < 7; ++c) {
    EXPECT_EQ(values(named(layer, "weight").grad())[c], 0.0F);
    EXPECT_EQ(values(named(layer, "running_mean"))[c], 0.0F);
    EXPECT_EQ(values(named(layer, "running_var"))[c], 1.0F);
  }
}

TEST_F(BatchNormTest, OneValuePerChannelIsRefusedInTrainingOnly) {
  BatchNorm layer(*backend_, 4);
  const std::vector<float> x = normal(4);
  EXPECT_THROW(values(layer.forward(tensor({1, 4}, x))), Error);  // on a device, once it is there
  EXPECT_THROW(values(layer.forward(tensor({1, 1, 1, 4}, x))), Error);
  for (std::size_t c = 0; c < 4; ++c) {
    EXPECT_EQ(values(named(layer, "running_mean"))[c], 0.0F);
    EXPECT_EQ(values(named(layer, "running_var"))[c], 1.0F);
  }
  EXPECT_NO_THROW(layer.forward(tensor({1, 2, 1, 4}, normal(8))));
  layer.eval();
  EXPECT_NO_THROW(layer.forward(tensor({1, 4}, x)));
}

TEST_F(BatchNormTest, ANotANumberStaysInItsChannel) {
  BatchNorm layer(*backend_, 3, {.affine = false});
  std::vector<float> x = normal(30);
  x[3 * 3 + 1] = std::nanf("");
  const Tensor output = layer.forward(tensor({10, 3}, x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(std::isnan(values(output)[i]), i % 3 == 1) << i;
  }
}

TEST_F(BatchNormTest, ANotANumberGoesThroughReluWhereverItComesFrom) {
  BatchNorm layer(*backend_, 5, {.activation = NormActivation::kRelu});
  const float nan = std::nanf("");
  std::vector<float> x = normal(50), added = normal(50);
  added[3 * 5 + 1] = nan;
  x[4 * 5 + 2] = nan;
  for (const bool residual : {true, false}) {
    const Tensor output = residual ? layer.forward(tensor({10, 5}, x), tensor({10, 5}, added))
                                   : layer.forward(tensor({10, 5}, x));
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(std::isnan(values(output)[i]), i % 5 == 2 || (residual && i == 3 * 5 + 1)) << i;
  }
}

// add() hands one gradient to both of its arguments; the norm's part of it is masked.
TEST_F(BatchNormTest, LeavesAGradientAsItIsThatOthersReadToo) {
  const Shape shape{6, 5};
  const std::vector<float> dy = normal(30), x = normal(30), added = normal(30);
  std::vector<float> w = normal(30);
  for (float& value : w) value = std::abs(value) + 0.1F;
  for (const bool norm_first : {true, false}) {
    BatchNorm layer(*backend_, 5, {.activation = NormActivation::kRelu});
    const Tensor residual = leaf(shape, added), other = leaf(shape, w);
    const Tensor normalised = layer.forward(leaf(shape, x), residual);
    const Tensor beside = relu(other);
    const Tensor given = tensor(shape, dy);
    backward(norm_first ? add(normalised, beside) : add(beside, normalised), {.gradient = given});
    EXPECT_EQ(values(other.grad()), dy);
    EXPECT_EQ(values(given), dy);
    for (std::size_t i = 0; i < dy.size(); ++i)
      EXPECT_EQ(values(residual.grad())[i], values(normalised)[i] > 0 ? dy[i] : 0) << i;
  }
}

TEST_F(BatchNormTest, WithoutRecordingASoleInputIsOverwritten) {
  BatchNorm layer(*backend_, 8);
  layer.eval();
  const NoGradGuard no_grad;
  Tensor input = tensor({4, 8}, normal(32));
  const float* memory = input.data<const float>();
  const Tensor output = layer.forward(std::move(input));
  EXPECT_EQ(output.data<const float>(), memory);
  const Tensor kept = tensor({4, 8}, normal(32));
  EXPECT_NE(layer.forward(kept).data<const float>(), kept.data<const float>());
}

TEST_F(BatchNormTest, RefusesOptionsOutOfRange) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const double most = std::numeric_limits<double>::infinity();
  for (const double momentum : {-0.1, 1.5, none})
    EXPECT_THROW(BatchNorm(*backend_, 2, {.momentum = momentum}), Error) << momentum;
  for (const double eps : {-1e-5, most, none})
    EXPECT_THROW(BatchNorm(*backend_, 2, {.eps = eps}), Error) << eps;
  for (const double allowed : {0.0, 1.0})
    EXPECT_NO_THROW(BatchNorm(*backend_, 2, {.eps = allowed, .momentum = allowed}));
}

TEST_F(BatchNormTest, RefusesOtherShapes) {
  BatchNorm layer(*backend_, 8);
  EXPECT_THROW(layer.forward(tensor({4, 7}, normal(28))), Error);
  EXPECT_THROW(layer.forward(tensor({8}, normal(8))), Error);
  EXPECT_THROW(layer.forward(tensor({2, 2, 8}, normal(32))), Error);
  EXPECT_THROW(BatchNorm(*backend_, 0), Error);
}

}  // namespace
}  // namespace dlaunch::nn
