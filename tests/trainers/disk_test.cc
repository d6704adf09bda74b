// Runs of dtrain whose disk is slow, or full.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/deadline.h"
#include "runtime/base/exit_codes.h"
#include "tests/support/sanitized.h"
#include "tests/trainers/checkpoints.h"
#include "tests/trainers/images.h"

namespace dlaunch {
namespace {

using testing::CompletedProcess;
using ::testing::HasSubstr;
using testing::Subprocess;

/// A disk on which one file takes rank 0 longer than a collective may take.
class SlowDisk : public testing::Checkpoints {
 protected:
  void SetUp() override {
    if (testing::kSanitized) GTEST_SKIP() << "nothing can be loaded before a sanitizer";
    Checkpoints::SetUp();
  }

  /// Starts dtrain on two ranks, with an output folder of its own.
  void start(const std::string& slow_file, const std::vector<std::string>& arguments) {
    std::vector<std::string> command{
        testing::built_program("dlaunch"),
        "--nproc",
        "2",
        "--",
        testing::built_program("dtrain"),
        directory_ + "/run.json",
        "--set",
        "output.directory=" + directory_ + "/" + std::to_string(runs_.size())};
    command.insert(command.end(), arguments.begin(), arguments.end());
    runs_.push_back(std::make_unique<Subprocess>(
        testing::Command{.arguments = command,
                         .environment = {{"OMP_NUM_THREADS", "1"},
                                         {"DLAUNCH_TIMEOUT", "6"},
                                         {"LD_PRELOAD", SLOW_DISK},
                                         {"SLOW_DISK_FILE", slow_file}}}));
  }
  void expect_all_end_well() {
    const Deadline deadline = Deadline::after(std::chrono::seconds(100));
    for (auto& run : runs_) {
      const CompletedProcess process = run->finish(deadline);
      EXPECT_EQ(process.exit_code, kExitOk) << process.error;
      EXPECT_THAT(process.error, HasSubstr("the disk was slow"));
    }
  }

 private:
  std::vector<std::unique_ptr<Subprocess>> runs_;
};

TEST_F(SlowDisk, ThatIsWrittenToDoesNotEndTheRun) {
  for (const std::string file : {"step-00000001", "best.", "model."})
    start(file, {"--set", "checkpoint.every_steps=1", "--set", "checkpoint.keep_best=true", "--set",
                 "train.epochs=1", "--set", "train.batch_size_per_rank=16"});
  expect_all_end_well();
}

TEST_F(SlowDisk, ThatIsReadFromAtTheStartDoesNotEndTheRun) {
  ASSERT_EQ(
      dtrain(2, {"--set", "checkpoint.every_steps=1", "--set", "train.max_steps=1"}).exit_code,
      kExitOk);
  const std::string model = directory_ + "/out/model.safetensors";
  start("model.", {"--set", "model.weights=" + model, "--set", "train.max_steps=1"});
  start("model.", {"--validate", model});
  start("step-", {"--resume", newest(), "--set", "train.max_steps=2"});
  std::mt19937 random(7);
  for (const std::string name :
       {"train/a/1", "train/a/2", "train/b/1", "train/b/2", "test/a/1", "test/b/1"})
    write("images/" + name + ".png", testing::noise_png(96, random));
  // Images that the filters are computed from, before there is any training.
  start("images/train/a/1", {"--set", "data={\"set\": \"folder\", \"image_size\": [32, 32]}",
                             "--set", "data.directory=" + directory_ + "/images", "--set",
                             "model.name=speedrun100", "--set", "train.max_steps=1", "--set",
                             "train.batch_size_per_rank=2", "--set", "train.accumulation_steps=1"});
  expect_all_end_well();
}

/// As `ulimit -f` sets it.
class LimitOfFileSizes : public testing::Checkpoints {};

TEST_F(LimitOfFileSizes, IsToldOfAsAFullDiskIs) {
  const CompletedProcess process = testing::run_command(
      {.arguments = {"/bin/bash", "-c", "ulimit -f 16; exec \"$@\"", "bash",
                     testing::built_program("dtrain"), directory_ + "/run.json", "--set",
                     "train.max_steps=2", "--set", "checkpoint.every_steps=1", "--set",
                     "output.directory=" + directory_ + "/out"},
       .environment = environment_},
      Deadline::after(std::chrono::seconds(100)));
  EXPECT_EQ(process.exit_code, kExitFailure) << process.error;
  EXPECT_THAT(process.error, HasSubstr("/step-00000001.safetensors: File too large; training goes "
                                       "on, without a checkpoint so far"));
  EXPECT_TRUE(steps().empty());
}

/// A disk that holds so many bytes, for out/ alone.
class SmallDisk : public testing::Checkpoints {
 protected:
  void SetUp() override {
    Checkpoints::SetUp();
    if (on_disk(1 << 20, "true").exit_code != 0) GTEST_SKIP() << "no file system can be mounted";
    ASSERT_EQ(
        dtrain(0, {"--set", "checkpoint.every_steps=1", "--set", "train.max_steps=1"}).exit_code,
        kExitOk);
    checkpoint_size_ = std::filesystem::file_size(newest());
    std::filesystem::remove_all(directory_ + "/out");
  }

