// Runs of dtrain that go on: where from, with which figures; and what is kept besides checkpoints.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/deadline.h"
#include "runtime/base/exit_codes.h"
#include "tests/trainers/checkpoints.h"

namespace dlaunch {
namespace {

using ::testing::AllOf;
using testing::CompletedProcess;
using ::testing::HasSubstr;
using testing::Tensors;
namespace fs = std::filesystem;

class GoingOn : public testing::Checkpoints {};

/// What a run reports of its epochs, and of itself at the end, but for times.
class FiguresOfRuns : public GoingOn {
 protected:
  void train(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--set", "checkpoint.every_epochs=1",
                                       "--set", "train.epochs=3",
                                       "--set", "train.validate_every=2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CompletedProcess process = dtrain(2, arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  }
  nlohmann::json figures() const {
    nlohmann::json all;
    for (const nlohmann::json& line : events("epoch"))
      all.push_back({line["epoch"], line["step"], line["loss"], line.value("top1", -1.0)});
    const nlohmann::json summary = metrics().back();
    for (const char* key : {"epochs", "steps", "images", "top1", "top5", "validation_loss",
                            "validation_images", "best_top1", "best_epoch", "train_loss"})
      all.push_back(summary.at(key));
    return all;
  }
};

TEST_F(FiguresOfRuns, AreThoseOfARunThatDidNotStop) {
  train({});
  const nlohmann::json expected = figures();
  // In an epoch, at the end of one that is not validated, and of one that is; five steps each.
  for (const char* stop : {"train.max_steps=3", "train.max_steps=5", "train.max_steps=10"}) {
    SCOPED_TRACE(stop);
    fs::remove_all(directory_ + "/out");
    train({"--set", stop});
    const bool validated_anyway = std::string(stop).ends_with("10");
    EXPECT_EQ(events("stop").size(), validated_anyway ? 0U : 1U);
    EXPECT_EQ(metrics().back()["validation_images"], 37);
    train({"--resume", "auto"});
    EXPECT_EQ(figures(), expected);
    const nlohmann::json summary = metrics().back();
    EXPECT_GE(summary["total_seconds"], summary["train_seconds"]);
    EXPECT_GE(summary["train_seconds"], summary["communication_seconds"]);
    EXPECT_GT(summary["first_step_seconds"], 0);
  }
}

TEST_F(FiguresOfRuns, AreWholeIfNothingIsLeftToTrain) {
  train({"--set", "train.max_steps=3"});
  const nlohmann::json expected = figures();
  train({"--set", "train.max_steps=3", "--resume", "auto"});  // as if killed before the summary
  EXPECT_EQ(figures(), expected);
  EXPECT_TRUE(metrics().back()["first_step_seconds"].is_null());
}

TEST_F(GoingOn, FromAValidationWhoseLossIsNoNumber) {
  const auto train = [&](const std::string& resume) {
    // The last of nine steps leaves parameters that are finite, but too large for a network.
    return dtrain(0,
                  {"--set", "checkpoint.every_epochs=1", "--set", "optimizer.momentum=0", "--set",
                   "train.batch_size_per_rank=15", "--set", "train.accumulation_steps=1", "--set",
                   R"(schedule={"name": "piecewise_linear", "point_epochs": [0, 0.8, 0.84],
                                   "point_factors": [1, 1, 1e18]})",
                   "--set", "train.max_steps=9", "--resume", resume});
  };
  const CompletedProcess begun = train("none");
  ASSERT_EQ(begun.exit_code, kExitDiverged) << begun.error;
  EXPECT_THAT(begun.out, HasSubstr("validation loss nan\n"));
  const CompletedProcess resumed = train("auto");  // with nothing left to do
  EXPECT_EQ(resumed.exit_code, kExitDiverged) << resumed.error;
  EXPECT_THAT(resumed.error, HasSubstr("after step 9 of the run the loss of the last validation "
                                       "is nan: "));
}

TEST_F(GoingOn, FromACheckpointThatDoesNotSayWhatARunReportsIsRefused) {
  ASSERT_EQ(
      dtrain(0, {"--set", "checkpoint.every_epochs=1", "--set", "train.max_steps=1"}).exit_code,
      kExitOk);
  const std::string path = newest();
  edit(path, [](auto& training) { training["report"]["progress"]["images"] = "many"; });
  const CompletedProcess process =
      dtrain(2, {"--resume", path, "--set", "train.batch_size_per_rank=4"});
  EXPECT_EQ(process.exit_code, kExitBadData) << process.error;
  const auto lines = complaints(process);
  ASSERT_EQ(lines.size(), 1U) << process.error;
  EXPECT_THAT(lines[0], HasSubstr("dtrain: " + path + ": "));
}

TEST_F(GoingOn, InEpochsWithOtherStepsIsRefused) {
  ASSERT_EQ(
      dtrain(0, {"--set", "checkpoint.every_steps=8", "--set", "train.max_steps=8"}).exit_code,
      kExitOk);
  // The ninth step of an epoch is a smaller one.
  const CompletedProcess process = dtrain(0, {"--set", "checkpoint.every_steps=8", "--set",
                                              "train.drop_last=true", "--resume", "auto"});
  EXPECT_EQ(process.exit_code, kExitBadData);
  EXPECT_THAT(
      process.error,
      HasSubstr("steps in an epoch (train.drop_last, or another number of images) is 9 in this "
                "checkpoint, 8 in the configuration"));
}

/// Jobs that dlaunch has restarted, in a folder where another run has left checkpoints.
class RestartedJobs : public GoingOn {
 protected:
  void SetUp() override {
    GoingOn::SetUp();
    train({"--set", "checkpoint.every_steps=4", "--set", "train.max_steps=4"});
    from_ = directory_ + "/from.safetensors";
    fs::rename(newest(), from_);
    train({"--set", "checkpoint.every_steps=2", "--set", "train.max_steps=2"});
    ASSERT_EQ(steps(), std::vector<std::uint64_t>{2});
    environment_.emplace_back("TORCHELASTIC_RESTART_COUNT", "1");
  }
  void train(const std::vector<std::string>& arguments) const {
    const CompletedProcess process = dtrain(0, arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  }
  std::string from_;  // after step 4
};

TEST_F(RestartedJobs, GoOnFromTheirOwnOrFromWhereTheyWereToldToBegin) {
  const std::vector<std::string> how{"--resume", from_, "--set", "checkpoint.every_steps=1"};
  const auto resumed_at = [&](const std::string& last) {
    std::vector<std::string> arguments = how;
    arguments.insert(arguments.end(), {"--set", "checkpoint.keep=1", "--set", last});
    train(arguments);
    return events("resume").back()["step"];
  };
  // The first attempt was killed before it wrote any.
  EXPECT_EQ(resumed_at("train.max_steps=6"), 4);
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{2, 6}));  // 2 is another run's
  fs::remove(from_);                                       // and need it no more
  EXPECT_EQ(resumed_at("train.max_steps=7"), 6);
  EXPECT_EQ(resumed_at("train.max_steps=8"), 7);
}

