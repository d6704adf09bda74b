#include "nn/core/ops.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/dropout.h"
#include "nn/layers/linear.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

Array plain_relu(const std::vector<Array>& in) {
  Array y = in[0];
  for (double& value : y.values) value = std::max(value, 0.0);
  return y;
}

TEST_F(OpTest, ReluGradientsAreThoseOfFiniteDifferences) {
  for (const Shape& shape : {Shape{3, 5, 7, 3}, Shape{1, 1}, Shape{2, 33}, Shape{0, 4}}) {
    reference::check_operation(
        *backend_, [](const std::vector<Tensor>& in) { return relu(in[0]); }, plain_relu,
        {random_array(shape)}, random_);
  }
}

TEST_F(OpTest, ReluKeepsNaN) {
  const Tensor x = Tensor::from<float>(*backend_, {3}, std::vector<float>{-1.0F, NAN, 2.0F});
  const Tensor y = relu(x);
  EXPECT_EQ(y.host_values<float>()[0], 0.0F);
  EXPECT_TRUE(std::isnan(y.host_values<float>()[1]));
  EXPECT_EQ(y.host_values<float>()[2], 2.0F);
}

TEST_F(OpTest, ReluOverwritesOnlyWhatWasGivenAway) {
  const Array values = random_array({4, 9});
  Tensor x = reference::to_tensor(*backend_, values);
  const auto* memory = x.data<const float>();
  const Tensor copy = relu(x);
  EXPECT_NE(copy.data<const float>(), memory);
  reference::expect_close(x, values, 0, "the input");
  const Tensor moved = relu(std::move(x));
  EXPECT_EQ(moved.data<const float>(), memory);
  reference::expect_close(moved, plain_relu({values}), 0, "the result");
}

TEST_F(OpTest, AddGradientsAreThoseOfFiniteDifferences) {
  const auto plain = [](const std::vector<Array>& in) {
    Array y = in[0];
    for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] += in[1].values[i];
    return y;
  };
  for (const Shape& shape : {Shape{3, 2, 5, 7}, Shape{1}, Shape{0, 3}}) {
    reference::check_operation(
        *backend_, [](const std::vector<Tensor>& in) { return add(in[0], in[1]); }, plain,
        {random_array(shape), random_array(shape)}, random_);
  }
  EXPECT_THROW(add(Tensor::zeros(*backend_, {2, 3}), Tensor::zeros(*backend_, {3, 2})), Error);
}

TEST_F(OpTest, AddOfATensorToItselfDoublesTheGradient) {
  reference::check_operation(
      *backend_, [](const std::vector<Tensor>& in) { return add(in[0], in[0]); },
      [](const std::vector<Array>& in) {
        Array y = in[0];
        for (double& value : y.values) value *= 2;
        return y;
      },
      {random_array({5, 3})}, random_);
}

TEST_F(OpTest, FlattenGradientsAreThoseOfFiniteDifferences) {
  for (const Shape& shape : {Shape{3, 2, 5, 7}, Shape{4, 1, 1, 1}, Shape{0, 2, 3, 4}}) {
    reference::check_operation(
        *backend_, [](const std::vector<Tensor>& in) { return flatten(in[0]); },
        [](const std::vector<Array>& in) {
          Array y({in[0].shape[0], in[0].shape[1] * in[0].shape[2] * in[0].shape[3]});
          y.values = in[0].values;
          return y;
        },
        {random_array(shape)}, random_);
  }
  EXPECT_THROW(flatten(Tensor::zeros(*backend_, {})), Error);
  EXPECT_THROW(reshape(Tensor::zeros(*backend_, {2, 3}), {5}), Error);
}

struct LinearCase {
  std::int64_t rows, in, out;
  bool bias;
};

class LinearGradients : public OpTest, public testing::WithParamInterface<LinearCase> {};

TEST_P(LinearGradients, AreThoseOfFiniteDifferences) {
  const auto [rows, in, out, bias] = GetParam();
  std::vector<Array> inputs{random_array({rows, in}), random_array({out, in})};
  if (bias) inputs.push_back(random_array({out}));
  reference::check_operation(
      *backend_,
      [has_bias = bias](const std::vector<Tensor>& t) {
        return linear(t[0], t[1], has_bias ? t[2] : Tensor());
      },
      [has_bias = bias](const std::vector<Array>& t) {
        return reference::linear(t[0], t[1], has_bias ? &t[2] : nullptr);
      },
      inputs, random_);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearGradients,
                         testing::Values(LinearCase{4, 7, 5, true}, LinearCase{1, 1, 1, true},
                                         LinearCase{3, 33, 17, false}, LinearCase{1, 50, 3, true},
                                         LinearCase{0, 7, 5, true}));

