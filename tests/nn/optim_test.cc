// Sgd against two rules written out in double: the textbook's, with the velocity in units of the
// learning rate folded out, and PyTorch's documentation of torch.optim.SGD, transcribed line by
// line.
#include "nn/optim/gradient_clipping.h"
#include "nn/optim/sgd.h"
#include "nn/optim/sharded_optimizer.h"
#include "tests/nn/test_backend.h"

#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace dlaunch::nn {
namespace {

/// Parameters of all three kinds, of odd sizes.
class Bag : public Module {
 public:
  explicit Bag(Backend& backend) {
    add("conv_weight", {5, 3, 3, 3}, backend, ParameterKind::kWeight);
    add("conv_bias", {5}, backend, ParameterKind::kBias);
    add("bn_weight", {7}, backend, ParameterKind::kNorm);
    add("bn_bias", {7}, backend, ParameterKind::kNorm);
    add("fc_weight", {11, 13}, backend, ParameterKind::kWeight);
    add("fc_bias", {11}, backend, ParameterKind::kBias);
  }
  Tensor forward(Tensor input) override { return input; }
  std::string kind() const override { return "Bag"; }
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  void add(const std::string& name, const Shape& shape, Backend& backend, ParameterKind kind) {
    add_parameter(name, Tensor::zeros(backend, shape), kind);
  }
};

class SgdTest : public testing::Test {
 protected:
  SgdTest() : bag_(*backend_), flat_(flatten_parameters(bag_)) {
    RecordProperty("seed", std::to_string(seed_));
    for (const FlatView& view : flat_.views) fill(view.offset, view.count, flat_.values);
  }

  void new_gradients() {
    for (const FlatView& view : flat_.views) fill(view.offset, view.count, flat_.gradients);
  }

  void fill(std::int64_t offset, std::int64_t count, const Tensor& tensor) {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = normal(random_);
    Tensor::view_of(tensor, offset, {count}).set_values<float>(values);
  }

  static float at(const Tensor& tensor, std::int64_t i) {
    return Tensor::view_of(tensor, i, {}).item();
  }

  std::unique_ptr<Backend> backend_ = make_test_backend();
  Bag bag_;
  FlatParameters flat_;
  std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
};

/// One parameter under torch.optim.SGD, as its documentation has the algorithm:
///
///   g_t <- grad;  if weight_decay != 0: g_t <- g_t + weight_decay theta
///   if momentum != 0:
///     if t > 1: b_t <- momentum b_{t-1} + (1 - dampening) g_t   else: b_t <- g_t
///     if nesterov: g_t <- g_t + momentum b_t   else: g_t <- b_t
///   theta <- theta - lr g_t
struct TorchSgd {
  double momentum, weight_decay;
  bool nesterov;
  std::optional<double> buffer = std::nullopt;

  double step(double theta, double gradient, double lr) {
    double g = gradient;
    if (weight_decay != 0) g += weight_decay * theta;
    if (momentum != 0) {
      buffer = buffer.has_value() ? momentum * *buffer + g : g;
      g = nesterov ? g + momentum * *buffer : *buffer;
    }
    return theta - lr * g;
  }
};

double decay_of(const WeightDecay& decay, ParameterKind kind) {
  if (kind == ParameterKind::kWeight) return decay.weight;
  return kind == ParameterKind::kBias ? decay.bias : decay.norm;
}

class SgdRule : public SgdTest, public testing::WithParamInterface<SgdOptions> {};

TEST_P(SgdRule, FollowsPyTorchOverManySteps) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  const SgdOptions options = GetParam();
  std::vector<std::vector<double>> theta;
  std::vector<std::vector<TorchSgd>> torch;
  for (const FlatView& view : flat_.views) {
    const double decay = decay_of(options.weight_decay, view.kind);
    torch.emplace_back(static_cast<std::size_t>(view.count),
                       TorchSgd{options.momentum, decay, options.nesterov});
    std::vector<double>& values = theta.emplace_back();
    for (std::int64_t i = 0; i < view.count; ++i)
      values.push_back(at(flat_.values, view.offset + i));
  }

