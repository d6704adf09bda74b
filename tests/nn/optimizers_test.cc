// Optimizers against PyTorch's (torch/optimizers.json, made by torch/optimizers.py), steps in
// parts, their state, and the moving average.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nn/optim/ema.h"
#include "nn/optim/make_optimizer.h"
#include "nn/optim/sharded_optimizer.h"
#include "tests/nn/test_backend.h"

namespace dlaunch::nn {
namespace {

constexpr std::int64_t kRows = 4, kColumns = 6;
constexpr int kSteps = 7;

/// The script's parameters, and a classifier behind them, which Muon treats like a bias.
class Network : public Module {
 public:
  explicit Network(Backend& backend) {
    add_parameter("weight", Tensor::zeros(backend, {kRows, kColumns}), ParameterKind::kWeight);
    add_parameter("bias", Tensor::zeros(backend, {kRows}), ParameterKind::kBias);
    add_parameter("fc", Tensor::zeros(backend, {3, kRows}), ParameterKind::kWeight);
  }
  Tensor forward(Tensor input) override { return input; }
  std::string kind() const override { return "Network"; }
  Shape output_shape(const Shape& input) const override { return input; }
};

class OptimizerTest : public ::testing::Test {
 protected:
  OptimizerTest() : network_(*backend_), flat_(flatten_parameters(network_)) {
    set(
        flat_.values, [](double i, double phase) { return std::sin(1.7 * i + phase); }, 0, 1);
  }

  /// As in the script; the classifier gets what the bias gets.
  template <typename Formula>
  void set(const Tensor& flat, Formula formula, double weight_phase, double bias_phase) {
    auto values = flat.host_values<float>();
    for (const FlatView& view : flat_.views)
      for (std::int64_t i = 0; i < view.count; ++i)
        values[static_cast<std::size_t>(view.offset + i)] = static_cast<float>(
            formula(static_cast<double>(i), view.name == "weight" ? weight_phase : bias_phase));
    flat.set_values<float>(values);
  }
  void set_gradients(int step) {
    set(
        flat_.gradients,
        [&](double i, double phase) { return std::cos(0.9 * i + 1.3 * step + phase); }, 0.3, 0.6);
  }
  static double rate(int step) { return 0.05 * (1 + step % 3); }

  void run(Optimizer& optimizer) {
    for (int step = 0; step < kSteps; ++step) {
      set_gradients(step);
      optimizer.step(rate(step));
    }
  }
  std::vector<float> values() const { return flat_.values.host_values<float>(); }

