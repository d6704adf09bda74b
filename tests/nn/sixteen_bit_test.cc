// Activations in bf16 and f16: every operation against its reference in double, and training.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nn/core/flat_parameters.h"
#include "nn/core/ops.h"
#include "nn/layers/batch_norm.h"
#include "nn/models/model.h"
#include "runtime/base/half.h"
#include "tests/nn/batch_norm_reference.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

// bf16 has 8 bits of mantissa: a rounding changes a value by up to 2^-9 of it; f16 has 11, so it
// does as well wherever values are not tiny. Results are rounded once, gradients travel through a
// few roundings.
constexpr double kTolerance = 0x1p-6;

Tensor as_f32(const Tensor& x) {
  return convert(x, DType::kF32);
}

std::string name_of(DType dtype) {
  return dtype == DType::kF16 ? "F16" : "BF16";
}

class SixteenBitTest : public OpTest {
 protected:
  void SetUp() override {
    if (type() == DType::kF16 && !backend_->computes_in(type()))
      GTEST_SKIP() << "this device does not compute in " << to_string(type());
  }
  virtual DType type() const = 0;

  /// So that it is seen if an operation reads what nobody has written.
  void fill_free_memory_with_nans() const {
    (void)Tensor::from<float>(*backend_, {1 << 18}, std::vector<float>(1 << 18, NAN));
  }
  Tensor narrow(const Tensor& x) const { return convert(x, type()); }
};

/// Of each type, nothing else.
class SixteenBits : public SixteenBitTest, public testing::WithParamInterface<DType> {
 protected:
  DType type() const override { return GetParam(); }
};

constexpr auto kTypes = {DType::kBF16, DType::kF16};
const auto kTypeName = [](const testing::TestParamInfo<DType>& info) {
  return name_of(info.param);
};
INSTANTIATE_TEST_SUITE_P(Types, SixteenBits, testing::ValuesIn(kTypes), kTypeName);

TEST_P(SixteenBits, ConversionRoundsToNearestEvenAndKeepsWhatIsNoNumber) {
  // Ties of either type, and what f16 overflows from or has as a subnormal number.
  const std::vector<float> x{
      1.0F,     1.00390625F, 1.01171875F, -3.1415927F,    INFINITY,  NAN,
      0.0F,     65519.0F,    65520.0F,    0x1.002p0F,     -7e8F,     0x1p-24F,
      0x1p-25F, 0x1.8p-24F,  1e-5F,       -0x1.002002p0F, 0x1.006p0F};
  const Tensor rounded =
      narrow(Tensor::from<float>(*backend_, {static_cast<std::int64_t>(x.size())}, x));
  const auto check = [&]<typename T>() {
    const auto bits = rounded.host_values<T>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) continue;  // there are many
      EXPECT_EQ(bits[i].bits, T::from_float(x[i])) << x[i];
    }
  };
  if (type() == DType::kF16) {
    check.operator()<Float16>();
  } else {
    check.operator()<BFloat16>();
  }
  EXPECT_TRUE(std::isnan(as_f32(rounded).host_values<float>()[5]));
}

struct ConvCase {
  Shape x, weights;
  std::int64_t stride, padding;
};

class Convolutions : public SixteenBitTest,
                     public testing::WithParamInterface<std::tuple<DType, ConvCase>> {
 protected:
  DType type() const override { return std::get<DType>(GetParam()); }
};