/// Nodes of an elastic job that come and go cost no restart.
TEST_F(RestartedJobs, GoOnAlsoIfNoRestartIsCounted) {
  environment_.back() = {"DLAUNCH_RESTARTED", "1"};
  train({"--set", "checkpoint.every_steps=2", "--set", "train.max_steps=3"});
  EXPECT_EQ(events("resume").back()["step"], 2);
}

TEST_F(RestartedJobs, ThatMayNotGoOnAreToldWhatKeepsThemFromIt) {
  const CompletedProcess process =
      dtrain(0, {"--resume", "none", "--set", "checkpoint.every_steps=1"});
  EXPECT_EQ(process.exit_code, kExitUsage);
  EXPECT_THAT(process.error, HasSubstr("--resume none keeps it from resuming"));
}

TEST_F(RestartedJobs, BeginAnewIfTheyWriteNoCheckpoints) {
  const std::string warning =
      "warning: dlaunch has restarted the job, which writes no checkpoints: ";
  const auto said = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--set", "train.max_steps=5"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return dtrain(0, arguments).out;
  };
  EXPECT_THAT(said({}), HasSubstr(warning + "training begins again with step 1; "));
  EXPECT_THAT(said({"--resume", from_}),
              HasSubstr(warning + "training begins again from " + from_));
  train({"--set", "train.max_steps=3"});
  EXPECT_TRUE(events("resume").empty());
  train({"--set", "train.max_steps=3", "--resume", "auto"});
  EXPECT_EQ(events("resume").size(), 1U);
}

