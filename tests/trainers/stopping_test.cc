// Runs of dtrain that a signal stops.
#include <signal.h>
#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
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
using ::testing::Not;
using testing::Subprocess;
using testing::Tensors;
namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

class Stopping : public testing::Checkpoints {
 protected:
  /// Two ranks of dtrain under dlaunch.
  void start(const Strings& arguments, const Strings& options = {}) {
    Strings command{testing::built_program("dlaunch"), "--nproc", "2"};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"--", "/bin/bash", "-c",
                                   "echo $$ > " + pid_file("$RANK") + " && exec \"$@\"", "bash"});
    start_command(command, arguments);
  }
  /// One without dlaunch.
  void start_alone(const Strings& arguments) { start_command({}, arguments); }

  Subprocess& job() { return *job_; }
  pid_t pid_of(int rank) const {
    pid_t pid = 0;
    std::ifstream(pid_file(std::to_string(rank))) >> pid;
    return pid;
  }
  void await_output(const std::string& text) {
    ASSERT_TRUE(job_->wait_for_output(text, deadline_)) << job_->error();
  }
  /// Until there is a line of that event in the metrics.
  void await_event(const std::string& event) const {
    while (!deadline_.expired()) {
      std::ifstream file(directory_ + "/out/metrics.jsonl");
      for (std::string line; std::getline(file, line);)
        if (line.starts_with("{\"event\":\"" + event + "\"")) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL() << "there is no " << event;
  }
  CompletedProcess finish() { return job_->finish(deadline_); }

 private:
  void start_command(Strings command, const Strings& arguments) {
    command.insert(command.end(), {testing::built_program("dtrain"), directory_ + "/run.json",
                                   "--set", "output.directory=" + directory_ + "/out"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    job_ = std::make_unique<Subprocess>(
        testing::Command{.arguments = command, .environment = environment_});
  }
  std::string pid_file(const std::string& rank) const { return directory_ + "/pid-" + rank; }

  const Deadline deadline_ = Deadline::after(std::chrono::seconds(100));
  std::unique_ptr<Subprocess> job_;
};

/// Who gets a SIGTERM.
enum class Target { kLauncher, kEverybody, kOneRank };

class StoppedBySigterm : public Stopping, public ::testing::WithParamInterface<Target> {
 protected:
  void stop() {
    const bool all = GetParam() == Target::kEverybody;  // as from a batch system: it comes twice
    if (GetParam() != Target::kOneRank) job().send_signal(SIGTERM);
    if (all) ::kill(pid_of(0), SIGTERM);
    if (GetParam() != Target::kLauncher) ::kill(pid_of(1), SIGTERM);
  }
};

TEST_P(StoppedBySigterm, ARunIsGoneOnWithAsIfItHadNot) {
  const Strings how{"--set", "train.epochs=12",   "--set", "checkpoint.every_epochs=4",
                    "--set", "ema.decay=0.8",     "--set", "data.crop_padding=2",
                    "--set", "output.log_every=1"};
  ASSERT_EQ(dtrain(2, how).exit_code, kExitOk);
  const Tensors expected = tensors_in(newest());
  const nlohmann::json summary = metrics().back();
  fs::remove_all(directory_ + "/out");

  start(how);
  await_output("epoch 2/12: loss ");
  stop();
  const CompletedProcess stopped = finish();
  EXPECT_EQ(stopped.exit_code, kExitSignalled + SIGTERM) << stopped.error;
  ASSERT_EQ(steps().size(), 1U) << stopped.error;
  const std::uint64_t step = steps().front();
  const Strings lines = complaints(stopped);
  ASSERT_EQ(lines.size(), 1U) << stopped.error;
  EXPECT_THAT(lines[0], HasSubstr("dtrain: stopped by SIGTERM after step " + std::to_string(step) +
                                  "; resume with --resume auto"));
  EXPECT_EQ(metrics().back()["event"], "stop");
  EXPECT_EQ(metrics().back()["signal"], "SIGTERM");
  EXPECT_EQ(metrics().back()["step"], step);
  EXPECT_FALSE(fs::exists(directory_ + "/out/model.safetensors"));

  Strings resumed = how;
  resumed.insert(resumed.end(), {"--resume", "auto"});
  const CompletedProcess rest = dtrain(2, resumed);
  EXPECT_EQ(rest.exit_code, kExitOk) << rest.error;
  EXPECT_EQ(tensors_in(newest()), expected);
  for (const char* key : {"steps", "images", "train_loss", "top1", "validation_loss", "best_top1"})
    EXPECT_EQ(metrics().back()[key], summary[key]) << key;
}

std::string name_of_target(const ::testing::TestParamInfo<Target>& info) {
  constexpr std::array kNames{"TheLauncher", "Everybody", "OneRank"};
  return kNames.at(static_cast<std::size_t>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Of, StoppedBySigterm,
                         ::testing::Values(Target::kLauncher, Target::kEverybody, Target::kOneRank),
                         name_of_target);

TEST_F(Stopping, BySigusr1IsNotTakenForAFailureThatARestartMends) {
  start({"--set", "train.epochs=1000", "--set", "checkpoint.every_epochs=1000"},
        {"--max-restarts", "3"});
  await_output("epoch 1/1000: loss ");
  job().send_signal(SIGUSR1);
  const CompletedProcess stopped = finish();
  EXPECT_EQ(stopped.exit_code, kExitSignalled + SIGUSR1);
  EXPECT_THAT(stopped.error,
              AllOf(HasSubstr("dtrain: stopped by SIGUSR1 after step "),
                    HasSubstr("dlaunch: no restart: the job has ended after SIGUSR1")));
  EXPECT_EQ(steps().size(), 1U);
}

/// The rank that writes it is not ended by the others' end.
TEST_F(Stopping, BySigusr1LeavesAWholeTrace) {
  const std::string trace = directory_ + "/trace.json";
  start({"--set", "train.epochs=1000", "--trace", trace});
  await_output("epoch 1/1000: loss ");
  job().send_signal(SIGUSR1);
  const CompletedProcess stopped = finish();
  EXPECT_EQ(stopped.exit_code, kExitSignalled + SIGUSR1);
  EXPECT_THAT(stopped.error, HasSubstr("dtrain: stopped by SIGUSR1 after step "));
  EXPECT_TRUE(nlohmann::json::accept(std::ifstream(trace)));
}

/// By a SIGTERM from dlaunch. What earlier runs left is replaced as a whole, or not at all.
TEST_F(Stopping, WhenAnotherRankIsKilledLeavesTheTraceOfARank) {
  constexpr const char* kEarlier = "an earlier run's";
  const std::string trace = directory_ + "/trace.json";
  const std::string own = directory_ + "/trace.rank1.json";
  for (const std::string& path : {trace, own}) std::ofstream(path) << kEarlier;
  start({"--set", "train.epochs=1000", "--trace", trace});
  await_output("epoch 1/1000: loss ");
  ::kill(pid_of(0), SIGKILL);
  EXPECT_EQ(finish().exit_code, kExitSignalled + SIGKILL);
  EXPECT_TRUE(nlohmann::json::accept(std::ifstream(own)));
  std::string left;
  std::getline(std::ifstream(trace), left);
  EXPECT_EQ(left, kEarlier);
}

TEST_F(Stopping, WithoutTheLastCheckpointIsAFailure) {
  for (const int signal : {SIGUSR1, SIGTERM}) {
    fs::remove_all(directory_ + "/out");
    start({"--set", "train.epochs=1000", "--set", "checkpoint.every_epochs=1000"});
    await_output("epoch 1/1000: loss ");
    fs::remove_all(directory_ + "/out/checkpoints");
    std::ofstream(directory_ + "/out/checkpoints") << "no folder";
    job().send_signal(signal);
    const CompletedProcess stopped = finish();
    EXPECT_EQ(stopped.exit_code, kExitFailure) << stopped.error;
    const Strings lines = complaints(stopped);
    ASSERT_EQ(lines.size(), 1U) << stopped.error;
    EXPECT_THAT(lines[0], HasSubstr(directory_ + "/out/checkpoints"));
  }
}

TEST_F(Stopping, WithoutCheckpointsLeavesTheNetwork) {
  start({"--set", "train.epochs=1000"});
  await_output("epoch 1/1000: loss ");
  job().send_signal(SIGTERM);
  const CompletedProcess stopped = finish();
  EXPECT_EQ(stopped.exit_code, kExitSignalled + SIGTERM);
  const std::string path = directory_ + "/out/model.safetensors";
  EXPECT_THAT(stopped.error, AllOf(HasSubstr("it cannot be resumed, as it writes no checkpoints"),
                                   HasSubstr("; the network as it was then is in " + path)));
  EXPECT_EQ(dtrain(0, {"--validate", path}).exit_code, kExitOk);
}

/// A step without collectives until its end, and long.
const Strings kLongSteps{"--set", "data.synthetic.train_size=8000",
                         "--set", "train.batch_size_per_rank=8",
                         "--set", "train.accumulation_steps=500",
                         "--set", "train.sync_batch_norm=false",
                         "--set", "train.epochs=1000",
                         "--set", "train.validate_every=0",
                         "--set", "output.log_every=1"};

TEST_F(Stopping, AtOnceWhenARankIsKilled) {
  start(kLongSteps, {"--grace", "60"});
  await_event("step");
  const auto begin = std::chrono::steady_clock::now();
  ::kill(pid_of(1), SIGKILL);
  const CompletedProcess process = finish();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(process.exit_code, 128 + SIGKILL) << process.error;
  EXPECT_THAT(process.error, Not(HasSubstr("stopped by")));
  const nlohmann::json step = events("step").back();
  EXPECT_LT(seconds.count(), 0.5 * 8000 / step["images_per_second"].get<double>());
}

TEST_F(Stopping, AtOnceByASecondSigterm) {
  start_alone(kLongSteps);
  await_event("step");
  job().send_signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));  // or it would count as the same
  job().send_signal(SIGTERM);
  const CompletedProcess process = finish();
  EXPECT_EQ(process.exit_code, 128 + SIGTERM);
  EXPECT_THAT(process.error, Not(HasSubstr("stopped by")));
}

}  // namespace
}  // namespace dlaunch