TEST_P(Convolutions, EqualTheReferenceWithinTheirPrecision) {
  const ConvCase& param = std::get<ConvCase>(GetParam());
  // A gradient is the sum of many products of which one factor was rounded.
  const double terms = static_cast<double>(
      std::max({param.weights.size() / param.weights[0], param.weights.size() / param.weights[3],
                param.x.size() / param.x[3]}));
  const double tolerance = std::max(1.0, std::sqrt(terms)) * 0x1p-7;
  fill_free_memory_with_nans();
  reference::check_operation(
      *backend_,
      [&](const std::vector<Tensor>& in) {
        return as_f32(conv2d(narrow(in[0]), in[1], in[2], {param.stride, param.padding}));
      },
      [&](const std::vector<Array>& in) {
        return reference::conv2d(in[0], in[1], &in[2], param.stride, param.padding);
      },
      {random_bf16(param.x), random_bf16(param.weights), random_array({param.weights[0]})}, random_,
      tolerance);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Convolutions,
    testing::Combine(testing::ValuesIn(kTypes),
                     testing::Values(ConvCase{{2, 6, 5, 3}, {4, 3, 3, 3}, 1, 0},
                                     ConvCase{{2, 5, 5, 5}, {7, 3, 3, 5}, 1, 1},
                                     ConvCase{{1, 5, 5, 16}, {33, 3, 3, 16}, 2, 1},
                                     ConvCase{{2, 5, 5, 32}, {32, 1, 1, 32}, 2, 0},
                                     ConvCase{{1, 5, 6, 16}, {3, 1, 1, 16}, 1, 0},
                                     ConvCase{{1, 4, 1, 8}, {8, 3, 3, 8}, 2, 1},
                                     ConvCase{{2, 3, 2, 16}, {16, 3, 3, 16}, 3, 1},
                                     ConvCase{{1, 3, 3, 32}, {32, 3, 3, 32}, 1, 1},
                                     ConvCase{{0, 4, 4, 16}, {16, 3, 3, 16}, 1, 1})));

TEST_P(SixteenBits, AConvolutionOfManyChannelsOntoFewPixelsHasTheReferencesWeightGradient) {
  const Array x = random_bf16({2, 5, 4, 256});
  const Array dy = random_bf16({2, 3, 2, 256});
  Tensor weights = Tensor::zeros(*backend_, {256, 3, 3, 256});
  weights.set_requires_grad(true);
  for (int pass = 1; pass <= 2; ++pass) {  // gradients are added up
    backward(conv2d(narrow(reference::to_tensor(*backend_, x)), weights, Tensor(), {2, 1}),
             {.gradient = narrow(reference::to_tensor(*backend_, dy))});
  }
  Array expected = reference::conv2d_weights(x, dy, 2);
  for (double& value : expected.values) value *= 2;
  // cuDNN rounds what it adds.
  const double tolerance = backend_->host_accessible() ? 1e-5 : kTolerance;
  reference::expect_close(weights.grad(), expected, tolerance, "weights' gradient");
}

TEST_P(SixteenBits, OtherOperationsEqualTheirReferences) {
  Array input = random_bf16({3, 6, 4, 19});
  for (double& value : input.values)  // at 0 ReLU has no slope
    if (std::abs(value) < 0x1p-6) value = 0.5;
  const auto check = [&](const std::function<Tensor(const Tensor&)>& operation,
                         const std::function<Array(const Array&)>& plain) {
    reference::check_operation(
        *backend_, [&](const std::vector<Tensor>& in) { return as_f32(operation(narrow(in[0]))); },
        [&](const std::vector<Array>& in) { return plain(in[0]); }, {input}, random_, kTolerance);
  };
  check([](const Tensor& x) { return relu(x); },
        [](Array x) {
          for (double& value : x.values) value = std::max(value, 0.0);
          return x;
        });
  check([](const Tensor& x) { return add(x, x); },
        [](Array x) {
          for (double& value : x.values) value *= 2;
          return x;
        });
  check([](const Tensor& x) { return global_avg_pool(x); }, reference::global_avg_pool);
}

TEST_P(SixteenBits, MaxPoolEqualsItsReference) {
  Array x({2, 6, 4, 19});  // integers, no two of a window the same
  for (std::int64_t i = 0; i < x.shape.size(); ++i) {
    const std::int64_t column = i / 19 % 4;
    const std::int64_t row = i / 19 / 4 % 6;
    x.at(i) = static_cast<double>(static_cast<std::int64_t>(random_() % 60) * 4 + row % 2 * 2 +
                                  column % 2 - 120);
  }
  reference::check_operation(
      *backend_, [&](const std::vector<Tensor>& in) { return as_f32(max_pool2d(narrow(in[0]))); },
      [](const std::vector<Array>& in) { return reference::max_pool2d(in[0], 2, 2, 0); }, {x},
      random_, kTolerance);
}

