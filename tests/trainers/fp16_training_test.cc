// Training in f16 on the CUDA backend: on the first device in builds that can, else with its
// kernels on the CPU (tests/cuda_on_host).
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nn/cuda/cuda_backend.h"
#include "runtime/base/temporary_folder.h"
#include "tests/support/thread_ranks.h"
#include "trainers/training/trainer.h"

namespace dlaunch::testing {
namespace {

class Fp16Training : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = nn::why_no_cuda(); !why.empty())
      GTEST_SKIP() << "all tests on CUDA are skipped: " << why;
  }

  struct Outcome {
    std::vector<float> parameters;
    std::vector<nlohmann::json> steps;  // of the metrics
    double validation_loss = 0;
    double first_validation_loss = 0;  // after the first epoch
  };

  /// Ten full steps of 16 samples, in two micro-batches each.
  Outcome train(const nlohmann::json& changes, bool graphs = false) const {
    nlohmann::json json = {
        {"data",
         {{"set", "synthetic"},
          {"crop_padding", 1},
          {"synthetic",
           {{"classes", 3}, {"train_size", 80}, {"test_size", 6}, {"height", 8}, {"width", 8}}}}},
        {"model", {{"name", "resnet20"}}},
        {"optimizer", {{"learning_rate", 0.02}, {"momentum", 0.9}}},
        {"train", {{"epochs", 2}, {"global_batch_size", 16}, {"accumulation_steps", 2}}},
        {"output",
         {{"directory", directory_}, {"progress", "none"}, {"tensorboard", ""}, {"log_every", 1}}}};
    json.merge_patch(changes);
    json["train"]["cuda_graphs"] = graphs;
    const TrainConfig config = read_train_config(json, "test");
    Outcome outcome;
    run_threads_as_ranks(1, [&](Communicator& world) {
      const auto backend = nn::make_cuda_backend();
      std::ostringstream screen;
      Trainer trainer(config, {.world = world, .backend = *backend}, {.out = screen}, {});
      outcome.validation_loss = trainer.run().validation.mean_loss();
      outcome.parameters = trainer.parameters().values.host_values<float>();
    });
    std::ifstream file(directory_ + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);)
      if (const auto parsed = nlohmann::json::parse(line); parsed.at("event") == "step")
        outcome.steps.push_back(parsed);
      else if (parsed.at("event") == "epoch" && parsed.at("epoch") == 1)
        outcome.first_validation_loss = parsed.at("validation_loss");
    return outcome;
  }

  static nlohmann::json fp16(double scale = 65536) {
    return {{"train", {{"compute_type", "fp16"}, {"loss_scale", scale}}}};
  }

  const TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(Fp16Training, HasTheLossesAndGradientsOfF32) {
  const Outcome exact = train(nlohmann::json::object());
  const Outcome rounded = train(fp16());
  ASSERT_EQ(rounded.steps.size(), 10U);
  // The first step is from the same parameters; then roundings add up, so that after two epochs any
  // two ways of rounding are a tenth apart.
  const std::vector<double> tolerances{0.003, 0.06, 0.06, 0.15};
  for (std::size_t i = 0; i < tolerances.size(); ++i)
    for (const char* key : {"loss", "gradient_norm"}) {
      const double value = exact.steps[i].at(key);
      EXPECT_NEAR(rounded.steps[i].at(key).get<double>(), value, tolerances[i] * value)
          << key << " of step " << i + 1;
    }
  EXPECT_EQ(rounded.steps.back().at("loss_scale"), 65536);
  EXPECT_EQ(rounded.steps.back().at("skipped_steps"), 0);
  EXPECT_GT(exact.first_validation_loss, 0);
  EXPECT_NEAR(rounded.first_validation_loss, exact.first_validation_loss,
              0.1 * exact.first_validation_loss);
}

TEST_F(Fp16Training, SkipsStepsThatOverflow) {
  const Outcome outcome = train(fp16(0x1p24));
  const double skipped = outcome.steps.back().at("skipped_steps");
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 10);
  EXPECT_EQ(outcome.steps.back().at("loss_scale"), 0x1p24 * std::pow(0.5, skipped));
  EXPECT_TRUE(outcome.steps.front().at("gradient_norm").is_null());
  for (const float value : outcome.parameters) ASSERT_TRUE(std::isfinite(value));
}

TEST_F(Fp16Training, HasTheSameBitsWhenStepsAreRecordedAndRepeated) {
  const Outcome directly = train(fp16(0x1p24));
  const Outcome repeated = train(fp16(0x1p24), true);
  EXPECT_EQ(directly.parameters, repeated.parameters);
  EXPECT_EQ(directly.validation_loss, repeated.validation_loss);
}

TEST_F(Fp16Training, HasTheSameBitsWhenStepsAreDoneAndRecordedBeforehand) {
  nlohmann::json how = fp16(0x1p24);  // which overflows there, too
  how["data"] = {{"resize_sides", {6}}, {"resize_until", {1}}};
  const Outcome directly = train(how);
  how["train"]["prepare_steps"] = true;
  for (const bool graphs : {false, true}) {
    const Outcome prepared = train(how, graphs);
    EXPECT_EQ(directly.parameters, prepared.parameters);
    EXPECT_EQ(directly.validation_loss, prepared.validation_loss);
    EXPECT_EQ(directly.steps.back().at("loss_scale"), prepared.steps.back().at("loss_scale"));
  }
}

TEST_F(Fp16Training, GoesWithoutAScaleIfAskedTo) {
  nlohmann::json none = fp16();
  none["train"]["loss_scaling"] = "none";
  none["train"]["max_steps"] = 2;
  const Outcome outcome = train(none);
  ASSERT_EQ(outcome.steps.size(), 2U);
  EXPECT_FALSE(outcome.steps[0].contains("loss_scale"));
  EXPECT_GT(outcome.steps[0].at("gradient_norm"), 0);
}

}  // namespace
}  // namespace dlaunch::testing
