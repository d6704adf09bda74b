// Runs of dtrain over TCP that were interrupted, compared with one that was not.
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "tests/trainers/checkpoints.h"

namespace dlaunch {
namespace {

using testing::CompletedProcess;
using testing::Tensors;

class ResumedRuns : public testing::Checkpoints {
 protected:
  void run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--set", "checkpoint.every_epochs=1"});
    const CompletedProcess process = dtrain(3, arguments);
    ASSERT_EQ(process.exit_code, kExitOk) << process.error;
  }
};

// What docs/training.md promises where sums depend on how they are split.
TEST_F(ResumedRuns, OverTcpHaveTheBitsOfThoseWithoutABreakIfSumsAreInRankOrder) {
  environment_.emplace_back("DLAUNCH_TRANSPORT", "tcp");
  environment_.emplace_back("DLAUNCH_REDUCE_ORDER", "ranks");
  ASSERT_NO_FATAL_FAILURE(run({}));
  const Tensors expected = tensors_in(newest());
  const double loss = metrics().back()["train_loss"];
  std::filesystem::remove_all(directory_ + "/out");
  ASSERT_NO_FATAL_FAILURE(run({"--set", "train.max_steps=4"}));
  ASSERT_NO_FATAL_FAILURE(run({"--resume", "auto"}));
  EXPECT_EQ(events("resume").size(), 1U);
  EXPECT_EQ(tensors_in(newest()), expected);
  EXPECT_EQ(metrics().back()["train_loss"], loss);
}

/// Runs of two ranks, whose sums have the same bits in any order.
class RunsInTwoProcesses : public testing::Checkpoints {
 protected:
  void run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(),
                     {"--set", "checkpoint.every_epochs=1", "--set", "output.log_every=2"});
    const CompletedProcess process = dtrain(2, arguments);
    ASSERT_EQ(process.exit_code, kExitOk) << process.error;
  }
  std::vector<nlohmann::json> losses() const {
    std::vector<nlohmann::json> lines;
    for (const nlohmann::json& line : events("step"))
      lines.push_back({line.at("step"), line.at("loss")});
    return lines;
  }
  static nlohmann::json training_in(const std::string& path) {
    return nlohmann::json::parse(nn::SafetensorsFile(path).metadata().at("dlaunch.training"));
  }
};

TEST_F(RunsInTwoProcesses, TellTheLossOfStepsOnBothSidesOfTheBreak) {
  ASSERT_NO_FATAL_FAILURE(run({}));
  const auto expected = losses();
  EXPECT_EQ(expected.size(), 5U);
  std::filesystem::remove_all(directory_ + "/out");
  ASSERT_NO_FATAL_FAILURE(run({"--set", "train.max_steps=3"}));
  ASSERT_NO_FATAL_FAILURE(run({"--resume", "auto"}));
  EXPECT_EQ(losses(), expected);
}

TEST_F(RunsInTwoProcesses, AddUpTheTimesOfBothAndAreTheSameRun) {
  ASSERT_NO_FATAL_FAILURE(run({"--set", "train.max_steps=3"}));
  const auto run_id = training_in(newest()).at("run_id");
  edit(newest(), [](auto& training) {
    nlohmann::json& progress = training["report"]["progress"];
    progress["train_seconds"] = 3000;
    progress["communication_seconds"] = 1000;
    progress["total_seconds"] = 5000;
    progress["line"][4] = 100;  // of the third step: communication that is waited for, and hidden
    progress["line"][5] = 200;
  });
  ASSERT_NO_FATAL_FAILURE(run({"--resume", "auto"}));
  const nlohmann::json summary = metrics().back();
  const auto expect = [](double actual, double least) {
    EXPECT_GE(actual, least);
    EXPECT_LT(actual, least + 500);
  };
  expect(summary.at("train_seconds"), 3000);
  expect(summary.at("communication_seconds"), 1000);
  expect(summary.at("total_seconds"), 5000);
  const nlohmann::json line = events("step").at(1);  // of steps 3 and 4
  EXPECT_EQ(line.at("step"), 4);
  expect(line.at("exposed_communication_seconds"), 50);
  expect(line.at("hidden_communication_seconds"), 100);
  EXPECT_EQ(training_in(newest()).at("run_id"), run_id);
}

}  // namespace
}  // namespace dlaunch
