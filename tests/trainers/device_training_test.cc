// Training on a device, compared with training on the CPU.
#include "tests/trainers/device_training.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>

#include "tests/support/processor.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST_F(DeviceTraining, GivesTheParametersOfTheCpu) {
  const Outcome cpu = train(2, On::kCpu);
  const std::vector<nlohmann::json> of_cpu = metrics();
  const Outcome device = train(2, On::kDevice);
  EXPECT_EQ(cpu.parameters, device.parameters);
  EXPECT_EQ(cpu.summary.validation.loss, device.summary.validation.loss);

  const std::vector<nlohmann::json> of_device = metrics();
  ASSERT_EQ(of_cpu.size(), of_device.size());
  std::size_t compared = 0;
  for (std::size_t i = 0; i < of_cpu.size(); ++i) {
    ASSERT_EQ(of_cpu[i].at("event"), of_device[i].at("event"));
    for (const char* key : {"loss", "gradient_norm", "learning_rate"}) {
      if (!of_cpu[i].contains(key)) continue;
      EXPECT_NEAR(of_cpu[i].at(key).get<double>(), of_device[i].at(key).get<double>(), 1e-6) << key;
      ++compared;
    }
  }
  EXPECT_GE(compared, 13U) << "steps 3, 6 and 9, and both epochs";
}

TEST_F(DeviceTraining, GivesTheSameParametersWhenStepsAreRecordedAndRepeated) {
  for (const char* name : {"adamw", "muon"}) {
    SCOPED_TRACE(name);
    const nlohmann::json how = {
        {"optimizer", {{"name", name}, {"learning_rate", 0.003}, {"momentum", nullptr}}}};
    const Outcome directly = train(2, On::kDevice, how);
    const Outcome repeated = train(2, On::kDeviceWithGraphs, how);
    EXPECT_EQ(directly.parameters, repeated.parameters);
    EXPECT_EQ(directly.summary.validation.loss, repeated.summary.validation.loss);
    EXPECT_EQ(directly.repeats, 0);
    EXPECT_EQ(repeated.repeats, 6) << "all full steps but two";
    EXPECT_EQ(repeated.summary.repeated_steps, 5U) << "the first of them was recorded before";
  }
}

TEST_F(DeviceTraining, RecordsRightBehindAValidationWhichHasKeptTheWeightsAsTheyWere) {
  // Two steps in an epoch: the third begins the second one, and is recorded.
  const nlohmann::json how = {{"data", {{"synthetic", {{"train_size", 32}}}}},
                              {"train", {{"epochs", 4}}},
                              {"ema", {{"decay", 0}}}};
  const Outcome directly = train(2, On::kDevice, how);
  const Outcome repeated = train(2, On::kDeviceWithGraphs, how);
  EXPECT_EQ(repeated.repeats, 6);
  EXPECT_EQ(directly.parameters, repeated.parameters);
  EXPECT_EQ(directly.summary.validation.loss, repeated.summary.validation.loss);
}

TEST_F(DeviceTraining, RecordsAndRepeatsWithShardedGradientsToo) {
  const nlohmann::json how = {{"parallel", {{"gradients", "shard"}}}};
  const Outcome cpu = train(3, On::kCpu, how);
  const Outcome device = train(3, On::kDevice, how);
  const Outcome repeated = train(3, On::kDeviceWithGraphs, how);
  ASSERT_EQ(cpu.parameters.size(), device.parameters.size());
  for (std::size_t i = 0; i < cpu.parameters.size(); ++i)  // whose sums are taken in other orders
    ASSERT_NEAR(cpu.parameters[i], device.parameters[i], 1e-5) << i;
  EXPECT_EQ(device.parameters, repeated.parameters);
  EXPECT_EQ(repeated.repeats, 6);
}