TEST_F(GoingOn, FromParametersThatAreNotFiniteIsNotPossible) {
  for (const char* gradients : {"all_reduce", "shard"}) {
    SCOPED_TRACE(gradients);
    // The gradients are finite; what the rate makes of them is not.
    const CompletedProcess process = dtrain(
        2, {"--set", "checkpoint.every_steps=1", "--set", "optimizer.learning_rate=3e38", "--set",
            "optimizer.weight_decay=1e6", "--set", "parallel.gradients=" + std::string(gradients)});
    EXPECT_EQ(process.exit_code, kExitDiverged) << process.error;
    const auto lines = complaints(process);
    ASSERT_EQ(lines.size(), 1U) << process.error;
    EXPECT_THAT(lines[0], HasSubstr("is not finite; no checkpoint was written"));
    EXPECT_TRUE(steps().empty());
  }
}

TEST_F(GoingOn, TheBestNetworkIsKeptAndCanBeValidatedAlone) {
  ASSERT_EQ(dtrain(2, {"--set", "checkpoint.every_epochs=1", "--set", "checkpoint.keep_best=true",
                       "--set", "ema.decay=0.8", "--set", "train.epochs=4"})
                .exit_code,
            kExitOk);
  const nlohmann::json summary = metrics().back();
  nlohmann::json best;  // of equal ones the last
  for (const nlohmann::json& epoch : events("epoch"))
    if (best.is_null() || epoch["top1"] >= best["top1"]) best = epoch;
  EXPECT_EQ(best["top1"], summary["best_top1"]);

  std::size_t count = 0;
  const auto expect = [&](int ranks, const std::string& path, const nlohmann::json& expected) {
    SCOPED_TRACE(path);
    const CompletedProcess process = dtrain(ranks, {"--validate", path});
    ASSERT_EQ(process.exit_code, kExitOk) << process.error;
    EXPECT_THAT(process.out, HasSubstr(path + ": top-1 "));
    const std::vector<nlohmann::json> lines = metrics("validation.jsonl");
    ASSERT_EQ(lines.size(), ++count);
    EXPECT_EQ(lines.back()["weights"], path);
    EXPECT_EQ(lines.back()["ranks"], std::max(ranks, 1));
    EXPECT_EQ(lines.back()["validation_images"], 37);
    EXPECT_EQ(lines.back()["top1"], expected["top1"]);
    EXPECT_NEAR(lines.back()["validation_loss"], expected["validation_loss"], 1e-5);
  };
  expect(3, directory_ + "/out/best.safetensors", best);
  expect(0, directory_ + "/out/model.safetensors", summary);
  expect(2, newest(), summary);  // its moving average
  EXPECT_EQ(metrics().back(), summary);
}