TEST_P(SixteenBits, MaxPoolGivesWhatItGivesInF32) {
  constexpr Pool2dOptions kTiles{.kernel = 2};
  constexpr Pool2dOptions kOverlaps{.kernel = 3, .stride = 2, .padding = 1};
  for (const auto& [options, channels] :
       {std::pair{kTiles, 70}, {kOverlaps, 70}, {kOverlaps, 72}}) {
    Array x({3, 6, 8, channels});  // with equal values in windows
    for (double& value : x.values) value = static_cast<double>(random_() % 64) - 32;
    std::vector<std::vector<float>> results;
    for (const DType dtype : {DType::kF32, type()}) {
      Tensor input = reference::to_tensor(*backend_, x);
      input.set_requires_grad(true);
      const Tensor y = as_f32(max_pool2d(convert(input, dtype), options));
      Array dy(y.shape());
      for (std::size_t i = 0; i < dy.values.size(); ++i)
        dy.values[i] = static_cast<double>(i % 23) - 11;
      backward(y, {.gradient = reference::to_tensor(*backend_, dy)});
      results.push_back(y.host_values<float>());
      results.push_back(input.grad().host_values<float>());
    }
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[1], results[3]);
  }
}

TEST_P(SixteenBits, PaddingKeepsTheValuesAndPutsZerosAround) {
  // Up to more rows than a kernel has threads for.
  for (const std::int64_t channels : {5, 24, 256}) {
    const std::int64_t side = channels == 256 ? 69 : 4;
    const Array x = random_bf16({1, side, side, channels});
    const Tensor padded = as_f32(
        pad2d(narrow(reference::to_tensor(*backend_, x)), {.top = 1, .bottom = -1, .left = 2}));
    EXPECT_EQ(padded.shape(), Shape({1, side, side + 2, channels}));
    const auto kept = as_f32(narrow(reference::to_tensor(*backend_, x))).host_values<float>();
    const auto values = padded.host_values<float>();
    std::size_t wrong = 0;
    for (std::int64_t i = 0; i < padded.size(); ++i) {
      const std::int64_t row = i / channels / (side + 2) - 1;
      const std::int64_t column = i / channels % (side + 2) - 2;
      const std::int64_t from = (row * side + column) * channels + i % channels;
      const float expected = row < 0 || column < 0 ? 0.0F : kept[static_cast<std::size_t>(from)];
      if (values[static_cast<std::size_t>(i)] != expected) ++wrong;
    }
    EXPECT_EQ(wrong, 0U) << channels << " channels";
  }
}

TEST_P(SixteenBits, ABiasIsAddedToEveryPixel) {
  for (const std::int64_t channels : {6, 24, 256}) {
    const std::int64_t side = channels == 256 ? 70 : 5;
    const Tensor x = narrow(reference::to_tensor(*backend_, random_bf16({1, side, side, 8})));
    const Tensor weights = reference::to_tensor(*backend_, random_bf16({channels, 1, 1, 8}));
    const Array bias = random_array({channels});
    const Tensor without = as_f32(conv2d(x, weights, Tensor()));
    Array expected(without.shape());
    const auto values = without.host_values<float>();
    for (std::size_t i = 0; i < values.size(); ++i)
      expected.values[i] = values[i] + bias.values[i % static_cast<std::size_t>(channels)];
    reference::expect_close(as_f32(conv2d(x, weights, reference::to_tensor(*backend_, bias))),
                            expected, kTolerance, "convolution with a bias");
  }
}

