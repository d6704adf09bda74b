// Training with scaled losses, on a fake device (which computes in f32: that overflows only from
// scales on which no network needs).
#include <cmath>

#include <gmock/gmock.h>

#include "nn/core/flat_parameters.h"
#include "nn/models/model.h"
#include "runtime/base/json_reader.h"
#include "tests/trainers/device_training.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kTooLarge = 0x1p126;

class ScaledTraining : public DeviceTraining {
 protected:
  /// Changes of a configuration, on top of which `others` come.
  static nlohmann::json scaled(double scale, const nlohmann::json& others = {}) {
    nlohmann::json changes = {{"train", {{"loss_scaling", "dynamic"}, {"loss_scale", scale}}},
                              {"output", {{"log_every", 1}}}};
    changes.merge_patch(others.is_null() ? nlohmann::json::object() : others);
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
    const nlohmann::json how = {
        {"optimizer", {{"name", name}, {"learning_rate", 0.003}, {"momentum", nullptr}}}};
    const Outcome plain = train(2, On::kDevice, how);
    const Outcome with_scale = train(2, On::kDevice, scaled(65536, how));
    expect_near(with_scale.parameters, plain.parameters);
    EXPECT_EQ(steps().back().at("skipped_steps"), 0);
    EXPECT_NEAR(with_scale.summary.validation.loss, plain.summary.validation.loss, 1e-4);
  }
}

TEST_F(ScaledTraining, SkipsStepsUntilGradientsFitAndThenTrainsAsWithoutScale) {
  // Without momentum, which a step at a rate of 0 would move.
  const nlohmann::json plain = {{"optimizer", {{"momentum", 0}}}, {"ema", {{"decay", 0}}}};
  const Outcome skipping = train(2, On::kDevice, scaled(kTooLarge, plain));
  const std::vector<nlohmann::json> lines = steps();
  ASSERT_EQ(lines.size(), 10U);
  const auto skipped = lines.back().at("skipped_steps").get<std::size_t>();
  ASSERT_GT(skipped, 0U);
  ASSERT_LT(skipped, 5U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto so_far = static_cast<double>(std::min(i + 1, skipped));
    EXPECT_EQ(lines[i].at("skipped_steps"), so_far);
    EXPECT_EQ(lines[i].at("loss_scale"), kTooLarge * std::pow(0.5, so_far));
    EXPECT_EQ(lines[i].at("gradient_norm").is_null(), i < skipped);
  }
  // A rate of 0 does what skipping does.
  nlohmann::json late = plain;
  const double begin = (static_cast<double>(skipped) - 0.5) / 5;
  late["schedule"] = {{"name", "piecewise_linear"},
                      {"point_epochs", {0, begin, begin}},
                      {"point_factors", {0, 0, 1}}};
  expect_near(skipping.parameters, train(2, On::kDevice, late).parameters);
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
    EXPECT_EQ(repeated.repeats, 14) << "all full steps but two";
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
    rest["checkpoint"]["resume"] = folder + "/checkpoints/step-5.safetensors";
    rest["output"]["directory"] = directory_;
    EXPECT_EQ(at_once.parameters, train(2, On::kDeviceWithGraphs, rest).parameters);
    EXPECT_GT(steps().back().at("skipped_steps"), 0);
  }
}

TEST_F(ScaledTraining, KeepsAFixedScale) {
  nlohmann::json how = scaled(1000);
  how["train"]["loss_scaling"] = "fixed";
  expect_near(train(2, On::kDevice, how).parameters, train(2, On::kDevice).parameters);
  for (const nlohmann::json& line : steps()) EXPECT_EQ(line.at("loss_scale"), 1000);
}

TEST_F(ScaledTraining, EndsWhenNoScaleIsSmallEnough) {
  // A classifier with so large weights that the loss is a number, but not the gradients before it.
  const auto backend = nn::make_cpu_backend();
  nn::Generator generator(1);
  const auto model = nn::make_model("small_cnn", {.num_classes = 3}, *backend, generator, nullptr);
  const nn::NamedParameter weights = model->parameters().at(model->parameters().size() - 2);
  backend->scale(weights.tensor.size(), 1e37F, nullptr, weights.tensor.data<float>(),
                 weights.tensor.data<float>());
  nn::save_state_dict(directory_ + "/large.safetensors", *model);
  const nlohmann::json how =
      scaled(1, {{"model", {{"weights", directory_ + "/large.safetensors"}}}});
  try {
    train(2, On::kDevice, how);
    FAIL() << "it ended well";
  } catch (const Divergence& divergence) {
    EXPECT_STREQ(divergence.what(),
                 "epoch 1, step 1 of 5: gradients are not finite though the loss scale has fallen "
                 "to 0.5; lower optimizer.learning_rate, warm up or use train.compute_type "
                 "\"bf16\"");
  }
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