TEST_F(GoingOn, TheNetworkIsLeftByEveryRunAndSaysWhatItIs) {
  const CompletedProcess process = dtrain(2, {"--set", "data.mean=[0.25, 0.5, 0.75]"});
  ASSERT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_THAT(process.out, HasSubstr(directory_ + "/out: metrics.jsonl, tensorboard, model."));
  const nlohmann::json summary = metrics().back();
  const std::string path = directory_ + "/out/model.safetensors";
  ASSERT_EQ(dtrain(0, {"--validate", path, "--set", "data.mean=[0.25, 0.5, 0.75]"}).exit_code,
            kExitOk);
  const nlohmann::json validation = metrics("validation.jsonl").back();
  EXPECT_EQ(validation["top1"], summary["top1"]);
  EXPECT_NEAR(validation["validation_loss"], summary["validation_loss"], 1e-5);
  const auto about =
      nlohmann::json::parse(nn::SafetensorsFile(path).metadata().at("dlaunch.network"));
  EXPECT_EQ(about["model"], "small_cnn");
  EXPECT_EQ(about["image"], nlohmann::json({32, 32, 3}));
  EXPECT_EQ(about["mean"], nlohmann::json({0.25, 0.5, 0.75}));
  EXPECT_EQ(about["std"], nlohmann::json({0.25, 0.25, 0.25}));
  EXPECT_EQ(about["classes"], nlohmann::json({"pattern 0", "pattern 1", "pattern 2", "pattern 3"}));

  std::filesystem::remove_all(directory_ + "/out");
  ASSERT_EQ(dtrain(2, {"--set", "checkpoint.final=false"}).exit_code, kExitOk);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(GoingOn, TheBestNetworkIsThatOfARunThatDidNotStop) {
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--set", "checkpoint.every_epochs=1",
                                       "--set", "checkpoint.keep_best=true",
                                       "--set", "train.epochs=3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CompletedProcess process = dtrain(2, arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  };
  // Of a network that gets worse: the first epoch's is the best, and the rest of a run is not.
  const std::vector<std::string> worse{
      "--set", R"(schedule={"name": "multi_step", "milestones": [1], "gamma": 0})", "--set",
      "ema.decay=0.5"};
  const std::string best = directory_ + "/out/best.safetensors";
  train(worse);
  const Tensors expected = tensors_in(best);
  const nlohmann::json summary = metrics().back();
  fs::remove_all(directory_ + "/out");
  std::vector<std::string> stopped = worse;
  stopped.insert(stopped.end(), {"--set", "train.max_steps=8"});
  train(stopped);
  EXPECT_EQ(metrics().back()["best_epoch"], 1);
  std::vector<std::string> resumed = worse;
  resumed.insert(resumed.end(), {"--resume", "auto"});
  train(resumed);
  EXPECT_EQ(metrics().back()["best_top1"], summary["best_top1"]);
  EXPECT_EQ(metrics().back()["best_epoch"], summary["best_epoch"]);
  EXPECT_EQ(tensors_in(best), expected);
}

TEST_F(GoingOn, ABestNetworkThatIsGoneIsReplacedByTheNext) {
  const std::vector<std::string> how{
      "--set", "checkpoint.every_epochs=1",
      "--set", "checkpoint.keep_best=true",
      "--set", R"(schedule={"name": "multi_step", "milestones": [1], "gamma": 0})"};
  const auto train = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = how;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return dtrain(2, arguments);
  };
  const std::string best = directory_ + "/out/best.safetensors";
  const CompletedProcess first = train({"--set", "train.max_steps=5"});
  EXPECT_EQ(first.exit_code, kExitOk) << first.error;
  EXPECT_TRUE(fs::remove(best));
  const CompletedProcess with = train({"--resume", "auto"});
  EXPECT_EQ(with.exit_code, kExitOk) << with.error;
  EXPECT_THAT(with.out,
              HasSubstr(best + " is not there: the best network is looked for from here"));
  EXPECT_TRUE(fs::is_regular_file(best));
  EXPECT_EQ(metrics().back()["best_epoch"], 2);
}

