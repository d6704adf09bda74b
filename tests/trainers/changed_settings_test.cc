// Runs of dtrain that resume with other settings than those of their checkpoint.
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "tests/trainers/checkpoints.h"

namespace dlaunch {
namespace {

using testing::CompletedProcess;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Resuming : public testing::Checkpoints {};

TEST_F(Resuming, WithOtherSettingsSaysWhich) {
  const std::vector<std::string> how{"--set", "checkpoint.every_steps=2", "--set",
                                     "train.max_steps=2"};
  ASSERT_EQ(dtrain(2, how).exit_code, kExitOk);
  const std::string path = newest();
  const auto lines = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"--resume", path,
                                       "--set",    "train.max_steps=3",
                                       "--set",    "output.directory=" + directory_ + "/more"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CompletedProcess process = dtrain(2, arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    std::vector<std::string> found;
    std::istringstream text(process.out);
    for (std::string line; std::getline(text, line);)
      if (line.find(" in the checkpoint, ") != std::string::npos) found.push_back(line);
    return found;
  };
  EXPECT_THAT(lines({}), ::testing::IsEmpty());
  EXPECT_THAT(lines({"--set", "model.weights=not-read-here", "--set", "model.new_classifier=true"}),
              ::testing::IsEmpty());
  EXPECT_THAT(
      lines({"--set", "optimizer.learning_rate=0.5", "--set",
             R"(schedule={"name": "multi_step", "milestones": [1]})", "--set", "train.epochs=3"}),
      ::testing::ElementsAre("optimizer.learning_rate: 0.01 in the checkpoint, 0.5 now",
                             R"(schedule.name: "constant" in the checkpoint, "multi_step" now)",
                             "schedule.milestones: not set in the checkpoint, [1.0] now",
                             "schedule.gamma: not set in the checkpoint, 0.1 now",
                             "train.epochs: 2 in the checkpoint, 3 now"));
}

TEST_F(Resuming, WithOtherMicroBatchesIsRefusedWhereImagesAreMixedInThem) {
  const auto resume = [&](const std::string& mix) {
    const auto train = [&](const std::string& accumulation, const std::string& last) {
      return dtrain(2, {"--set", "checkpoint.every_steps=2", "--set", "data.mix=" + mix, "--set",
                        "train.batch_size_per_rank=0", "--set", "train.global_batch_size=24",
                        "--set", "train.accumulation_steps=" + accumulation, "--set",
                        "train.max_steps=" + last, "--resume", "auto"});
    };
    fs::remove_all(directory_ + "/out");
    EXPECT_EQ(train("1", "2").exit_code, kExitOk);
    return train("3", "4");
  };
  const CompletedProcess plain = resume("none");
  EXPECT_EQ(plain.exit_code, kExitOk) << plain.error;
  EXPECT_THAT(plain.out, HasSubstr("train.accumulation_steps: 1 in the checkpoint, 3 now: batch "
                                   "norm normalises micro-batches of another size from here on"));
  const CompletedProcess mixed = resume("mixup");
  EXPECT_EQ(mixed.exit_code, kExitBadData) << mixed.error;
  EXPECT_THAT(mixed.error, HasSubstr("train.accumulation_steps is 1 in this checkpoint, 3 in the"));
}

}  // namespace
}  // namespace dlaunch
