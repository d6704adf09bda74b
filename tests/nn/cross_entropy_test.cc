#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "nn/core/ops.h"
#include "tests/nn/op_test.h"

namespace dlaunch::nn {
namespace {

using reference::Array;

class CrossEntropyTest : public OpTest {
 protected:
  std::vector<std::int64_t> random_labels(std::int64_t n, std::int64_t classes) {
    std::uniform_int_distribution<std::int64_t> label(0, classes - 1);
    std::vector<std::int64_t> labels(static_cast<std::size_t>(n));
    for (std::int64_t& value : labels) value = label(random_);
    return labels;
  }
};

TEST_F(CrossEntropyTest, GradientsAreThoseOfFiniteDifferences) {
  for (const Shape& shape : {Shape{5, 7}, Shape{1, 1}, Shape{3, 100}, Shape{0, 10}}) {
    const auto labels = random_labels(shape[0], shape[1]);
    for (const double smoothing : {0.0, 0.1, 1.0}) {
      reference::check_operation(
          *backend_,
          [&](const std::vector<Tensor>& in) { return cross_entropy(in[0], labels, {smoothing}); },
          [&](const std::vector<Array>& in) {
            return reference::cross_entropy(in[0], labels, smoothing);
          },
          {random_array(shape)}, random_);
    }
  }
}

TEST_F(CrossEntropyTest, TheMeanIsTheSumOverTheNumberOfRows) {
  const auto labels = random_labels(6, 4);
  reference::check_operation(
      *backend_,
      [&](const std::vector<Tensor>& in) {
        return cross_entropy(in[0], labels, {0.2, Reduction::kMean});
      },
      [&](const std::vector<Array>& in) {
        Array loss = reference::cross_entropy(in[0], labels, 0.2);
        loss.at(0) /= 6;
        return loss;
      },
      {random_array({6, 4})}, random_);
}

TEST_F(CrossEntropyTest, BothReductionsOfAnEmptyBatchAreZero) {
  const Tensor logits = Tensor::zeros(*backend_, {0, 10});
  const std::vector<std::int32_t> none;
  EXPECT_EQ(cross_entropy(logits, none).item(), 0.0F);
  EXPECT_EQ(cross_entropy(logits, none, {0, Reduction::kMean}).item(), 0.0F);
}

TEST_F(CrossEntropyTest, HugeLogitsDoNotOverflow) {
  const std::vector<float> values{1e30F, -1e30F, 0.0F, 1000.0F, 1000.0F, 1000.0F};
  const Tensor logits = Tensor::from<float>(*backend_, {2, 3}, values);
  const float loss = cross_entropy(logits, std::vector<std::int32_t>{0, 2}).item();
  EXPECT_NEAR(loss, std::log(3.0), 1e-6);
}

TEST_F(CrossEntropyTest, AClassThatCannotBeLeavesTheLossFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto loss_of = [&](const std::vector<float>& logits, std::int32_t label) {
    const Tensor row = Tensor::from<float>(*backend_, {1, 3}, logits);
    return cross_entropy(row, std::vector<std::int32_t>{label}).item();
  };
  EXPECT_NEAR(loss_of({1, 2, -kInfinity}, 1), std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_EQ(loss_of({1, 2, -kInfinity}, 2), kInfinity);
  EXPECT_EQ(loss_of({3e38F, -3e38F, 0}, 0), 0);  // whose difference is none of float's
}

TEST_F(CrossEntropyTest, ALabelOutOfRangeIsNamed) {
  const Tensor logits = Tensor::zeros(*backend_, {3, 10});
  const auto message = [&](const auto& labels) -> std::string {
    try {
      (void)cross_entropy(logits, labels).item();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(std::vector<std::int32_t>{9, 10, 0}),
            "cross_entropy: label 1 is 10, but there are 10 classes");
  EXPECT_EQ(message(std::vector<std::int64_t>{0, 0, -1}),
            "cross_entropy: label 2 is -1, but there are 10 classes");
  EXPECT_EQ(message(std::vector<std::int64_t>{0, 0, std::int64_t{1} << 32}),
            "cross_entropy: label 2 is 4294967296, but there are 10 classes");
  EXPECT_EQ(
      message(Tensor::from<std::int32_t>(*backend_, {3}, std::vector<std::int32_t>{0, 99, 0})),
      backend_->host_accessible() ? "cross_entropy: label 1 is 99, but there are 10 classes"
                                  : "cross_entropy: a label is out of range");
  EXPECT_THAT(message(std::vector<std::int32_t>{0, 0}), testing::HasSubstr("2 labels"));
  EXPECT_THROW(cross_entropy(logits, std::vector<std::int32_t>{0, 0, 0}, {1.5}), Error);
  EXPECT_THROW(cross_entropy(logits, Tensor::zeros(*backend_, {3, 1}, DType::kI32)), Error);
}

TEST_F(CrossEntropyTest, LabelsOfAllFormsGiveTheSameLoss) {
  const Tensor logits = reference::to_tensor(*backend_, random_array({3, 5}));
  const std::vector<std::int32_t> narrow{4, 0, 2};
  const std::vector<std::int64_t> wide{4, 0, 2};
  const float loss = cross_entropy(logits, narrow).item();
  EXPECT_EQ(cross_entropy(logits, wide).item(), loss);
  EXPECT_EQ(cross_entropy(logits, Tensor::from<std::int32_t>(*backend_, {3}, narrow)).item(), loss);
  EXPECT_EQ(cross_entropy(logits, Tensor::from<std::int64_t>(*backend_, {3}, wide)).item(), loss);
}

TEST_F(OpTest, MixedCrossEntropyIsTheWeightedSumOfTwoWithItsGradient) {
  const std::vector<float> values{0.5F, -1, 2, 0, 1, 0.25F};
  const std::vector<std::int32_t> labels{2, 0}, partners{1, 0};
  const CrossEntropyOptions options{.label_smoothing = 0.1};
  const auto run = [&](const auto& loss_of) {
    Tensor logits = Tensor::from<float>(*backend_, {2, 3}, values);
    logits.set_requires_grad(true);
    const Tensor loss = loss_of(logits);
    const float value = loss.item();
    backward(loss);
    std::vector<double> all{static_cast<double>(value)};
    for (const float g : logits.grad().host_values<float>()) all.push_back(static_cast<double>(g));
    return all;
  };
  const auto own = run([&](const Tensor& logits) {
    return cross_entropy(logits, std::span<const std::int32_t>(labels), options);
  });
  const auto other = run([&](const Tensor& logits) {
    return cross_entropy(logits, std::span<const std::int32_t>(partners), options);
  });
  const auto mixed = run([&](const Tensor& logits) {
    return mixed_cross_entropy(logits, labels, partners, 0.7F, options);
  });
  for (std::size_t i = 0; i < mixed.size(); ++i)
    EXPECT_NEAR(mixed[i], 0.7 * own[i] + 0.3 * other[i], 1e-6) << i;
  for (const float share : {-0.1F, 1.1F, std::nanf("")})
    EXPECT_THROW(
        mixed_cross_entropy(Tensor::zeros(*backend_, {2, 3}), labels, partners, share, options),
        Error);
}

}  // namespace
}  // namespace dlaunch::nn