TEST_F(GoingOn, TheBestNetworkOfAnotherRunIsNotTakenForItsOwn) {
  const auto train = [&](const std::string& folder, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--set", "checkpoint.keep_best=true", "--set",
                                       "output.directory=" + directory_ + "/" + folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CompletedProcess process = dtrain(2, arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    return process.out;
  };
  train("out", {"--set", "checkpoint.every_epochs=1", "--set", "train.epochs=1"});
  const std::string from = newest();
  const std::string note =
      directory_ + "/rb/best.safetensors is not the network of epoch 1: the best network is looked";
  for (const char* begun_from : {"none", from.c_str()}) {
    SCOPED_TRACE(begun_from);
    train("rb", {"--resume", begun_from, "--set", "optimizer.learning_rate=0.02"});
    // One epoch, after which the network is the best so far, but for what another run has left.
    const std::string out = train("rb", {"--resume", from, "--set", "optimizer.learning_rate=0.5"});
    EXPECT_THAT(out, AllOf(HasSubstr(note), HasSubstr("in epoch 2")));
    std::vector<nlohmann::json> lines = metrics("../rb/metrics.jsonl");
    EXPECT_EQ(lines.back()["best_top1"], lines.back()["top1"]);
    const std::string best = directory_ + "/rb/best.safetensors";
    ASSERT_EQ(dtrain(2, {"--validate", best}).exit_code, kExitOk);
    EXPECT_EQ(metrics("validation.jsonl").back()["top1"], lines.back()["top1"]);
    EXPECT_NEAR(metrics("validation.jsonl").back()["validation_loss"],
                lines.back()["validation_loss"], 1e-5);
  }
}

TEST_F(GoingOn, TheBestNetworkMayBeLaterThanTheCheckpoint) {
  const std::vector<std::string> how{"--set",    "checkpoint.every_epochs=1",
                                     "--set",    "checkpoint.keep_best=true",
                                     "--set",    "train.epochs=3",
                                     "--resume", "auto"};
  ASSERT_EQ(dtrain(2, how).exit_code, kExitOk);
  const std::string best = directory_ + "/out/best.safetensors";
  const Tensors expected = tensors_in(best);
  const nlohmann::json summary = metrics().back();
  // As if it had been killed in its second epoch, and then again: what it wrote is its own.
  for (const std::uint64_t step : {15U, 10U})
    fs::remove(nn::CheckpointFolder(folder()).path_of(step));
  const CompletedProcess process = dtrain(2, how);
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_EQ(process.out.find("looked for"), std::string::npos) << process.out;
  EXPECT_EQ(metrics().back()["best_top1"], summary["best_top1"]);
  EXPECT_EQ(metrics().back()["best_epoch"], summary["best_epoch"]);
  EXPECT_EQ(tensors_in(best), expected);
}

TEST_F(GoingOn, ANetworkThatIsNotFiniteEndsTheRunBeforeItIsValidated) {
  const CompletedProcess process =
      dtrain(2, {"--set", "checkpoint.keep_best=true", "--set", "optimizer.learning_rate=1e300",
                 "--set", "train.max_steps=1"});
  EXPECT_EQ(process.exit_code, kExitDiverged) << process.error;
  ASSERT_EQ(complaints(process).size(), 1U) << process.error;
  EXPECT_FALSE(fs::exists(directory_ + "/out/best.safetensors"));
}

TEST_F(GoingOn, ALastValidationThatIsNotFiniteIsAFailure) {
  const CompletedProcess process =
      dtrain(2, {"--set", "checkpoint.keep_best=true", "--set", "optimizer.learning_rate=1e20",
                 "--set", "train.max_steps=1"});
  EXPECT_EQ(process.exit_code, kExitDiverged) << process.error;
  const auto lines = complaints(process);
  ASSERT_EQ(lines.size(), 1U) << process.error;
  EXPECT_THAT(lines[0], HasSubstr("after step 1 of the run the loss of the last validation is "));
  for (const char* file : {"best", "model"})
    EXPECT_FALSE(fs::exists(directory_ + "/out/" + file + ".safetensors")) << file;
}

/// One step with a rate far too high, after which losses are those of a network with random
/// weights.
TEST_F(GoingOn, RunningStatisticsThatAreNotFiniteEndTheRun) {
  const std::vector<std::string> how{
      "--set",
      "model.name=resnet20",
      "--set",
      "optimizer.learning_rate=1e20",
      "--set",
      R"(schedule={"name": "piecewise_linear", "point_epochs": [0, 0.01], "point_factors": [1, 0]})",
      "--set",
      "optimizer.bias_learning_rate_factor=0",
      "--set",
      "optimizer.norm_learning_rate_factor=0",
      "--set",
      "train.max_steps=3",
      "--set",
      "train.sync_batch_norm=false"};
  const auto refusal = [&](const std::string& more) {
    std::vector<std::string> arguments = how;
    arguments.insert(arguments.end(), {"--set", more});
    const CompletedProcess process = dtrain(2, arguments);
    EXPECT_EQ(process.exit_code, kExitDiverged) << process.error;
    const auto lines = complaints(process);
    EXPECT_EQ(lines.size(), 1U) << process.error;
    return lines.empty() ? "" : lines[0];
  };
  EXPECT_THAT(
      refusal("checkpoint.every_steps=2"),
      HasSubstr("after step 2 of the run bn1.running_var is not finite; no checkpoint was"));
  EXPECT_TRUE(steps().empty());
  EXPECT_THAT(refusal("checkpoint.keep_best=true"),
              HasSubstr("after step 3 of the run bn1.running_var is not finite; nothing was"));
  EXPECT_FALSE(fs::exists(directory_ + "/out/best.safetensors"));
}

/// A network in a file, in which a number is to be another one.
class ChangedNetworks : public GoingOn {
 protected:
  void SetUp() override {
    GoingOn::SetUp();
    const CompletedProcess process =
        dtrain(0, {"--set", "checkpoint.keep_best=true", "--set", "train.max_steps=1"});
    ASSERT_EQ(process.exit_code, kExitOk) << process.error;
  }
  /// The first of a tensor.
  void change(const std::string& name, float value) const {
    const nn::SafetensorsFile file(path_);
    Tensors all = tensors_in(path_);
    std::memcpy(all.at(name).data(), &value, sizeof value);
    std::vector<nn::TensorBytes> tensors;
    for (const auto& [each, bytes] : all)
      tensors.push_back({each, file.entry(each).dtype, file.entry(each).shape, bytes});
    nn::write_safetensors(path_, tensors);
  }
  std::string refusal(const std::vector<std::string>& arguments, int code) const {
    const CompletedProcess process = dtrain(2, arguments);
    EXPECT_EQ(process.exit_code, code) << process.error;
    const auto lines = complaints(process);
    EXPECT_EQ(lines.size(), 1U) << process.error;
    return lines.empty() ? "" : lines[0];
  }

  const std::string path_ = directory_ + "/out/best.safetensors";
};

TEST_F(ChangedNetworks, WhoseResultsAreNotFiniteDoNotPassForValidated) {
  change("bn1.running_var", -1);
  EXPECT_THAT(refusal({"--validate", path_}, kExitDiverged),
              HasSubstr(path_ + ": the loss is nan: what this network makes of the images is not"));
  EXPECT_TRUE(metrics("validation.jsonl").back()["validation_loss"].is_null());
}

TEST_F(ChangedNetworks, ThatAreNotFiniteAreRefused) {
  change("conv2.bias", std::numeric_limits<float>::quiet_NaN());
  const std::string line = path_ + ": conv2.bias: 1 of 32 numbers are not finite";
  EXPECT_THAT(refusal({"--validate", path_}, kExitBadData), HasSubstr(line));
  EXPECT_THAT(refusal({"--set", "model.weights=" + path_}, kExitBadData), HasSubstr(line));
}

TEST_F(GoingOn, ARunWithNothingLeftToTrainSaysSo) {
  const std::vector<std::string> how{"--set", "checkpoint.every_epochs=1"};
  ASSERT_EQ(dtrain(0, how).exit_code, kExitOk);
  const CompletedProcess process = dtrain(
      0, {"--set", "checkpoint.every_epochs=1", "--set", "train.epochs=1", "--resume", "auto"});
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_THAT(process.out,
              HasSubstr("nothing is left to train: 2 epochs are done, train.epochs is 1"));
}

TEST_F(GoingOn, WithAnotherOptimizerIsRefused) {
  const std::string adam = R"(optimizer={"name": "adam"})";
  ASSERT_EQ(dtrain(0, {"--set", "checkpoint.every_epochs=1", "--set", adam}).exit_code, kExitOk);
  const CompletedProcess process =
      dtrain(0, {"--set", "checkpoint.every_epochs=1", "--set", R"(optimizer={"name": "adamw"})",
                 "--resume", "auto"});
  EXPECT_EQ(process.exit_code, kExitBadData);
  EXPECT_THAT(process.error, HasSubstr("optimizer.name is \"adam\" in this checkpoint, "
                                       "\"adamw\" in the configuration"));
}

TEST_F(GoingOn, AFullDiskCostsTheBestNetworkAndFiguresButNotTheRun) {
  // No file may grow beyond a kibibyte: a write then fails as on a full disk.
  const CompletedProcess process = testing::run_command(
      {.arguments = {"/bin/bash", "-c", "ulimit -f 1 && trap '' XFSZ && exec \"$@\"", "bash",
                     testing::built_program("dtrain"), directory_ + "/run.json", "--set",
                     "output.directory=" + directory_ + "/out", "--set",
                     "checkpoint.keep_best=true"}},
      Deadline::after(std::chrono::seconds(100)));
  EXPECT_EQ(process.exit_code, kExitFailure) << process.error;
  EXPECT_THAT(process.out, HasSubstr("epoch 2/2: loss "));
  EXPECT_THAT(process.error,
              AllOf(HasSubstr("cannot write metrics: File too large; set output.directory, or "
                              "output.metrics to \"\"; the run goes on"),
                    HasSubstr("/best.safetensors: File too large; training goes on")));
  EXPECT_FALSE(fs::exists(directory_ + "/out/best.safetensors"));
}

TEST_F(GoingOn, TwoRunsInOneFolderAreOneTooMany) {
  fs::create_directories(directory_ + "/out");
  const Descriptor other = nn::try_to_lock_folder(directory_ + "/out");
  ASSERT_TRUE(other.is_open());
  const std::string no_metrics = "output.metrics=";
  const std::string no_events = "output.tensorboard=";
  const std::string no_network = "checkpoint.final=false";
  const std::vector<std::vector<std::string>> writers{
      {"checkpoint.every_steps=1", no_metrics, no_events, no_network},
      {"checkpoint.keep_best=true", no_metrics, no_events, no_network},
      {no_metrics, no_events},
      {no_metrics, no_network},
      {no_events, no_network}};
  const auto train = [&](const std::vector<std::string>& assignments) {
    std::vector<std::string> arguments{"--set", "train.max_steps=1"};
    for (const std::string& assignment : assignments)
      arguments.insert(arguments.end(), {"--set", assignment});
    return dtrain(2, arguments);
  };
  for (const std::vector<std::string>& writer : writers) {
    const CompletedProcess process = train(writer);
    EXPECT_EQ(process.exit_code, kExitUsage) << process.error;
    const auto lines = complaints(process);
    ASSERT_EQ(lines.size(), 1U) << process.error;
    EXPECT_THAT(lines[0], HasSubstr("/out is in use: another run that has not ended writes to it"));
  }
  EXPECT_TRUE(fs::is_empty(directory_ + "/out"));
  // What writes nothing there can mix up nothing.
  EXPECT_EQ(train({"output.metrics=" + directory_ + "/elsewhere", no_events, no_network}).exit_code,
            kExitOk);
}

TEST_F(GoingOn, CheckpointsFromBeforeTheRunStay) {
  const auto train = [&](const std::string& until, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"--set", "checkpoint.every_steps=1",
                                       "--set", "checkpoint.keep=2",
                                       "--set", "train.max_steps=" + until};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CompletedProcess process = dtrain(0, arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  };
  train("2");
  const std::string from = directory_ + "/from.safetensors";
  fs::copy_file(newest(), from);
  train("5", {"--resume", from});
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{1, 2, 4, 5}));
  train("6", {"--resume", "auto"});  // still that run
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{1, 2, 5, 6}));
}

