// Training with scaled losses, on a fake device (which computes in f32: that overflows only from
// scales on which no network needs).
#include <algorithm>
#include <cmath>
#include <utility>

#include <gmock/gmock.h>

#include "nn/checkpoint/named_tensors.h"
#include "nn/models/model.h"
#include "runtime/base/json_reader.h"
#include "tests/trainers/device_training.h"

namespace dlaunch::testing {
namespace {

using ::testing::MatchesRegex;

constexpr double kTooLarge = 0x1p126;

class ScaledTraining : public DeviceTraining {
 protected:
  /// Changes of a configuration, and scaled losses.
  static nlohmann::json scaled(double scale, nlohmann::json changes = nlohmann::json::object()) {
    changes["train"]["loss_scaling"] = "dynamic";
    changes["train"]["loss_scale"] = scale;
    changes["output"]["log_every"] = 1;
    return changes;
  }
  /// Of the run before, the lines of steps.
  std::vector<nlohmann::json> steps() const {
    std::vector<nlohmann::json> lines;
    for (const nlohmann::json& line : metrics())
      if (line.at("event") == "step") lines.push_back(line);
    return lines;
  }
  static void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << i;
  }
};

TEST_F(ScaledTraining, GivesTheParametersOfUnscaledTraining) {
  for (const char* name : {"sgd", "adamw", "muon"}) {
    SCOPED_TRACE(name);
    nlohmann::json how = {
        {"optimizer", {{"name", name}, {"learning_rate", 0.003}, {"momentum", nullptr}}}};
    // Else the sign of a gradient that is nothing but rounding would matter.
    if (how["optimizer"]["name"] == "adamw") how["optimizer"]["eps"] = 0.001;
    const Outcome plain = train(2, On::kDevice, how);
    const Outcome with_scale = train(2, On::kDevice, scaled(65536, how));
    expect_near(with_scale.parameters, plain.parameters);
    EXPECT_EQ(steps().back().at("skipped_steps"), 0);
    EXPECT_NEAR(with_scale.summary.validation.loss, plain.summary.validation.loss, 1e-4);
  }
}

TEST_F(ScaledTraining, SkipsStepsUntilGradientsFitAndThenTrainsAsWithoutScale) {
  // Without momentum, which a step at a rate of 0 would move.
  nlohmann::json how = {{"optimizer", {{"momentum", 0}}}, {"ema", {{"decay", 0}}}};
  const Outcome skipping = train(2, On::kDevice, scaled(kTooLarge, how));
  const std::vector<nlohmann::json> lines = steps();
  ASSERT_EQ(lines.size(), 10U);
  double skipped = 0;
  std::vector<double> epochs;
  std::vector<double> factors;  // a rate of 0 does what skipping does
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double before = std::exchange(skipped, lines[i].at("skipped_steps").get<double>());
    const bool skips = skipped > before;
    EXPECT_EQ(lines[i].at("loss_scale"), kTooLarge * std::pow(0.5, skipped));
    EXPECT_EQ(lines[i].at("gradient_norm").is_null(), skips) << i;
    for (const double edge : {-0.25, 0.25}) {
      epochs.push_back(std::max(0.0, (static_cast<double>(i) + edge) / 5));
      factors.push_back(skips ? 0 : 1);
    }
  }
  EXPECT_EQ(factors.front(), 0);
  EXPECT_GT(std::ranges::count(factors, 1.0), 0);
  how["schedule"] = {
      {"name", "piecewise_linear"}, {"point_epochs", epochs}, {"point_factors", factors}};
  expect_near(skipping.parameters, train(2, On::kDevice, how).parameters);
}

TEST_F(ScaledTraining, ChangesNothingInAStepThatIsSkipped) {
  for (const char* gradients : {"all_reduce", "shard"}) {
    SCOPED_TRACE(gradients);
    const nlohmann::json one = {{"optimizer", {{"name", "adamw"}, {"momentum", nullptr}}},
                                {"parallel", {{"gradients", gradients}}},
                                {"train", {{"max_steps", 1}}}};
    nlohmann::json still = one;
    still["optimizer"]["learning_rate"] = 0;
    EXPECT_EQ(train(2, On::kDevice, scaled(kTooLarge, one)).parameters,
              train(2, On::kDevice, still).parameters);
    EXPECT_NE(train(2, On::kDevice, one).parameters, train(2, On::kDevice, still).parameters);
  }
}

TEST_F(ScaledTraining, HasTheSameBitsWhenStepsAreRecordedAndRepeated) {
  for (const char* gradients : {"all_reduce", "shard"}) {
    SCOPED_TRACE(gradients);
    const nlohmann::json how =
        scaled(kTooLarge, {{"parallel", {{"gradients", gradients}}},
                           {"train", {{"epochs", 4}, {"loss_scale_growth_steps", 2}}}});
    const Outcome directly = train(3, On::kDevice, how);
    const std::vector<nlohmann::json> lines = steps();
    const Outcome repeated = train(3, On::kDeviceWithGraphs, how);
    EXPECT_EQ(repeated.repeats, 20 - 2 * 2) << "all but two of either size";
    EXPECT_EQ(directly.parameters, repeated.parameters);
    for (std::size_t i = 0; i < lines.size(); ++i)
      EXPECT_EQ(steps().at(i).at("loss_scale"), lines[i].at("loss_scale")) << i;
    // It has grown too far again and again.
    EXPECT_GT(lines.back().at("skipped_steps"), lines.at(9).at("skipped_steps"));
  }
}