TEST_F(DeviceTraining, AugmentsImagesOnTheDeviceAsTheLoaderDoes) {
  nlohmann::json how = {{"data",
                         {{"crop_padding", 3},
                          {"crop_scope", "batch"},
                          {"pad_mode", "reflect"},
                          {"flip", true},
                          {"flip_mode", "alternating"},
                          {"brightness", 0.2},
                          {"contrast", 0.2},
                          {"cutout", 5}}},
                        {"train", {{"validation_views", "mirror_shift"}}}};
  const Outcome cpu = train(2, On::kCpu, how);
  const Outcome device = train(2, On::kDeviceWithGraphs, how);
  EXPECT_EQ(device.repeats, 6);
  EXPECT_EQ(cpu.parameters, device.parameters);
  EXPECT_EQ(cpu.summary.validation.loss, device.summary.validation.loss);
  how["data"]["on_device"] = false;
  EXPECT_EQ(cpu.parameters, train(2, On::kDevice, how).parameters);
  how["data"]["mix"] = "cutmix";
  how["data"]["on_device"] = true;
  EXPECT_EQ(train(2, On::kCpu, how).parameters, train(2, On::kDevice, how).parameters);
}

TEST_F(DeviceTraining, SmoothsLabelsAsOnTheCpu) {
  const nlohmann::json how = {{"train", {{"label_smoothing", 0.1}}}};
  const Outcome cpu = train(2, On::kCpu, how);
  EXPECT_EQ(cpu.parameters, train(2, On::kDevice, how).parameters);
  EXPECT_NE(cpu.parameters, train(2, On::kCpu).parameters);
}

TEST_F(DeviceTraining, TrainsTheStemAtItsOwnRateAsOnTheCpu) {
  nlohmann::json how = {
      {"data", {{"synthetic", {{"train_size", 16}, {"test_size", 2}}}}},
      {"model", {{"name", "airbench94"}}},
      {"ema", {{"decay", 0}}},
      {"schedule", {{"stem_epochs", 1}}},
      {"train", {{"epochs", 2}, {"global_batch_size", 8}, {"accumulation_steps", 1}}}};
  const Outcome cpu = train(1, On::kCpu, how);
  EXPECT_EQ(cpu.parameters, train(1, On::kDevice, how).parameters);
  how["schedule"]["stem_epochs"] = 0;
  EXPECT_NE(cpu.parameters, train(1, On::kCpu, how).parameters);
}

TEST_F(DeviceTraining, ValidatesBehindEverySoManyEpochsAndTheLast) {
  train(1, On::kCpu,
        {{"data", {{"synthetic", {{"train_size", 16}}}}},
         {"train", {{"epochs", 3}, {"validate_every", 2}}}});
  std::map<int, bool> validated;
  for (const nlohmann::json& line : metrics())
    if (line.at("event") == "epoch") validated[line.at("epoch").get<int>()] = line.contains("top1");
  EXPECT_EQ(validated, (std::map<int, bool>{{1, false}, {2, true}, {3, true}}));
}

TEST_F(DeviceTraining, AveragesTheFirstStepAndEverySoManyBehindIt) {
  const auto loss = [&](std::size_t steps, const nlohmann::json& ema, On where) {
    return train(1, where, {{"ema", ema}, {"train", {{"max_steps", steps}}}})
        .summary.validation.loss;
  };
  // An average that keeps nothing is what its last step left.
  const nlohmann::json every_third = {{"decay", 1e-30}, {"every", 3}};
  const nlohmann::json none = {{"decay", 0}, {"every", 1}};
  for (const On where : {On::kCpu, On::kDevice}) {
    const double first = loss(1, none, where);
    EXPECT_GT(std::abs(loss(2, none, where) - first), 1e-4);
    for (const std::size_t steps : {2U, 3U})
      EXPECT_NEAR(loss(steps, every_third, where), first, 1e-6) << steps;
    EXPECT_NEAR(loss(4, every_third, where), loss(4, none, where), 1e-6);
  }
}

