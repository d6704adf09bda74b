// Batch norm whose batch is cut into parts (ghost batches): against each part normalised by itself
// in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "nn/layers/batch_norm.h"
#include "tests/nn/batch_norm_reference.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;
using ::testing::HasSubstr;

struct GhostCase {
  Shape x;
  std::int64_t parts = 1;
  NormActivation activation = NormActivation::kNone;
  bool residual = false;
  std::optional<Pool2dOptions> pool = std::nullopt;
};

/// Where each part of so many samples begins, and the end.
std::vector<std::int64_t> borders(std::int64_t samples, std::int64_t parts) {
  std::vector<std::int64_t> all;
  for (std::int64_t part = 0; part <= parts; ++part) all.push_back(samples * part / parts);
  return all;
}

Array samples_of(const Array& batch, std::int64_t begin, std::int64_t end) {
  Array part(batch.shape.with(0, end - begin));
  const std::int64_t sample = batch.shape.size() / batch.shape[0];
  std::copy_n(batch.values.begin() + begin * sample, (end - begin) * sample, part.values.begin());
  return part;
}

class GhostBatchNorm : public OpTest {};

class GhostBatchNormCases : public GhostBatchNorm, public testing::WithParamInterface<GhostCase> {};

/// Parts of different sizes, more parts than samples, rows that take packs of channels and that do
/// not.
INSTANTIATE_TEST_SUITE_P(
    Cases, GhostBatchNormCases,
    testing::Values(GhostCase{{10, 2, 3, 5}, 3}, GhostCase{{7, 4, 4, 16}, 2},
                    GhostCase{{9, 5, 3, 8}, 4, NormActivation::kCelu},
                    GhostCase{{3, 3, 3, 24}, 5, NormActivation::kCelu},
                    GhostCase{{21, 6}, 7, NormActivation::kSilu},
                    GhostCase{{17, 32}, 4, NormActivation::kGelu},
                    GhostCase{{5, 4, 4, 16}, 2, NormActivation::kNone, true},
                    GhostCase{{5, 4, 6, 16}, 3, NormActivation::kCelu, false, {{2}}},
                    GhostCase{{7, 5, 5, 3}, 4, NormActivation::kNone, false, {{2}}},
                    GhostCase{{4, 9, 6, 8}, 2, NormActivation::kSilu, false, {{3}}},
                    GhostCase{{4, 6, 6, 8}, 2, NormActivation::kCelu, false, {{3, 2, 1}}}));

TEST_P(GhostBatchNormCases, NormaliseEachPartByItself) {
  const GhostCase& given = GetParam();
  BatchNorm layer(*backend_, given.x[-1],
                  {.parts = given.parts,
                   .activation = given.activation,
                   .celu_alpha = kReferenceAlpha,
                   .pool = given.pool});
  BatchNormReference norm{.channels = static_cast<std::size_t>(given.x[-1])};
  give_values(layer, norm, random_);
  const auto pooled = [&](const Array& x) {
    if (!given.pool.has_value()) return x;
    const std::int64_t stride = given.pool->stride == 0 ? given.pool->kernel : given.pool->stride;
    return reference::max_pool2d(x, given.pool->kernel, stride, given.pool->padding);
  };
  const auto plain = [&](const std::vector<Array>& in) {
    Array y = pooled(in[0]);
    const std::int64_t samples = y.shape[0];
    const std::int64_t sample = y.shape.size() / samples;
    const std::vector<std::int64_t> all = borders(samples, given.parts);
    for (std::size_t part = 0; part + 1 < all.size(); ++part) {
      if (all[part] == all[part + 1]) continue;
      norm.forward(samples_of(y, all[part], all[part + 1]).values);
      std::copy(norm.y.begin(), norm.y.end(), y.values.begin() + all[part] * sample);
    }
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      const double added = given.residual ? in[1].values[i] : 0.0;
      y.values[i] = activation_reference(given.activation, y.values[i] + added).value;
    }
    return y;
  };
  std::vector<Array> inputs{distinct_array(given.x)};
  if (given.residual) inputs.push_back(random_array(given.x));
  reference::check_operation(
      *backend_,
      [&](const std::vector<Tensor>& in) {
        return layer.forward(in[0], given.residual ? in[1] : Tensor());
      },
      plain, inputs, random_, 5e-5);
}