TEST_F(OpTest, LinearRefusesWhatDoesNotFit) {
  const Tensor x = Tensor::zeros(*backend_, {2, 5});
  EXPECT_THROW(linear(x, Tensor::zeros(*backend_, {3, 4}), Tensor()), Error);
  EXPECT_THROW(linear(x, Tensor::zeros(*backend_, {3, 5}), Tensor::zeros(*backend_, {5})), Error);
  EXPECT_THROW(linear(Tensor::zeros(*backend_, {2, 5, 1}), Tensor::zeros(*backend_, {3, 5}), {}),
               Error);
}

TEST_F(OpTest, DropoutZeroesTheElementsWhoseRandomWordIsSmallAndScalesTheRest) {
  constexpr double kProbability = 0.3;
  const RandomState start = Generator(seed_, 5).reserve(0);
  for (const std::int64_t count : {0, 1, 3, 63, 64, 65, 40007}) {
    const Array x = random_array({count});
    Generator generator(start);
    const Tensor y = dropout(reference::to_tensor(*backend_, x), kProbability, generator);
    Generator words(start);
    Array expected({count});
    for (std::int64_t i = 0; i < count; ++i) {
      const bool kept = words() >= static_cast<std::uint32_t>(kProbability * 0x1p32);
      expected.at(i) = kept ? x.at(i) / (1 - kProbability) : 0.0;
    }
    reference::expect_close(y, expected, 1e-7, "result");
    EXPECT_EQ(generator.state().position, static_cast<std::uint64_t>(count));
  }
}

TEST_F(OpTest, DropoutGoesOnBehindTheWordsThatAreUsedHoweverManyTheyAre) {
  constexpr std::int64_t kCount = 301;
  const Array x = random_array({kCount});
  for (const std::uint64_t position : {std::uint64_t{0}, (std::uint64_t{1} << 34) + 8}) {
    Generator generator(RandomState{.seed = seed_, .stream = 5, .position = position});
    for (int time = 0; time < 2; ++time) {
      SCOPED_TRACE(std::to_string(position) + ", time " + std::to_string(time));
      Generator words(Generator(generator.state()).reserve(0));
      const Tensor y = dropout(reference::to_tensor(*backend_, x), 0.5, generator);
      Array expected({kCount});
      for (std::int64_t i = 0; i < kCount; ++i)
        expected.at(i) = words() >= 0x80000000U ? 2 * x.at(i) : 0.0;
      reference::expect_close(y, expected, 1e-7, "result");
    }
    EXPECT_EQ(generator.state().position, position + 304 + kCount);
  }
}

TEST_F(OpTest, DropoutDropsTheShareAskedFor) {
  constexpr std::int64_t kCount = 200000;
  const Tensor ones = Tensor::empty(*backend_, {kCount});
  backend_->fill(kCount, 1.0F, ones.data<float>());
  Generator generator(seed_);
  const Tensor y = dropout(ones, 0.25, generator);
  const auto values = y.host_values<float>();
  const auto zeros = static_cast<double>(std::count(values.begin(), values.end(), 0.0F));
  // Six standard deviations of a binomial count: wrong once in 10^9 runs.
  EXPECT_NEAR(zeros, 0.25 * kCount, 6 * std::sqrt(kCount * 0.25 * 0.75));
}

TEST_F(OpTest, DropoutGradientsAreThoseOfFiniteDifferencesWithTheSameMask) {
  const RandomState start = Generator(seed_).reserve(0);
  for (const Shape& shape : {Shape{3, 7, 5, 3}, Shape{1, 1}, Shape{0, 9}}) {
    reference::check_operation(
        *backend_,
        [&](const std::vector<Tensor>& in) {
          Generator generator(start);
          return dropout(in[0], 0.5, generator);
        },
        [&](const std::vector<Array>& in) {
          Generator generator(start);
          Array y = in[0];
          for (double& value : y.values) value *= generator() >= 0x80000000U ? 2.0 : 0.0;
          return y;
        },
        {random_array(shape)}, random_);
  }
}

TEST_F(OpTest, DropoutIsTheIdentityInEvaluation) {
  Generator generator(seed_);
  Dropout layer(0.9, generator);
  const Array x = random_array({5, 8});
  layer.eval();
  reference::expect_close(layer.forward(reference::to_tensor(*backend_, x)), x, 0, "evaluation");
  EXPECT_EQ(generator.state().position, 0U);
  EXPECT_THROW(Dropout(1.0, generator), Error);
  EXPECT_THROW(Dropout(-0.1, generator), Error);
}

}  // namespace
}  // namespace dlaunch::nn