TEST_F(ScaledTraining, GoesOnFromACheckpointWithTheSameBits) {
  for (const char* gradients : {"all_reduce", "shard"}) {
    SCOPED_TRACE(gradients);
    const std::string folder = directory_ + "/" + gradients;
    const nlohmann::json whole =
        scaled(kTooLarge, {{"optimizer", {{"name", "adamw"}, {"momentum", nullptr}}},
                           {"parallel", {{"gradients", gradients}}},
                           {"train", {{"loss_scale_growth_steps", 3}}},
                           {"checkpoint", {{"every_steps", 5}}},
                           {"output", {{"directory", folder}}}});
    const Outcome at_once = train(2, On::kDeviceWithGraphs, whole);
    nlohmann::json rest = whole;
    std::vector<std::string> checkpoints;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/checkpoints"))
      checkpoints.push_back(entry.path().string());
    rest["checkpoint"]["resume"] = *std::ranges::min_element(checkpoints);
    rest["output"]["directory"] = folder + "-rest";
    EXPECT_EQ(at_once.parameters, train(2, On::kDeviceWithGraphs, rest).parameters);
    EXPECT_GT(metrics(folder).at(10).at("skipped_steps"), 0);
    EXPECT_EQ(metrics(folder).at(10).at("skipped_steps"),
              metrics(folder + "-rest").at(5).at("skipped_steps"));
  }
}

TEST_F(ScaledTraining, KeepsAFixedScale) {
  nlohmann::json how = scaled(1000);
  how["train"]["loss_scaling"] = "fixed";
  expect_near(train(2, On::kDevice, how).parameters, train(2, On::kDevice).parameters);
  for (const nlohmann::json& line : steps()) EXPECT_EQ(line.at("loss_scale"), 1000);
}

TEST_F(ScaledTraining, EndsWhenNoScaleIsSmallEnough) {
  // Large weights behind a normalisation of small values: the loss is a number still, gradients
  // before the normalisation are not.
  const auto backend = nn::make_cpu_backend();
  nn::Generator generator(1);
  const auto model = nn::make_model("small_cnn", {.num_classes = 3}, *backend, generator, nullptr);
  const auto scale = [&](const std::string& name, float factor) {
    for (const nn::NamedParameter& parameter : model->parameters())
      if (parameter.name == name)
        backend->scale(parameter.tensor.size(), factor, nullptr, parameter.tensor.data<float>(),
                       parameter.tensor.data<float>());
  };
  scale("fc1.weight", 1e-3F);
  scale("fc2.weight", 5e37F);
  nn::save_state_dict(directory_ + "/large.safetensors", *model);
  const nlohmann::json how = scaled(1, {{"model", {{"weights", directory_ + "/large.safetensors"}}},
                                        {"optimizer", {{"learning_rate", 0}}}});
  EXPECT_EQ(divergence(2, On::kDevice, how),
            "epoch 1, step 1 of 5: gradients (6 of 8, first in backward fc1.bias) are not finite "
            "though the loss scale has fallen to 0.5; lower optimizer.learning_rate, warm up "
            "(schedule.warmup_epochs) or clip gradients (optimizer.clip_norm)");
}

TEST_F(ScaledTraining, NamesTheLayerInWhichAStepThatIsSkippedHasLeftTheNumbers) {
  const auto backend = nn::make_cpu_backend();
  nn::Generator generator(1);
  const auto model = nn::make_model("small_cnn", {.num_classes = 3}, *backend, generator, nullptr);
  for (const nn::NamedParameter& parameter : model->parameters())
    if (parameter.name == "conv2.weight")
      for (float& value : parameter.tensor.values<float>()) value = 3e38F;
  nn::save_state_dict(directory_ + "/large.safetensors", *model);
  const nlohmann::json how =
      scaled(65536, {{"model", {{"weights", directory_ + "/large.safetensors"}}},
                     {"optimizer", {{"clip_norm", 2}}}});
  EXPECT_THAT(divergence(3, On::kDeviceWithGraphs, how),
              MatchesRegex("epoch 1, step 1 of 5: the loss is nan; noticed after step 1; with the "
                           "parameters of then, it begins on rank 0, in the output of conv2, "
                           "Conv2d\\(32, 32, kernel 3\\): [0-9]+ of [0-9]+ numbers are not "
                           "finite; lower optimizer.learning_rate, .*"));
}

TEST_F(ScaledTraining, IsForDevicesOnly) {
  const auto refusal = [&](On where, const nlohmann::json& how) -> std::string {
    try {
      train(1, where, how);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal(On::kCpu, scaled(1)),
            "train.loss_scaling: only losses on GPUs are scaled (train.device \"cuda\"); use "
            "\"auto\"");
  EXPECT_EQ(refusal(On::kCpu, {{"train", {{"compute_type", "fp16"}}}}),
            "train.compute_type: \"fp16\" is for train.device \"cuda\"; use \"bf16\" or \"auto\" "
            "here");
}

}  // namespace
}  // namespace dlaunch::testing