// With a residual and ReLU, whose mask the residual gets too.
TEST_F(GhostBatchNorm, AddsUpTheGradientsOfItsParametersOverTheParts) {
  constexpr std::int64_t kSamples = 11, kChannels = 5, kParts = 3;
  BatchNorm layer(*backend_, kChannels, {.parts = kParts, .activation = NormActivation::kRelu});
  BatchNormReference expected{.channels = kChannels};
  give_values(layer, expected, random_);
  const Shape shape{kSamples, 2, 3, kChannels};
  const Array x = random_array(shape), dy = random_array(shape), added = random_array(shape);
  Tensor input = reference::to_tensor(*backend_, x);
  Tensor residual = reference::to_tensor(*backend_, added);
  input.set_requires_grad(true);
  residual.set_requires_grad(true);
  backward(layer.forward(input, residual), {.gradient = reference::to_tensor(*backend_, dy)});
  const auto dx = input.grad().host_values<float>();
  const auto dresidual = residual.grad().host_values<float>();
  std::vector<double> dgamma(kChannels), dbeta(kChannels);
  const std::vector<std::int64_t> all = borders(kSamples, kParts);
  std::size_t done = 0;
  for (std::size_t part = 0; part < kParts; ++part) {
    const auto of_part = [&](const Array& whole) {
      return samples_of(whole, all[part], all[part + 1]).values;
    };
    expected.forward(of_part(x));
    std::vector<double> dz = of_part(dy);
    for (std::size_t i = 0; i < dz.size(); ++i)
      if (expected.y[i] + of_part(added)[i] <= 0) dz[i] = 0;
    expected.backward(of_part(x), dz);
    for (std::size_t i = 0; i < dz.size(); ++i, ++done) {
      EXPECT_NEAR(dx[done], expected.dx[i], 1e-5);
      EXPECT_NEAR(dresidual[done], dz[i], 1e-6);
    }
    for (std::size_t c = 0; c < kChannels; ++c) {
      dgamma[c] += expected.dgamma[c];
      dbeta[c] += expected.dbeta[c];
    }
  }
  for (const NamedParameter& parameter : layer.parameters()) {
    const auto gradient = parameter.tensor.grad().host_values<float>();
    const std::vector<double>& wanted = parameter.name == "weight" ? dgamma : dbeta;
    for (std::size_t c = 0; c < kChannels; ++c) EXPECT_NEAR(gradient[c], wanted[c], 1e-4);
  }
}

TEST_F(GhostBatchNorm, In16BitsIsThatOfF32Rounded) {
  const Shape shape{7, 2, 3, 8};
  const Array x = random_bf16(shape), dy = random_bf16(shape);
  const auto run = [&](DType type) {
    BatchNorm layer(*backend_, 8, {.parts = 3, .activation = NormActivation::kCelu});
    Tensor input = convert(reference::to_tensor(*backend_, x), type);
    input.set_requires_grad(true);
    const Tensor output = layer.forward(input);
    EXPECT_EQ(output.dtype(), type);
    backward(output, {.gradient = convert(reference::to_tensor(*backend_, dy), type)});
    auto values = convert(output, DType::kF32).host_values<float>();
    const auto gradient = convert(input.grad(), DType::kF32).host_values<float>();
    values.insert(values.end(), gradient.begin(), gradient.end());
    return values;
  };
  const auto exact = run(DType::kF32);
  for (const DType type : types()) {
    const auto rounded = run(type);
    for (std::size_t i = 0; i < exact.size(); ++i)
      EXPECT_NEAR(rounded[i], exact[i], 1e-5 + std::abs(exact[i]) / 256);
  }
}

