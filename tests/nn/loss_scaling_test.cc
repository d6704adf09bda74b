// Loss scaling: its formulas against torch.amp.GradScaler's rules written out, its kernels, and
// optimizers whose steps are skipped.
#include "nn/core/loss_scaling.h"

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/optimizer_kernels.h"
#include "nn/optim/make_optimizer.h"
#include "nn/optim/sharded_optimizer.h"
#include "tests/nn/test_backend.h"

namespace dlaunch::nn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// They can be used where only constants can: so in device code too.
static_assert(is_finite(std::numeric_limits<float>::max()) && is_finite(-0x1p-149F));
static_assert(!is_finite(kInfinity) && !is_finite(-kInfinity) && !is_finite(kNan));
static_assert(next_loss_scale({}, false, {.scale = 8}).scale == 4);
static_assert(unscaling_factor({.scale = 64}, {.parts = 2}) == 1.0F / 128);

TEST(LossScale, FollowsTheRulesOfGradScaler) {
  const std::uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const int interval : {1, 3, 2000}) {
    const LossScaleRule rule{.interval = static_cast<float>(interval)};
    LossScaleState state{.scale = 65536};
    double scale = 65536;
    int growth_tracker = 0;
    int skipped = 0;
    for (int step = 0; step < (interval == 1 ? 60 : 20000); ++step) {
      const bool found_inf = random() % (interval == 1 ? 2 : 3000) == 0;
      state = next_loss_scale(rule, !found_inf, state);
      if (found_inf) {
        scale *= 0.5;
        growth_tracker = 0;
        ++skipped;
      } else if (++growth_tracker == interval) {
        if (scale * 2 <= static_cast<double>(std::numeric_limits<float>::max())) scale *= 2;
        growth_tracker = 0;
      }
      ASSERT_EQ(static_cast<double>(state.scale), scale) << "step " << step;
      ASSERT_EQ(state.good_steps, static_cast<float>(growth_tracker));
      ASSERT_EQ(state.skipped_steps, static_cast<float>(skipped));
    }
  }
}

TEST(LossScale, DoesNotGrowOutOfFloat) {
  const LossScaleRule rule{.interval = 1};
  EXPECT_EQ(next_loss_scale(rule, true, {.scale = 0x1p126F}).scale, 0x1p127F);
  EXPECT_EQ(next_loss_scale(rule, true, {.scale = 0x1p127F}).scale, 0x1p127F);
  EXPECT_EQ(unscaling_factor({.scale = 0x1p127F}, {.parts = 8}), 0x1p-130F) << "gradients vanish";
}

TEST(LossScale, StaysIfItIsFixed) {
  LossScaleState state{.scale = 1000};
  for (int step = 0; step < 5000; ++step)
    state = next_loss_scale(LossScaleRule::fixed(), step % 7 != 0, state);
  EXPECT_EQ(state.scale, 1000.0F);
  EXPECT_EQ(state.skipped_steps, 715.0F);
}

class LossScaleKernels : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = make_test_backend();
  Tensor state_ = Tensor::from<float>(*backend_, {3}, std::array{48.0F, 5.0F, 2.0F});
  Tensor step_ = Tensor::from<float>(*backend_, {2}, std::array{0.25F, 3.0F});
  Tensor flag_ = Tensor::zeros(*backend_, {1});

  LossScaleState* state() const { return reinterpret_cast<LossScaleState*>(state_.data<float>()); }
  const LossScaleStep* step() const {
    return reinterpret_cast<const LossScaleStep*>(step_.data<const float>());
  }
};

TEST_F(LossScaleKernels, BeginAStepAndEndIt) {
  const Tensor gradient = Tensor::zeros(*backend_, {});
  flag_.set_values<float>(std::array{1.0F});
  backend_->optimizer().begin_scaled_step(state(), step(), gradient.data<float>(),
                                          flag_.data<float>());
  EXPECT_EQ(gradient.item(), 12.0F);
  EXPECT_EQ(flag_.item(), 0.0F);
  backend_->optimizer().move_loss_scale({.interval = 6}, flag_.data<const float>(), state());
  EXPECT_EQ(state_.host_values<float>(), (std::vector<float>{96, 0, 2}));
  flag_.set_values<float>(std::array{1.0F});
  backend_->optimizer().move_loss_scale({.interval = 6}, flag_.data<const float>(), state());
  EXPECT_EQ(state_.host_values<float>(), (std::vector<float>{48, 0, 3}));
}

TEST_F(LossScaleKernels, MakeMeansOfGradientsAndFindEveryValueThatIsNotFinite) {
  std::mt19937_64 random(std::random_device{}());
  // Also nothing, and arrays that are not aligned.
  for (const std::int64_t count : {0, 1, 7, 1031, 300001})
    for (const std::int64_t begin : {0, 1}) {
      std::vector<float> values(static_cast<std::size_t>(count + begin));
      for (float& value : values) value = std::normal_distribution<float>(0, 1e6F)(random);
      const auto result_of = [&](const std::vector<float>& scaled) {
        flag_.set_values<float>(std::array{0.0F});
        const Tensor x = Tensor::from<float>(*backend_, {count + begin}, scaled);
        backend_->optimizer().unscale(count, state(), step(), x.data<float>() + begin,
                                      flag_.data<float>());
        return x.host_values<float>();
      };
      const std::vector<float> means = result_of(values);
      EXPECT_EQ(flag_.item(), 0.0F) << count;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double factor = i < static_cast<std::size_t>(begin) ? 1 : 1.0 / (48 * 3);
        ASSERT_NEAR(means[i], values[i] * factor, 1e-6 * std::abs(values[i] * factor));
      }
      if (count == 0) continue;
      for (const float bad : {kInfinity, -kInfinity, kNan}) {
        std::vector<float> some = values;
        const auto place = static_cast<std::size_t>(begin) +
                           random() % values.size() % static_cast<std::size_t>(count);
        some[place] = bad;
        result_of(some);
        EXPECT_EQ(flag_.item(), 1.0F) << bad << " at " << place << " of " << count;
      }
    }
}