TEST_P(SixteenBits, ExtremeValuesFareAsInF32) {
  // With a quiet NaN of either sign, and the least number that is not zero.
  const float least = type() == DType::kF16 ? 0x1p-24F : 0x1p-133F;
  const std::vector<float> x{
      1,  -NAN,      3,     2,  -INFINITY, -INFINITY, -INFINITY, -INFINITY, 0.0F, INFINITY,
      -1, -INFINITY, -0.0F, -2, least,     -least,    NAN,       -INFINITY, -NAN, 5};
  const Tensor exact = Tensor::from<float>(*backend_, {5, 2, 2, 1}, x);
  for (const auto& operation : {+[](const Tensor& in) { return relu(in); },
                                +[](const Tensor& in) { return max_pool2d(in, {2}); }}) {
    const auto expected = operation(exact).host_values<float>();
    const auto y = as_f32(operation(narrow(exact))).host_values<float>();
    for (std::size_t i = 0; i < y.size(); ++i) {
      const bool same = y[i] == expected[i] || (std::isnan(y[i]) && std::isnan(expected[i]));
      EXPECT_TRUE(same) << i << ": " << y[i] << ", not " << expected[i];
    }
  }
}

TEST_P(SixteenBits, DropoutDropsWhatItDropsInF32) {
  const Array x = random_bf16({7, 100});
  Generator generator(seed_);
  Generator same(seed_);
  const Tensor exact = dropout(reference::to_tensor(*backend_, x), 0.5, generator);
  const Tensor rounded = as_f32(dropout(narrow(reference::to_tensor(*backend_, x)), 0.5, same));
  const auto expected = exact.host_values<float>();
  const auto actual = rounded.host_values<float>();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(actual[i], expected[i]);  // doubled
}

TEST_P(SixteenBits, BatchNormKeepsItsStatisticsInDouble) {
  const Shape shape{9, 5, 7, 21};
  Array x = random_bf16(shape);
  for (double& value : x.values) value = 8 * value + 40;  // far from 0
  for (double& value : x.values) {
    value = static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value))));
  }
  const Array dy = random_bf16(shape);
  Tensor input = reference::to_tensor(*backend_, x);
  input.set_requires_grad(true);
  BatchNorm layer(*backend_, shape[-1]);
  const Tensor output = layer.forward(narrow(input));
  backward(output, {.gradient = narrow(reference::to_tensor(*backend_, dy))});

  BatchNormReference expected{.channels = static_cast<std::size_t>(shape[-1])};
  expected.forward(x.values);
  expected.backward(x.values, dy.values);
  const auto y = as_f32(output).host_values<float>();
  const auto dx = input.grad().host_values<float>();
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    ASSERT_NEAR(y[i], expected.y[i], kTolerance * 4);
    ASSERT_NEAR(dx[i], expected.dx[i], kTolerance);
  }
  for (const NamedBuffer& buffer : layer.buffers()) {
    if (buffer.name != "running_mean") continue;
    for (std::size_t c = 0; c < expected.mean.size(); ++c) {
      EXPECT_NEAR(buffer.tensor.host_values<float>()[c], 0.1 * expected.mean[c], 1e-5);
    }
  }
}

struct LinearShape {
  std::int64_t rows, in, out;
};

class Linears : public SixteenBitTest,
                public testing::WithParamInterface<std::tuple<DType, LinearShape>> {
 protected:
  DType type() const override { return std::get<DType>(GetParam()); }
};

TEST_P(Linears, EqualTheReferenceWithinTheirPrecision) {
  const auto [rows, in, out] = std::get<LinearShape>(GetParam());
  const double terms = static_cast<double>(std::max({rows, in, out}));
  reference::check_operation(
      *backend_, [&](const std::vector<Tensor>& t) { return linear(narrow(t[0]), t[1], t[2]); },
      [](const std::vector<Array>& t) { return reference::linear(t[0], t[1], &t[2]); },
      {random_bf16({rows, in}), random_bf16({out, in}), random_array({out})}, random_,
      std::max(1.0, std::sqrt(terms)) * 0x1p-7);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Linears,
    testing::Combine(testing::ValuesIn(kTypes),
                     testing::Values(LinearShape{1, 1, 1}, LinearShape{4, 7, 5},
                                     LinearShape{3, 33, 17}, LinearShape{32, 150, 16},
                                     LinearShape{0, 7, 5})));