TEST_F(GhostBatchNorm, EvaluatesWithTheAverageOfItsPartsStatistics) {
  constexpr std::int64_t kParts = 4;
  constexpr double kMomentum = 0.3;
  BatchNorm layer(*backend_, 2, {.momentum = kMomentum, .affine = false, .parts = kParts});
  const Array x = random_array({17, 2});
  layer.forward(reference::to_tensor(*backend_, x));
  layer.forward(Tensor::zeros(*backend_, {0, 2}));  // says nothing
  std::vector<double> mean(2, 0.0), variance(2, 1 - kMomentum);
  const std::vector<std::int64_t> all = borders(17, kParts);
  for (std::size_t part = 0; part < kParts; ++part) {
    BatchNormReference own{.channels = 2};
    own.forward(samples_of(x, all[part], all[part + 1]).values);
    const auto rows = static_cast<double>(all[part + 1] - all[part]);
    for (std::size_t c = 0; c < 2; ++c) {
      mean[c] += kMomentum * own.mean[c] / kParts;
      variance[c] += kMomentum * own.variance[c] * rows / (rows - 1) / kParts;
    }
  }
  for (const NamedBuffer& buffer : layer.buffers()) {
    const auto values = buffer.tensor.host_values<float>();
    const std::vector<double>& expected = buffer.name == "running_mean" ? mean : variance;
    for (std::size_t c = 0; c < 2; ++c) EXPECT_NEAR(values[c], expected[c], 1e-5);
  }
  layer.eval();
  const auto y = layer.forward(Tensor::from<float>(*backend_, {1, 2}, std::array{1.5F, 3.F}))
                     .host_values<float>();
  for (std::size_t c = 0; c < 2; ++c)
    EXPECT_NEAR(
        y[c], (1.5 * (1 + static_cast<double>(c)) - mean[c]) / std::sqrt(variance[c] + 1e-5), 1e-5);
}

TEST_F(GhostBatchNorm, TakesTheAverageOverPartsThatHaveSamples) {
  BatchNorm layer(*backend_, 1, {.momentum = 1, .affine = false, .parts = 4});
  layer.forward(Tensor::from<float>(*backend_, {2, 1, 2, 1}, std::vector<float>{0, 2, 9, 13}));
  EXPECT_NEAR(layer.buffers()[0].tensor.host_values<float>()[0], (1 + 11) / 2.0, 1e-6);
  EXPECT_NEAR(layer.buffers()[1].tensor.host_values<float>()[0], (2 + 8) / 2.0, 1e-5);
}

TEST_F(GhostBatchNorm, PartsWithoutSamplesAddNothingToGradientsEvenWithoutEps) {
  for (const std::int64_t samples : {0, 2}) {
    BatchNorm layer(*backend_, 1, {.eps = 0, .parts = 4});
    Tensor x = reference::to_tensor(*backend_, random_array({samples, 2, 2, 1}));
    x.set_requires_grad(true);
    backward(layer.forward(x),
             {.gradient = reference::to_tensor(*backend_, random_array({samples, 2, 2, 1}))});
    for (const NamedParameter& parameter : layer.parameters()) {
      const float gradient = parameter.tensor.grad().host_values<float>()[0];
      EXPECT_TRUE(std::isfinite(gradient)) << parameter.name;
      EXPECT_EQ(gradient != 0, samples > 0) << parameter.name;
    }
  }
}

TEST_F(GhostBatchNorm, TakesFewerSamplesThanParts) {
  BatchNorm layer(*backend_, 2, {.affine = false, .parts = 4});
  const auto y = layer.forward(reference::to_tensor(*backend_, random_array({2, 4, 4, 2})));
  for (const float value : y.host_values<float>()) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(layer.forward(Tensor::zeros(*backend_, {0, 2})).size(), 0);
  EXPECT_NO_THROW(backend_->synchronize());
}

TEST_F(GhostBatchNorm, RefusesAPartOfOneValueAndPartsThatAreNone) {
  BatchNorm layer(*backend_, 2, {.parts = 4});
  try {
    layer.forward(Tensor::zeros(*backend_, {7, 2}));  // parts of 1, 2, 2 and 2
    backend_->synchronize();
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("single"));
  }
  EXPECT_THROW(
      {
        layer.forward(Tensor::zeros(*backend_, {1, 2}));  // parts of 0, 0, 0 and 1
        backend_->synchronize();
      },
      Error);
  for (const std::int64_t parts : {0, -1, 65536}) {
    EXPECT_THROW(BatchNorm(*backend_, 2, {.parts = parts}), Error);
  }
  EXPECT_THROW(BatchNorm(*backend_, 2, {.activation = NormActivation::kCelu, .celu_alpha = 0}),
               Error);
}

TEST_F(GhostBatchNorm, IsNamedWithWhatItDoes) {
  EXPECT_EQ(BatchNorm(*backend_, 8, {.scale = false, .parts = 16}).kind(),
            "BatchNorm(8, no scale, 16 parts)");
}

}  // namespace
}  // namespace dlaunch::nn