  /// Of the command; what is on the disk then is copied to where the disk was.
  CompletedProcess on_disk(std::uintmax_t bytes, const std::string& command) const {
    const std::string out = directory_ + "/out";
    const std::string script =
        "mkdir -p " + out + " && mount -t tmpfs -o size=" + std::to_string(bytes) + " none " + out +
        " && { " + command + "; code=$?; cp -r " + out + " " + directory_ + "/copy && umount " +
        out + " && rmdir " + out + " && mv " + directory_ + "/copy " + out + " && exit $code; }";
    return testing::run_command(
        {.arguments = {"/usr/bin/env", "unshare", "--user", "--map-root-user", "--mount", "/bin/sh",
                       "-c", script},
         .environment = environment_},
        Deadline::after(std::chrono::seconds(100)));
  }
  CompletedProcess train(std::uintmax_t bytes) const {
    return on_disk(bytes, testing::built_program("dtrain") + " " + directory_ +
                              "/run.json --set checkpoint.every_steps=1 --set train.max_steps=6 "
                              "--set output.directory=" +
                              directory_ + "/out");
  }
  bool has_network() const {
    return std::filesystem::exists(directory_ + "/out/model.safetensors");
  }

  std::uintmax_t checkpoint_size_ = 0;
};

TEST_F(SmallDisk, HoldsTheNewestCheckpointsAndTheNetwork) {
  const CompletedProcess process = train(checkpoint_size_ * 11 / 4);  // a network is half of one
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  const std::string said = "/step-00000001.safetensors was removed to make room";
  EXPECT_THAT(process.error, HasSubstr("/step-00000003.safetensors: No space left on device; "));
  EXPECT_THAT(process.error, HasSubstr(said));
  EXPECT_EQ(process.error.find("was removed"), process.error.rfind("was removed"));  // once
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{5, 6}));
  EXPECT_TRUE(has_network());
}

TEST_F(SmallDisk, HoldsTheNetworkInThePlaceOfAnOldCheckpoint) {
  const CompletedProcess process = train(checkpoint_size_ * 9 / 4);
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_EQ(steps(), std::vector<std::uint64_t>{6});
  EXPECT_TRUE(has_network());
}

TEST_F(SmallDisk, ThatHoldsNoCheckpointIsNotSaidToHoldOne) {
  const CompletedProcess process = train(checkpoint_size_ * 3 / 4);
  EXPECT_EQ(process.exit_code, kExitFailure);
  EXPECT_THAT(process.error, HasSubstr("; training goes on, without a checkpoint so far"));
  EXPECT_EQ(process.error.find("are good"), std::string::npos);
  EXPECT_TRUE(steps().empty());
  EXPECT_TRUE(has_network());
}

}  // namespace
}  // namespace dlaunch
