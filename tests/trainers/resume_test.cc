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

}  // namespace
}  // namespace dlaunch