TEST_P(SixteenBits, LinearOfFactorsThatAreExactIsExact) {
  const Array x = random_bf16({5, 37});
  const Array weights = random_bf16({9, 37});
  const Tensor y = linear(narrow(reference::to_tensor(*backend_, x)),
                          reference::to_tensor(*backend_, weights), Tensor());
  ASSERT_EQ(y.dtype(), DType::kF32);
  const Array expected = reference::linear(x, weights, nullptr);
  const auto values = y.host_values<float>();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected.values[i], 1e-5);
}

TEST_P(SixteenBits, MixedTypesAreRefused) {
  const Tensor x = Tensor::zeros(*backend_, {2, 3});
  EXPECT_THROW(add(x, narrow(x)), Error);
}

/// A little ResNet on a batch that it learns by heart.
class SixteenBitTraining : public SixteenBits {
 protected:
  /// The losses of `steps` steps of gradient descent; the peak of memory is theirs.
  std::vector<float> train(DType compute_type, int steps, std::uint64_t* allocations = nullptr,
                           std::size_t samples = 8) {
    Generator generator(7);
    const auto model = make_model(
        "resnet20", {.num_classes = 4, .height = 8, .width = 8, .compute_type = compute_type},
        *backend_, generator, nullptr);
    FlatParameters flat = flatten_parameters(*model);
    std::vector<float> pixels(samples * 8 * 8 * 3);
    generator.fill_normal(pixels, 0, 1);
    const Tensor images =
        Tensor::from<float>(*backend_, {static_cast<std::int64_t>(samples), 8, 8, 3}, pixels);
    std::vector<std::int32_t> labels{0, 1, 2, 3, 3, 2, 1, 0};
    labels.resize(samples);
    std::vector<float> losses;
    backend_->reset_peak();
    for (int step = 0; step < steps; ++step) {
      flat.zero_gradients();
      const Tensor loss =
          cross_entropy(model->forward(images), std::span<const std::int32_t>(labels),
                        {.reduction = Reduction::kMean});
      losses.push_back(loss.item());
      backward(loss);
      backend_->axpy(flat.values.size(), -0.05F, flat.gradients.data<const float>(),
                     flat.values.data<float>());
      if (step == 1 && allocations != nullptr) *allocations = backend_->memory().allocations;
    }
    return losses;
  }
};

INSTANTIATE_TEST_SUITE_P(Types, SixteenBitTraining, testing::ValuesIn(kTypes), kTypeName);

TEST_P(SixteenBitTraining, LearnsAsInF32) {
  const std::vector<float> exact = train(DType::kF32, 15);
  const std::vector<float> rounded = train(type(), 15);
  EXPECT_NEAR(rounded.front(), exact.front(), 0.05 * exact.front());
  EXPECT_LT(exact.back(), 0.5 * exact.front());
  EXPECT_LT(rounded.back(), 0.5 * exact.front());
}

TEST_P(SixteenBitTraining, AStepThatRepeatsAllocatesNothing) {
  std::uint64_t after_two_steps = 0;
  train(type(), 5, &after_two_steps);
  EXPECT_EQ(backend_->memory().allocations, after_two_steps);
}

TEST_P(SixteenBitTraining, HoldsHalfOfTheActivations) {
  constexpr std::size_t kSamples = 64;  // whose activations are more than the weights
  train(DType::kF32, 1, nullptr, kSamples);
  const std::size_t exact = backend_->memory().peak;
  train(type(), 1, nullptr, kSamples);
  EXPECT_LT(backend_->memory().peak, exact);
}

TEST(BackendsWithoutF16, RefuseItInsteadOfComputingSomethingElse) {
  const auto backend = make_test_backend();
  if (backend->computes_in(DType::kF16)) GTEST_SKIP() << "this one computes in f16";
  const Tensor x = Tensor::zeros(*backend, {2, 3});
  try {
    convert(x, DType::kF16);
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the backend \"cpu\" has no kernels for f16; use bf16");
  }
  EXPECT_THROW(relu(Tensor::empty(*backend, {2, 3}, DType::kF16)), Error);
}

}  // namespace
}  // namespace dlaunch::nn