TEST_F(DeviceTraining, RecordsStepsOfEverySizeOfImages) {
  const nlohmann::json how = {
      {"data",
       {{"synthetic", {{"train_size", 32}}}, {"resize_sides", {12}}, {"resize_until", {1}}}},
      {"model", {{"name", "resnet20"}}},
      {"optimizer",
       {{"name", "muon"}, {"scale", "normalise"}, {"momentum", 0.6}, {"iteration_type", "bf16"}}},
      {"ema", {{"decay", 0}}},
      {"train", {{"epochs", 2}, {"global_batch_size", 8}, {"drop_last", true}}}};
  const Outcome directly = train(1, On::kDevice, how);
  const Outcome repeated = train(1, On::kDeviceWithGraphs, how);
  EXPECT_EQ(directly.parameters, train(1, On::kCpu, how).parameters);
  EXPECT_EQ(directly.parameters, repeated.parameters);
  EXPECT_EQ(repeated.repeats, 8 - 2 * 2) << "all but two of each size";
}

TEST_F(DeviceTraining, GivesTheSameBitsIfStepsAreDoneAndRecordedBeforehand) {
  nlohmann::json how = {
      {"data",
       {{"synthetic", {{"train_size", 32}}}, {"resize_sides", {12}}, {"resize_until", {1}}}},
      {"model", {{"name", "resnet20"}}},  // running statistics
      {"train",
       {{"epochs", 2},
        {"global_batch_size", 8},
        {"drop_last", true},
        {"loss_scaling", "dynamic"},
        {"loss_scale_growth_steps", 3}}}};
  const std::pair<int, std::string> cases[] = {{1, "sgd"}, {1, "muon"}, {2, "adamw"}};
  for (const auto& [ranks, optimizer] : cases) {
    SCOPED_TRACE(optimizer + " on " + std::to_string(ranks));
    how["optimizer"] = {{"name", optimizer}, {"learning_rate", 0.003}};
    if (optimizer == "adamw") how["optimizer"]["momentum"] = nullptr;
    how["train"]["prepare_steps"] = false;
    const Outcome directly = train(ranks, On::kDevice, how);
    EXPECT_EQ(directly.summary.prepare_seconds, 0);
    how["train"]["prepare_steps"] = true;
    for (const On where : {On::kDevice, On::kDeviceWithGraphs}) {
      const Outcome prepared = train(ranks, where, how);
      EXPECT_EQ(directly.parameters, prepared.parameters);
      EXPECT_EQ(directly.summary.validation.loss, prepared.summary.validation.loss);
      EXPECT_EQ(directly.summary.last_train_loss, prepared.summary.last_train_loss);
      EXPECT_GT(prepared.summary.prepare_seconds, 0);
      EXPECT_EQ(prepared.summary.steps, 8U);
      EXPECT_EQ(prepared.summary.repeated_steps, where == On::kDevice ? 0U : 8U);
    }
  }
}

TEST_F(DeviceTraining, PreparesStepsWhereARunWithDropoutGoesOn) {
  nlohmann::json how = {{"optimizer", {{"name", "adamw"}, {"momentum", nullptr}}},
                        {"checkpoint", {{"every_steps", 4}}}};
  const Outcome at_once = train(2, On::kDevice, how);
  std::string first;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/checkpoints"))
    if (first.empty() || entry.path().string() < first) first = entry.path().string();
  how["checkpoint"]["resume"] = first;
  how["output"]["directory"] = directory_ + "/rest";
  how["train"]["prepare_steps"] = true;
  const Outcome rest = train(2, On::kDeviceWithGraphs, how);
  EXPECT_EQ(at_once.parameters, rest.parameters);
  EXPECT_GT(rest.summary.prepare_seconds, 0);
}

TEST_F(DeviceTraining, TellsImagesOfOneHeightOrOneNumberOfPixelsApart) {
  for (const int height : {12, 8}) {
    SCOPED_TRACE(height);
    const nlohmann::json how = {
        {"data",
         {{"synthetic", {{"train_size", 32}, {"height", height}, {"width", 18}}},
          {"resize_sides", {12}},
          {"resize_until", {1}}}},
        {"model", {{"name", "resnet20"}}},
        {"ema", {{"decay", 0}}},
        {"train", {{"epochs", 2}, {"global_batch_size", 8}, {"drop_last", true}}}};
    const Outcome repeated = train(1, On::kDeviceWithGraphs, how);
    EXPECT_EQ(train(1, On::kCpu, how).parameters, repeated.parameters);
    EXPECT_EQ(repeated.repeats, 8 - 2 * 2) << "all but two of each size";
  }
}