  Sgd sgd(flat_, options);
  for (const double lr : {0.1, 0.1, 0.05, 0.2, 0.0, 0.01, 0.3, 0.1}) {
    new_gradients();
    sgd.step(lr);
    for (std::size_t v = 0; v < flat_.views.size(); ++v) {
      for (std::size_t i = 0; i < theta[v].size(); ++i) {
        const std::int64_t position = flat_.views[v].offset + static_cast<std::int64_t>(i);
        const double gradient = at(flat_.gradients, position);
        theta[v][i] = torch[v][i].step(theta[v][i], gradient, lr);
        ASSERT_NEAR(at(flat_.values, position), theta[v][i], 1e-5) << flat_.views[v].name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, SgdRule,
    testing::Values(SgdOptions{}, SgdOptions{.weight_decay = WeightDecay::uniform(0.1)},
                    SgdOptions{.momentum = 0.9},
                    SgdOptions{.momentum = 0.9, .weight_decay = WeightDecay::weights_only(0.05)},
                    SgdOptions{.momentum = 0.9, .nesterov = true},
                    SgdOptions{.momentum = 0.85,
                               .nesterov = true,
                               .weight_decay = {.weight = 5e-2, .bias = 0.2, .norm = 0.01}}));

TEST_F(SgdTest, HeavyBallEqualsTheTextbookTwoTermRecurrence) {
  // With a constant rate, momentum is Polyak's p_{t+1} = p_t - lr g_t + m (p_t - p_{t-1}).
  SCOPED_TRACE("seed " + std::to_string(seed_));
  constexpr double kRate = 0.05;
  constexpr double kMomentum = 0.8;
  Sgd sgd(flat_, {.momentum = kMomentum});
  const std::int64_t first = flat_.views.front().offset;
  double now = at(flat_.values, first);
  double before = now;
  for (int step = 0; step < 10; ++step) {
    new_gradients();
    const double next =
        now - kRate * static_cast<double>(at(flat_.gradients, first)) + kMomentum * (now - before);
    before = std::exchange(now, next);
    sgd.step(kRate);
    ASSERT_NEAR(at(flat_.values, first), now, 1e-5);
  }
}

TEST_F(SgdTest, LeavesGradientsAndPaddingAlone) {
  Sgd sgd(flat_, {.momentum = 0.9, .nesterov = true, .weight_decay = WeightDecay::uniform(0.1)});
  new_gradients();
  const auto before = flat_.gradients.host_values<float>();
  sgd.step(0.1);
  sgd.step(0.1);
  EXPECT_EQ(before, flat_.gradients.host_values<float>());
  std::int64_t end = 0;
  for (const FlatView& view : flat_.views) {
    for (; end < view.offset; ++end) EXPECT_EQ(at(flat_.values, end), 0.0F);
    end = view.offset + view.count;
  }
}

TEST_F(SgdTest, TheStemsBiasHasARateOfItsOwn) {
  class Stem : public Module {
   public:
    explicit Stem(Backend& backend) {
      add_parameter("weight", Tensor::zeros(backend, {2}), ParameterKind::kWeight);
      add_parameter("bias", Tensor::zeros(backend, {2}), ParameterKind::kStem);
    }
    Tensor forward(Tensor input) override { return input; }
    std::string kind() const override { return "Stem"; }
    Shape output_shape(const Shape& input) const override { return input; }
  } stem(*backend_);
  const FlatParameters flat = flatten_parameters(stem);
  const auto step_with = [&](Optimizer& optimizer, double rate, double stem_rate) {
    for (const FlatView& view : flat.views) {
      fill(view.offset, view.count, flat.values);
      Tensor::view_of(flat.gradients, view.offset, {view.count})
          .set_values<float>(std::vector<float>(static_cast<std::size_t>(view.count), 2));
    }
    std::vector<double> moved;
    for (const FlatView& view : flat.views) moved.push_back(at(flat.values, view.offset));
    optimizer.set_stem_rate(stem_rate);
    optimizer.step(rate);
    for (std::size_t i = 0; i < 2; ++i)
      moved[i] = (moved[i] - at(flat.values, flat.views[i].offset)) /
                 at(flat.gradients, flat.views[i].offset);
    return moved;  // the rates
  };
  const auto make = [](const FlatParameters& part) {
    return std::make_unique<Sgd>(part, SgdOptions{.rate_factors = PerKind::uniform(2)});
  };
  Sgd sgd(flat, {.rate_factors = PerKind::uniform(2)});
  ShardedOptimizer sharded(flat, {{0, flat.values.size()}}, make);
  for (Optimizer* optimizer : {static_cast<Optimizer*>(&sgd), static_cast<Optimizer*>(&sharded)})
    for (const double rate : {0.1, 0.0})  // as a warm-up begins
      for (const double stem_rate : {0.1, 0.025, 0.0}) {
        const std::vector<double> rates = step_with(*optimizer, rate, stem_rate);
        EXPECT_NEAR(rates[0], 2 * rate, 1e-4);
        EXPECT_NEAR(rates[1], 2 * stem_rate, 1e-4);
      }
}

TEST_F(SgdTest, InPartsIsSteppedInWholePartsOnly) {
  const std::int64_t end = flat_.values.size();
  const auto make = [](const FlatParameters& part) {
    return std::make_unique<Sgd>(part, SgdOptions{});
  };
  const auto step = [](Optimizer& optimizer, std::int64_t from, std::int64_t to) {
    optimizer.begin_step(0.1);
    optimizer.update(from, to);
  };
  new_gradients();
  const auto before = flat_.values.host_values<float>();
  ShardedOptimizer both(flat_, {{0, 16}, {16, end}}, make);
  both.step(0.1);
  const auto after = flat_.values.host_values<float>();
  flat_.values.set_values<float>(before);
  Sgd(flat_, {}).step(0.1);
  EXPECT_EQ(flat_.values.host_values<float>(), after);

  ShardedOptimizer one(flat_, {{16, end}}, make);
  EXPECT_THROW(one.step(0.1), Error);
  EXPECT_THROW(step(one, 0, 16), Error);
  EXPECT_THROW(step(one, 17, end), Error);
  EXPECT_EQ(flat_.values.host_values<float>(), after);
  EXPECT_NO_THROW(step(one, 16, end));
}

TEST_F(SgdTest, RefusesImpossibleOptions) {
  EXPECT_THROW(Sgd(flat_, {.momentum = -0.1}), Error);
  EXPECT_THROW(Sgd(flat_, {.momentum = 1.0}), Error);
  EXPECT_THROW(Sgd(flat_, {.momentum = std::nan("")}), Error);
  EXPECT_THROW(Sgd(flat_, {.nesterov = true}), Error);
  EXPECT_THROW(Sgd(flat_, {.weight_decay = {.bias = -1}}), Error);
  EXPECT_THROW(Sgd(flat_, {.weight_decay = {.stem = -1}}), Error);
  EXPECT_THROW(Sgd(flat_, {.rate_factors = {.norm = -1}}), Error);
  EXPECT_THROW(Sgd(flat_, {.rate_factors = {.weight = std::nan("")}}), Error);
  EXPECT_THROW(Sgd(flat_, {.weight_decay = {.weight = HUGE_VAL}}), Error);
}

TEST_F(SgdTest, ClippingKeepsTheDirectionAndBoundsTheNorm) {
  SCOPED_TRACE("seed " + std::to_string(seed_));
  new_gradients();
  const auto before = flat_.gradients.host_values<float>();
  double squares = 0;
  for (const float g : before) squares += static_cast<double>(g) * static_cast<double>(g);
  const double norm = std::sqrt(squares);

  // In two parts, as buckets are.
  const auto clip = [&](double max_norm) {
    GradientClipper clipper(*backend_, max_norm);
    const std::int64_t size = flat_.gradients.size(), half = size / 3;
    for (int step = 0; step < 2; ++step) {  // the second one begins anew
      flat_.gradients.set_values<float>(before);
      clipper.begin();
      clipper.add(half, flat_.gradients.data<const float>());
      clipper.add(size - half, flat_.gradients.data<const float>() + half);
      clipper.clip(half, flat_.gradients.data<float>());
      clipper.clip(size - half, flat_.gradients.data<float>() + half);
      clipper.clip(0, flat_.gradients.data<float>());
      EXPECT_NEAR(clipper.norm(), norm, 1e-9 * norm);
    }
  };
  clip(2 * norm);
  EXPECT_EQ(before, flat_.gradients.host_values<float>());
  clip(0.5);
  const auto gradients = flat_.gradients.host_values<float>();
  for (std::size_t i = 0; i < before.size(); ++i) {
    ASSERT_NEAR(gradients[i], static_cast<double>(before[i]) * 0.5 / norm, 1e-6);
  }
  EXPECT_THROW(GradientClipper(*backend_, 0), Error);
}

}  // namespace
}  // namespace dlaunch::nn