TEST_F(GoingOn, WhatKilledWritersLeftBesideTheCheckpointsIsRemoved) {
  const std::vector<std::string> leftovers{"out/best.safetensors.partial-17",
                                           "out/model.safetensors.partial-17"};
  for (const std::string& name : leftovers) write(name, "half a file");
  ASSERT_EQ(
      dtrain(2, {"--set", "checkpoint.keep_best=true", "--set", "train.max_steps=1"}).exit_code,
      kExitOk);
  for (const std::string& name : leftovers) EXPECT_FALSE(fs::exists(directory_ + "/" + name));
}

TEST_F(GoingOn, WhereTheBestNetworkCannotBeKeptIsRefusedAtTheStart) {
  const CompletedProcess process =
      dtrain(2, {"--set", "checkpoint.keep_best=true", "--set", "output.metrics=", "--set",
                 "output.tensorboard=", "--set", "output.directory=/proc/nowhere"});
  EXPECT_EQ(process.exit_code, kExitUsage) << process.error;
  EXPECT_THAT(process.error, HasSubstr("dtrain: output.directory: cannot make /proc/nowhere: "));
  EXPECT_THAT(process.error, HasSubstr("; set another one\n"));
  EXPECT_EQ(process.out, "");
}

TEST_F(GoingOn, WhatCannotBeValidatedIsRefused) {
  EXPECT_EQ(dtrain(0, {"--validate", "x", "--resume", "auto"}).exit_code, kExitUsage);
  const CompletedProcess unnamed = dtrain(0, {"--validate", ""});
  EXPECT_EQ(unnamed.exit_code, kExitUsage);
  EXPECT_THAT(unnamed.error, HasSubstr("dtrain: --validate: needs a file"));
  EXPECT_EQ(dtrain(0, {"--validate", "x", "--trace", "trace.json"}).exit_code, kExitUsage);
  const CompletedProcess missing = dtrain(2, {"--validate", directory_ + "/none"});
  EXPECT_EQ(missing.exit_code, kExitBadData);
  EXPECT_THAT(missing.error, HasSubstr("/none"));
  EXPECT_EQ(complaints(missing).size(), 1U) << missing.error;
  ASSERT_EQ(
      dtrain(0, {"--set", "checkpoint.every_epochs=1", "--set", "train.max_steps=1"}).exit_code,
      kExitOk);
  const CompletedProcess nowhere =
      dtrain(2, {"--validate", newest(), "--set", "output.directory=/proc/nowhere"});
  EXPECT_EQ(nowhere.exit_code, kExitUsage);
  EXPECT_THAT(nowhere.error, HasSubstr("/proc/nowhere/validation.jsonl: cannot write metrics: "));
  EXPECT_EQ(nowhere.out, "");  // nothing was validated in vain
  const CompletedProcess other =
      dtrain(2, {"--validate", newest(), "--set", "model.name=resnet20"});
  EXPECT_EQ(other.exit_code, kExitBadData);
  EXPECT_THAT(other.error, HasSubstr("model.name: it is \"small_cnn\" in this file, "));
}

}  // namespace
}  // namespace dlaunch