TEST_F(DeviceTraining, OfOneRankIsRecordedAndRepeated) {
  const Outcome repeated = train(1, On::kDeviceWithGraphs);
  EXPECT_EQ(train(1, On::kCpu).parameters, repeated.parameters);
  EXPECT_EQ(repeated.repeats, 6);
}

TEST_F(DeviceTraining, OfOneRankGoesOnUnrecordedIfARecordingFails) {
  // Two steps in an epoch: the third, whose recording fails, comes right behind a validation.
  const nlohmann::json how = {{"data", {{"synthetic", {{"train_size", 32}}}}},
                              {"train", {{"epochs", 3}, {"loss_scaling", "dynamic"}}},
                              {"ema", {{"decay", 0}}},
                              {"output", {{"progress", "lines"}}}};
  const Outcome directly = train(1, On::kDevice, how);
  // At its beginning, in its first micro-batch, where nothing is left to do, and at its end.
  constexpr int kAfterAll = 100'000;
  for (const int most : {1, 2, 20, kAfterAll}) {
    const Outcome outcome =
        train(1, On::kDeviceWithGraphs, how, DevicePathKind::kIpc, {.unrecordable = most});
    EXPECT_EQ(directly.parameters, outcome.parameters) << most;
    EXPECT_EQ(directly.summary.validation.loss, outcome.summary.validation.loss) << most;
    EXPECT_EQ(outcome.repeats, 0);
    const std::string line = "warning: steps are not recorded as CUDA graphs: a ";
    EXPECT_THAT(outcome.screen,
                HasSubstr(line + (most == kAfterAll ? "recording that cannot be ended"
                                                    : "kernel that cannot be recorded")));
    EXPECT_EQ(outcome.screen.find(line), outcome.screen.rfind(line)) << "one line";
  }
}

TEST_F(DeviceTraining, OfSeveralRanksEndsIfARecordingFails) {
  EXPECT_THROW(train(2, On::kDeviceWithGraphs, {}, DevicePathKind::kIpc, {.unrecordable = 1}),
               std::exception);
}

TEST_F(DeviceTraining, GoesThroughTheHostWhereMemoryIsNotShared) {
  EXPECT_EQ(train(2, On::kCpu).parameters,
            train(2, On::kDevice, nlohmann::json::object(), DevicePathKind::kStaging).parameters);
  // Of one rank too, which asks for it.
  EXPECT_EQ(train(1, On::kCpu).parameters,
            train(1, On::kDeviceWithGraphs, nlohmann::json::object(), DevicePathKind::kStaging)
                .parameters);
}

TEST_F(DeviceTraining, SaysWhyStepsAreNotRecorded) {
  const nlohmann::json lines = {{"output", {{"progress", "lines"}}}, {"train", {{"max_steps", 1}}}};
  EXPECT_THAT(train(2, On::kDeviceWithGraphs, lines, DevicePathKind::kStaging).screen,
              HasSubstr("steps are not recorded as CUDA graphs: collectives by staging wait "));
  EXPECT_THAT(train(1, On::kDevice, lines).screen, Not(HasSubstr("recorded")));
  nlohmann::json mixed = lines;
  mixed["data"] = {{"mix", "mixup"}};
  const auto outcome = train(1, On::kDeviceWithGraphs, mixed);
  EXPECT_THAT(outcome.screen, HasSubstr("recorded as CUDA graphs: the share of mixed images"));
  EXPECT_THAT(outcome.summary.why_not_repeated, HasSubstr("the share of mixed images"));
  const auto recorded = train(1, On::kDeviceWithGraphs, lines);
  EXPECT_THAT(recorded.screen, Not(HasSubstr("recorded")));
  EXPECT_EQ(recorded.summary.why_not_repeated, "");
}