  std::unique_ptr<Backend> backend_ = make_test_backend();
  Network network_;
  FlatParameters flat_;
};

struct TorchCase {
  std::string name;
  OptimizerOptions options;
};
void PrintTo(const TorchCase& value, std::ostream* out) {
  *out << value.name;
}

/// What the script's groups() sets.
constexpr PerKind kDecay{.weight = 0.1};
constexpr PerKind kFactors{.weight = 1, .bias = 4, .norm = 1};

std::vector<TorchCase> torch_cases() {
  const PerKind all = PerKind::uniform(0.05);
  const PerKind matrices_only{.weight = 1};
  return {
      {"sgd", SgdOptions{}},
      {"momentum", SgdOptions{.momentum = 0.9, .weight_decay = all}},
      {"nesterov",
       SgdOptions{
           .momentum = 0.8, .nesterov = true, .weight_decay = kDecay, .rate_factors = kFactors}},
      {"adam", AdamOptions{.weight_decay = all}},
      {"adam_betas", AdamOptions{.beta1 = 0.8,
                                 .beta2 = 0.95,
                                 .eps = 1e-4,
                                 .weight_decay = kDecay,
                                 .rate_factors = kFactors}},
      {"adamw",
       AdamOptions{.decoupled_decay = true, .weight_decay = kDecay, .rate_factors = kFactors}},
      {"muon_original",
       MuonOptions{
           .momentum = 0.9, .weight_decay = 0.1, .others = {.rate_factors = matrices_only}}},
      {"muon_match_adam", MuonOptions{.momentum = 0.9,
                                      .scale = MuonScale::kMatchAdam,
                                      .weight_decay = 0.1,
                                      .others = {.rate_factors = matrices_only}}},
  };
}

class AgainstTorch : public OptimizerTest, public ::testing::WithParamInterface<TorchCase> {};

TEST_P(AgainstTorch, TakesTheParametersToTheSamePlace) {
  const char* const elsewhere = std::getenv("DLAUNCH_TEST_SOURCES");  // as tools/gpu_check says
  std::ifstream file(std::string(elsewhere != nullptr ? elsewhere : SOURCE_ROOT) +
                     "/tests/nn/torch/optimizers.json");
  const auto table = nlohmann::json::parse(file);
  const auto& expected = table.at(GetParam().name);
  const auto optimizer = make_optimizer(flat_, GetParam().options);
  run(*optimizer);
  for (const FlatView& view : flat_.views) {
    if (view.name == "fc") continue;
    for (std::int64_t i = 0; i < view.count; ++i)
      EXPECT_NEAR(values()[static_cast<std::size_t>(view.offset + i)],
                  expected.at(view.name).at(static_cast<std::size_t>(i)).get<double>(), 1e-5)
          << view.name << " " << i;
  }
}

TEST_P(AgainstTorch, AStepInPartsIsAWholeStep) {
  const auto whole = make_optimizer(flat_, GetParam().options);
  run(*whole);
  const std::vector<float> expected = values();
  set(
      flat_.values, [](double i, double phase) { return std::sin(1.7 * i + phase); }, 0, 1);
  const auto parts = make_optimizer(flat_, GetParam().options);
  for (int step = 0; step < kSteps; ++step) {
    set_gradients(step);
    parts->begin_step(rate(step));
    // From the back, as gradients arrive; between parameters, and where that is allowed anywhere.
    std::int64_t end = flat_.values.size();
    const std::int64_t inside = parts->needs_whole_parameters() ? 0 : 9;
    for (auto view = flat_.views.rbegin(); view != flat_.views.rend(); ++view) {
      const std::int64_t begin = view->offset == 0 ? 0 : view->offset + inside;
      parts->update(begin, end);
      end = begin;
    }
  }
  EXPECT_EQ(values(), expected);
}

TEST_P(AgainstTorch, GoesOnFromItsStateAsIfItHadNotStopped) {
  const auto first = make_optimizer(flat_, GetParam().options);
  run(*first);
  const std::vector<float> between = values();
  run(*first);
  const std::vector<float> expected = values();

  flat_.values.set_values<float>(between);
  const auto second = make_optimizer(flat_, GetParam().options);
  // A run like the first one has the state that is to be copied.
  set(
      flat_.values, [](double i, double phase) { return std::sin(1.7 * i + phase); }, 0, 1);
  const auto again = make_optimizer(flat_, GetParam().options);
  run(*again);
  const auto from = again->state();
  const auto to = second->state();
  ASSERT_EQ(from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(from[i].name, to[i].name);
    to[i].tensor.set_values<float>(from[i].tensor.host_values<float>());
  }
  EXPECT_EQ(values(), between);
  run(*second);
  EXPECT_EQ(values(), expected);
}

TEST_P(AgainstTorch, LeavesWhatNeedsNoGradientAsItIsAndTrainsTheRestAsEver) {
  const auto train = [&] {
    set(
        flat_.values, [](double i, double phase) { return std::sin(1.7 * i + phase); }, 0, 1);
    const auto optimizer = make_optimizer(flat_, GetParam().options);
    run(*optimizer);
    return values();
  };
  const std::vector<float> all = train();
  for (std::size_t frozen = 0; frozen < flat_.views.size(); ++frozen) {
    flat_.views[frozen].parameter.set_requires_grad(false);
    const std::vector<float> some = train();
    flat_.views[frozen].parameter.set_requires_grad(true);
    for (std::size_t k = 0; k < flat_.views.size(); ++k)
      for (std::int64_t i = 0; i < flat_.views[k].count; ++i) {
        const auto at = static_cast<std::size_t>(flat_.views[k].offset + i);
        const auto begun = static_cast<float>(
            std::sin(1.7 * static_cast<double>(i) + (flat_.views[k].name == "weight" ? 0 : 1)));
        EXPECT_EQ(some[at], k == frozen ? begun : all[at]) << flat_.views[k].name << " " << i;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, AgainstTorch, ::testing::ValuesIn(torch_cases()),
                         [](const auto& instance) { return instance.param.name; });

TEST_F(OptimizerTest, MuonScalesTheMatrixFirstWhereItIsToldTo) {
  Muon muon(flat_, {.scale = MuonScale::kNormalise});
  set_gradients(0);
  muon.step(0);
  double squares = 0;
  for (std::int64_t i = 0; i < kRows * kColumns; ++i)
    squares += std::pow(values()[static_cast<std::size_t>(i)], 2);
  EXPECT_NEAR(squares, static_cast<double>(kRows), 1e-5);
}

/// A parameter of every kind, and one behind them that is not trained.
class EveryKind : public Module {
 public:
  explicit EveryKind(Backend& backend) {
    add_parameter("stem", Tensor::zeros(backend, {5}), ParameterKind::kStem);
    add_parameter("weight", Tensor::zeros(backend, {kRows, kColumns}), ParameterKind::kWeight);
    add_parameter("norm", Tensor::zeros(backend, {7}), ParameterKind::kNorm);
    add_parameter("bias", Tensor::zeros(backend, {kRows}), ParameterKind::kBias);
    add_parameter("frozen", Tensor::zeros(backend, {9}), ParameterKind::kWeight);
  }
  Tensor forward(Tensor input) override { return input; }
  std::string kind() const override { return "EveryKind"; }
  Shape output_shape(const Shape& input) const override { return input; }
};

TEST_F(OptimizerTest, InPartsTreatsEveryKindAsAWholeOneDoes) {
  const SgdOptions options{.momentum = 0.9,
                           .weight_decay = {.weight = 0.1, .bias = 0, .norm = 0.02, .stem = 0.3},
                           .rate_factors = {.weight = 1, .bias = 4, .norm = 2, .stem = 0.5}};
  const auto train = [&](bool in_parts) {
    EveryKind network(*backend_);
    FlatParameters flat = flatten_parameters(network);
    flat.views.back().parameter.set_requires_grad(false);
    const std::int64_t size = flat.values.size();
    std::vector<float> begun(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < begun.size(); ++i)
      begun[i] = std::sin(static_cast<float>(i) + 0.5F);
    flat.values.set_values<float>(begun);
    const auto make = [&](const FlatParameters& part) { return make_optimizer(part, options); };
    std::unique_ptr<Optimizer> optimizer;
    if (in_parts)  // which begin and end within parameters
      optimizer = std::make_unique<ShardedOptimizer>(
          flat, std::vector<FlatPart>{{0, 3}, {3, 30}, {30, size}}, make);
    else
      optimizer = make(flat);
    optimizer->set_stem_rate(0.7);
    for (int step = 0; step < 2; ++step) {
      std::vector<float> gradients(begun.size());
      for (std::size_t i = 0; i < gradients.size(); ++i)
        gradients[i] = std::cos(static_cast<float>(i) + static_cast<float>(step));
      flat.gradients.set_values<float>(gradients);
      optimizer->step(0.05);
    }
    std::map<std::string, std::vector<float>> values;
    for (const FlatView& view : flat.views) values[view.name] = view.parameter.host_values<float>();
    return values;
  };
  EXPECT_EQ(train(true), train(false));
}

TEST_F(OptimizerTest, RefuseImpossibleOptions) {
  EXPECT_THROW(Adam(flat_, {.beta1 = 1}), Error);
  EXPECT_THROW(Adam(flat_, {.beta2 = -0.1}), Error);
  EXPECT_THROW(Adam(flat_, {.eps = 0}), Error);
  EXPECT_THROW(Adam(flat_, {.weight_decay = {.norm = -1}}), Error);
  EXPECT_THROW(Adam(flat_, {.weight_decay = {.stem = -1}}), Error);
  EXPECT_THROW(Adam(flat_, {.rate_factors = {.bias = -1}}), Error);
  EXPECT_THROW(Muon(flat_, {.momentum = 1}), Error);
  EXPECT_THROW(Muon(flat_, {.iterations = 0}), Error);
  EXPECT_THROW(Muon(flat_, {.weight_decay = -1}), Error);
  EXPECT_THROW(Muon(flat_, {.others_factor = -1}), Error);
  EXPECT_THROW(Muon(flat_, {.others = {.momentum = 1}}), Error);
  EXPECT_THROW(Muon(flat_, {.others = {.nesterov = true}}), Error);
  EXPECT_THROW(Muon(flat_, {.others = {.weight_decay = {.stem = -1}}}), Error);
  EXPECT_THROW(Ema(state_of(network_), 1.0), Error);
}

TEST_F(OptimizerTest, EmaFollowsWithItsDecayAndCanBeExchanged) {
  Ema ema(state_of(network_), 0.75);
  double average = values()[0];
  for (int step = 0; step < 5; ++step) {
    flat_.values.backend().copy_from_host(
        flat_.values.data<float>(), std::array{static_cast<float>(step)}.data(), sizeof(float));
    ema.update();
    average = 0.75 * average + 0.25 * step;
  }
  const std::vector<float> own = values();
  ema.swap();
  EXPECT_NEAR(values()[0], average, 1e-6);
  EXPECT_EQ(values()[1], own[1]);  // did not move
  ema.swap();
  EXPECT_EQ(values(), own);
  ema.reset();
  ema.swap();
  EXPECT_EQ(values(), own);
}

TEST_F(OptimizerTest, EmaOfWhatDoesNotChangeStaysTheSameToTheLastBit) {
  auto constants = values();
  for (std::size_t i = 0; i < constants.size(); ++i)
    constants[i] = static_cast<float>(std::pow(-0.1, i % 30) * (1.0 + std::sqrt(1.0 + i)));
  flat_.values.set_values<float>(constants);
  for (const double decay : {0.1, 0.9, 0.999, 0.99999}) {
    Ema ema(state_of(network_), decay);
    for (int step = 0; step < 20; ++step) ema.update();
    flat_.values.set_values<float>(std::vector<float>(constants.size()));
    ema.swap();
    for (const FlatView& view : flat_.views)  // what lies between them is nobody's
      for (std::int64_t i = view.offset; i < view.offset + view.count; ++i)
        EXPECT_EQ(values()[static_cast<std::size_t>(i)], constants[static_cast<std::size_t>(i)])
            << decay << " " << i;
    flat_.values.set_values<float>(constants);
  }
}

TEST_F(OptimizerTest, EmaFollowsADecayNextToOneAsInDouble) {
  constexpr double kDecay = 0.99999;
  flat_.values.set_values<float>(std::vector<float>(values().size()));
  Ema ema(state_of(network_), kDecay);
  flat_.values.set_values<float>(std::vector<float>(values().size(), 3));
  double average = 0;
  for (int step = 0; step < 1000; ++step) {
    ema.update();
    average = kDecay * average + (1 - kDecay) * 3;
  }
  ema.swap();
  for (const FlatView& view : flat_.views)  // of 1 - decay in float, 1.4e-3 would be wrong
    EXPECT_NEAR(values()[static_cast<std::size_t>(view.offset)], average, 5e-5 * average);
}

/// More parameters, of two kinds in turn, than one launch on CUDA takes.
class ManyParameters : public Module {
 public:
  static constexpr int kCount = 161;
  explicit ManyParameters(Backend& backend) {
    for (int i = 0; i < kCount; ++i)
      add_parameter(
          std::to_string(i),
          Tensor::from<float>(backend, {3}, std::vector<float>(3, 0.01F * static_cast<float>(i))),
          i % 2 == 0 ? ParameterKind::kWeight : ParameterKind::kBias);
  }
  Tensor forward(Tensor input) override { return input; }
  std::string kind() const override { return "ManyParameters"; }
  Shape output_shape(const Shape& input) const override { return input; }
};

TEST_F(OptimizerTest, TakeMoreParametersThanOneLaunchDoes) {
  ManyParameters network(*backend_);
  const FlatParameters flat = flatten_parameters(network);
  Ema ema(state_of(network), 0.75);
  Adam adam(flat, {.eps = 0.1, .weight_decay = WeightDecay::weights_only(0.5)});
  auto gradients = flat.gradients.host_values<float>();
  const auto gradient = [](int parameter, int i) { return std::sin(0.7 * parameter + i); };
  for (int k = 0; k < ManyParameters::kCount; ++k)
    for (int i = 0; i < 3; ++i)
      gradients[static_cast<std::size_t>(flat.views[static_cast<std::size_t>(k)].offset + i)] =
          static_cast<float>(gradient(k, i));
  flat.gradients.set_values<float>(gradients);
  adam.step(0.1);
  ema.update();
  for (int k = 0; k < ManyParameters::kCount; ++k) {
    const NamedTensor& average = ema.averages()[static_cast<std::size_t>(k)];
    const auto own = flat.views[static_cast<std::size_t>(k)].parameter.host_values<float>();
    const auto averaged = average.tensor.host_values<float>();
    for (std::size_t i = 0; i < 3; ++i) {
      const double before = 0.01 * k;
      const double slope = gradient(k, static_cast<int>(i)) + (k % 2 == 0 ? 0.5 * before : 0);
      const double after = before - 0.1 * slope / (std::abs(slope) + 0.1);  // of a first step
      EXPECT_NEAR(own[i], after, 1e-6) << k;
      EXPECT_NEAR(averaged[i], 0.75 * before + 0.25 * after, 1e-6) << k;
    }
  }
}

}  // namespace
}  // namespace dlaunch::nn