/// Two matrices, the second of which Muon treats as a classifier, and a bias.
class SkippingNetwork : public Module {
 public:
  explicit SkippingNetwork(Backend& backend) {
    add_parameter("weight", Tensor::zeros(backend, {5, 7}), ParameterKind::kWeight);
    add_parameter("bias", Tensor::zeros(backend, {5}), ParameterKind::kBias);
    add_parameter("fc", Tensor::zeros(backend, {3, 5}), ParameterKind::kWeight);
  }
  Tensor forward(Tensor input) override { return input; }
  std::string kind() const override { return "SkippingNetwork"; }
  Shape output_shape(const Shape& input) const override { return input; }
};

class SkippedSteps : public ::testing::TestWithParam<OptimizerOptions> {
 protected:
  void fill(const Tensor& flat) {
    std::vector<float> values(static_cast<std::size_t>(flat.size()));
    for (const FlatView& view : flat_.views)
      for (std::int64_t i = 0; i < view.count; ++i)
        values[static_cast<std::size_t>(view.offset + i)] = normal_(random_);
    flat.set_values<float>(values);
  }
  /// Parameters and state.
  std::vector<std::vector<float>> all(const std::vector<NamedTensor>& state) const {
    std::vector<std::vector<float>> values{flat_.values.host_values<float>()};
    for (const NamedTensor& item : state)
      if (item.name != "steps") values.push_back(item.tensor.host_values<float>());
    return values;
  }

  std::mt19937_64 random_{std::random_device{}()};
  std::normal_distribution<float> normal_;
  std::unique_ptr<Backend> backend_ = make_test_backend();
  SkippingNetwork network_{*backend_};
  FlatParameters flat_ = flatten_parameters(network_);
  Tensor word_ = Tensor::zeros(*backend_, {1});
};

TEST_P(SkippedSteps, LeaveParametersAndStateAlone) {
  fill(flat_.values);
  const auto optimizer = make_optimizer(flat_, GetParam());
  optimizer->skip_when(word_);
  for (int step = 0; step < 4; ++step) {
    fill(flat_.gradients);
    const auto before = all(optimizer->state());
    const bool skip = step % 2 == 1;
    word_.set_values<float>(std::array{skip ? 1.0F : 0.0F});
    if (skip) flat_.gradients.set_values<float>(std::vector(before[0].size(), kNan));
    optimizer->step(0.1);
    if (skip) {
      EXPECT_EQ(all(optimizer->state()), before);
    } else {
      EXPECT_NE(all(optimizer->state()), before);
    }
  }
}

TEST_P(SkippedSteps, AreTakenAsEverIfTheWordIsZero) {
  std::vector<std::vector<float>> results[2];
  fill(flat_.values);
  fill(flat_.gradients);
  const std::vector<float> begin = flat_.values.host_values<float>();
  for (const bool may_skip : {false, true}) {
    flat_.values.set_values<float>(begin);
    const auto optimizer = make_optimizer(flat_, GetParam());
    if (may_skip) optimizer->skip_when(word_);
    for (int step = 0; step < 3; ++step) optimizer->step(0.1);
    results[may_skip ? 1 : 0] = all(optimizer->state());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(SkippedSteps, AreSkippedInEveryPart) {
  if (std::holds_alternative<MuonOptions>(GetParam())) GTEST_SKIP() << "it is not sharded";
  fill(flat_.values);
  fill(flat_.gradients);
  const std::int64_t size = flat_.values.size();
  ShardedOptimizer optimizer(
      flat_, {{0, size / 3}, {size / 3, size}},
      [](const FlatParameters& part) { return make_optimizer(part, GetParam()); });
  optimizer.skip_when(word_);
  word_.set_values<float>(std::array{1.0F});
  const std::vector<float> before = flat_.values.host_values<float>();
  optimizer.begin_step(0.1);
  optimizer.update(0, size / 3);
  optimizer.update(size / 3, size);
  EXPECT_EQ(flat_.values.host_values<float>(), before);
  for (const std::size_t part : {0U, 1U})
    for (const NamedTensor& item : optimizer.part(part).flat_state())
      for (const float value : item.tensor.host_values<float>()) EXPECT_EQ(value, 0.0F);
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, SkippedSteps,
    ::testing::Values(SgdOptions{}, SgdOptions{.momentum = 0.9},
                      SgdOptions{.momentum = 0.9, .nesterov = true},
                      AdamOptions{.decoupled_decay = true, .weight_decay = {.weight = 0.1}},
                      MuonOptions{.weight_decay = 0.1},
                      MuonOptions{.scale = MuonScale::kNormalise, .bf16 = true}));

}  // namespace
}  // namespace dlaunch::nn