TEST_F(DeviceTraining, NamesTheStepWhoseLossIsNotFiniteAndWhatIsLeft) {
  // In kernels of processors without AVX2 a NaN spreads otherwise.
  const std::string parameters = testing::has_avx2()
                                     ? "8 of 8 parameters \\(first conv1.weight\\)"
                                     : "[1-8] of 8 parameters \\(first [a-z0-9.]+\\)";
  for (const char* gradients : {"all_reduce", "shard"}) {
    SCOPED_TRACE(gradients);
    const nlohmann::json how = {{"optimizer", {{"learning_rate", 1e30}}},
                                {"parallel", {{"gradients", gradients}}}};
    for (const On where : {On::kDevice, On::kDeviceWithGraphs})
      EXPECT_THAT(
          divergence(2, where, how),
          MatchesRegex("epoch 1, step 2 of 5: the loss is (nan|inf); noticed after step 3, when " +
                       parameters +
                       " and [0-9] of 8 gradients \\(first in "
                       "backward fc2.bias\\) were not finite; lower optimizer.learning_rate, warm "
                       "up \\(schedule.warmup_epochs\\) or clip gradients "
                       "\\(optimizer.clip_norm\\)"));
  }
}

TEST_F(DeviceTraining, RepeatsAStepWithChecksIfItHasLeftTheParametersFinite) {
  // The loss overflows; parameters that are not moved do not.
  const nlohmann::json still = {{"optimizer", {{"learning_rate", 0}, {"clip_norm", 1}}},
                                {"train", {{"loss_scaling", "dynamic"}}},
                                {"data", {{"std", {1e-39, 1e-39, 1e-39}}}}};
  for (const bool on_device : {true, false}) {
    nlohmann::json how = still;
    how["data"]["on_device"] = on_device;
    EXPECT_THAT(divergence(2, On::kDeviceWithGraphs, how),
                MatchesRegex("epoch 1, step 1 of 5: the loss is nan; noticed after step 1; with "
                             "the parameters of then, it begins on rank 0, in the images: "
                             "[0-9]+ of 12288 numbers are not finite; set data.mean and data.std "
                             "to those of the images"));
    how.erase("optimizer");  // in parameters that have left them too
    how.erase("train");
    EXPECT_THAT(divergence(2, On::kDeviceWithGraphs, how),
                MatchesRegex("epoch 1, step 1 of 5: .* it begins on rank 0, in the images: .*"));
  }
  // The first step leaves parameters that are finite, but too large; later ones are skipped.
  const nlohmann::json too_far = {{"optimizer", {{"learning_rate", 1e30}}},
                                  {"train", {{"loss_scaling", "dynamic"}}}};
  EXPECT_THAT(divergence(2, On::kDeviceWithGraphs, too_far),
              MatchesRegex("epoch 1, step 2 of 5: the loss is (nan|inf); noticed after step 3; "
                           "with the parameters of then, it begins on rank 0, in .*"));
}

TEST_F(DeviceTraining, GoesOnFromACheckpointWithTheSameParameters) {
  for (const char* gradients : {"all_reduce", "shard"}) {
    SCOPED_TRACE(gradients);
    const std::string folder = directory_ + "/" + gradients;
    const nlohmann::json whole = {
        {"optimizer", {{"name", "adamw"}, {"learning_rate", 0.003}, {"momentum", nullptr}}},
        {"parallel", {{"gradients", gradients}}},
        {"checkpoint", {{"every_steps", 4}}},
        {"output", {{"directory", folder}}}};
    const Outcome at_once = train(2, On::kDeviceWithGraphs, whole);
    std::string first;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "/checkpoints"))
      if (first.empty() || entry.path().string() < first) first = entry.path().string();
    nlohmann::json rest = whole;
    rest["checkpoint"]["resume"] = first;
    rest["output"]["directory"] = folder + "-rest";
    const Outcome later = train(2, On::kDeviceWithGraphs, rest);
    EXPECT_EQ(at_once.parameters, later.parameters);
    EXPECT_LT(later.repeats, at_once.repeats) << "it began in the middle";
  }
}

}  // namespace
}  // namespace dlaunch::testing
