// Checkpoints of dtrain: what is written, what is refused, and that a run which was killed ends as
// one that was not.
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "tests/support/sanitized.h"
#include "tests/trainers/checkpoints.h"

namespace dlaunch {
namespace {

using testing::built_program;
using testing::CompletedProcess;
using ::testing::HasSubstr;
using testing::Subprocess;
namespace fs = std::filesystem;

using testing::Checkpoints;
using testing::Tensors;

TEST_F(Checkpoints, AreWrittenWhenDueAndTheNewestAreKept) {
  const CompletedProcess process = dtrain(2, {"--set", "checkpoint.every_steps=2", "--set",
                                              "checkpoint.keep=2", "--set", "train.max_steps=7"});
  ASSERT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_EQ(steps(), (std::vector<std::uint64_t>{6, 7}));
  EXPECT_EQ(tensors_in(newest()).at("conv1.weight"),
            tensors_in(directory_ + "/out/model.safetensors").at("conv1.weight"));
  for (const auto& entry : fs::directory_iterator(folder()))
    EXPECT_TRUE(entry.path().filename().string().starts_with("step-")) << entry.path();
}

// As dropout would drop the same elements on all of them.
TEST_F(Checkpoints, HaveARandomSequenceForEachRank) {
  ASSERT_EQ(
      dtrain(2, {"--set", "checkpoint.every_steps=1", "--set", "train.max_steps=1"}).exit_code,
      kExitOk);
  const auto training =
      nlohmann::json::parse(nn::SafetensorsFile(newest()).metadata().at("dlaunch.training"));
  const auto words = training.at("random").get<std::vector<std::uint64_t>>();
  ASSERT_EQ(words.size(), 6U);  // seed, stream and position of each
  EXPECT_EQ(words[0], words[3]);
  EXPECT_NE(words[1], words[4]);
  EXPECT_GT(words[2], 0U) << "dropout has used some";
  EXPECT_GT(words[5], 0U);
}

class ARunInTwoParts : public Checkpoints, public ::testing::WithParamInterface<const char*> {};

TEST_P(ARunInTwoParts, EqualsOneWithoutABreak) {
  const std::vector<std::string> how{
      "--set", "checkpoint.every_epochs=1",
      "--set", "data.crop_padding=2",
      "--set", "data.flip=true",
      "--set", "data.synthetic.train_size=140",  // at least two images in each part
      "--set", GetParam()};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), how.begin(), how.end());
    const CompletedProcess process = dtrain(2, more);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  };
  with({});
  const Tensors expected = tensors_in(newest());
  const double loss = metrics().back()["train_loss"];
  fs::remove_all(directory_ + "/out");
  with({"--set", "train.max_steps=3"});
  EXPECT_EQ(steps(), std::vector<std::uint64_t>{3});  // in the middle of an epoch
  with({"--resume", "auto"});
  EXPECT_EQ(tensors_in(newest()), expected);
  EXPECT_EQ(metrics().back()["train_loss"], loss);
  EXPECT_EQ(metrics().back()["images"], 280);
}

INSTANTIATE_TEST_SUITE_P(BatchNorm, ARunInTwoParts,
                         ::testing::Values("train.sync_batch_norm=true",
                                           "train.sync_batch_norm=false"));

TEST_F(Checkpoints, ThatOtherProgramsHaveWrittenAreLookedAt) {
  ASSERT_EQ(
      dtrain(2, {"--set", "checkpoint.every_steps=2", "--set", "train.max_steps=2"}).exit_code,
      kExitOk);
  const auto refusal_after = [&](const std::function<void(nlohmann::json&)>& change) {
    const std::string path = directory_ + "/edited.safetensors";
    fs::copy_file(newest(), path, fs::copy_options::overwrite_existing);
    edit(path, change);
    const CompletedProcess process = dtrain(2, {"--resume", path});
    EXPECT_EQ(process.exit_code, kExitBadData) << process.error;
    return process.error;
  };
  EXPECT_THAT(refusal_after([](auto& training) { training["report"].erase("progress"); }),
              HasSubstr("progress"));
  EXPECT_THAT(refusal_after([](auto& training) { training["version"] = 2; }),
              HasSubstr("dlaunch.training: of version 2, this dtrain reads version 1"));
  for (const char* key : {"steps_done", "epoch", "step", "run", "run_id", "data", "config",
                          "report", "begun_from", "begun_at", "random"}) {
    const std::string line = std::string("edited.safetensors: dlaunch.training: \"") + key +
                             "\" is not what dtrain writes";
    EXPECT_THAT(refusal_after([&](auto& training) { training[key] = nullptr; }), HasSubstr(line));
    EXPECT_THAT(refusal_after([&](auto& training) { training.erase(key); }), HasSubstr(line));
  }
  EXPECT_THAT(refusal_after([](auto& training) {
                training["random"] = {1, 2, "3"};
              }),
              HasSubstr("\"random\" is not what dtrain writes"));
  for (const char* order : {"[0, 1]", "[0, 1, 2, 3, 4, 5, 6, 1000]", "[1, 1, 1]"})
    EXPECT_THAT(refusal_after([&](auto& training) {
                  training["report"]["gradient_order"] = nlohmann::json::parse(order);
                }),
                HasSubstr("gradient_order is no order of"));
}

TEST_F(Checkpoints, CompressionBeginsWhenTheRunIsAsOldAsItsConfigurationSays) {
  const auto weights_of = [&](const std::string& gradients, const std::string& folder) {
    for (const std::string last : {"2", "4"}) {
      const bool first = last == "2";
      const CompletedProcess process =
          dtrain(2, {"--set", "checkpoint.every_steps=2", "--resume", "auto", "--set",
                     "train.max_steps=" + last, "--set",
                     "parallel.gradients=" + (first ? "all_reduce" : gradients), "--set",
                     std::string("parallel.plain_steps=") + (first ? "0" : "4"), "--set",
                     "output.directory=" + directory_ + "/" + folder});
      EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    }
    return tensors_in(directory_ + "/" + folder + "/model.safetensors");
  };
  const auto go_on = [&](const std::string& gradients, const std::string& folder) {
    const CompletedProcess process = dtrain(
        2, {"--resume", "auto", "--set", "checkpoint.every_steps=2", "--set", "train.max_steps=6",
            "--set", "parallel.plain_steps=4", "--set", "parallel.gradients=" + gradients, "--set",
            "output.directory=" + directory_ + "/" + folder});
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    return tensors_in(directory_ + "/" + folder + "/model.safetensors");
  };
  EXPECT_EQ(weights_of("power_sgd", "compressed"), weights_of("all_reduce", "plain"));
  // And then it does begin.
  EXPECT_NE(go_on("power_sgd", "compressed"), go_on("all_reduce", "plain"));
}

/// With Adam, whose state is not all alike.
constexpr const char* kWithAdam = R"({
  "data": {"set": "synthetic",
           "synthetic": {"classes": 4, "train_size": 130, "test_size": 37}},
  "optimizer": {"name": "adam"},
  "train": {"epochs": 2, "global_batch_size": 24, "batch_size_per_rank": 0, "accumulation_steps": 2}
})";

/// Ways to sum gradients that keep state of their own.
class CheckpointsOf : public Checkpoints, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    Checkpoints::SetUp();
    write("adam.json", kWithAdam);
  }
  CompletedProcess train(int ranks, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"--set", "checkpoint.every_epochs=1",
                                       "--set", "parallel.bucket_mib=0.5",
                                       "--set", "parallel.plain_steps=4",
                                       "--set", "parallel.gradients=" + std::string(GetParam())};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return dtrain(ranks, arguments, "adam.json");
  }
};

TEST_P(CheckpointsOf, ARunInThreePartsEqualsOneWithoutABreak) {
  const CompletedProcess whole = train(2, {});
  ASSERT_EQ(whole.exit_code, kExitOk) << whole.error;
  const Tensors expected = tensors_in(newest());
  fs::remove_all(directory_ + "/out");
  // Breaks before compression begins, and after.
  for (const char* last : {"train.max_steps=3", "train.max_steps=7", "train.max_steps=0"}) {
    const CompletedProcess part = train(2, {"--resume", "auto", "--set", last});
    ASSERT_EQ(part.exit_code, kExitOk) << part.error;
  }
  EXPECT_EQ(tensors_in(newest()), expected);
}

TEST_P(CheckpointsOf, ServeAnotherNumberOfRanksToo) {
  ASSERT_EQ(train(2, {"--set", "train.max_steps=6"}).exit_code, kExitOk);
  for (const int ranks : {3, 1}) {
    const std::string more = ranks == 3 ? "train.max_steps=8" : "train.max_steps=0";
    const CompletedProcess process = train(ranks, {"--resume", "auto", "--set", more});
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  }
  EXPECT_EQ(metrics().back()["images"], 260);
}

TEST_F(Checkpoints, OfPowerSgdAreRefusedByARunThatCompressesOtherwise) {
  write("adam.json", kWithAdam);
  const auto train = [&](int ranks, const std::string& gradients, const std::string& more) {
    return dtrain(ranks,
                  {"--set", "checkpoint.every_epochs=1", "--set", "parallel.plain_steps=4", "--set",
                   "parallel.gradients=" + gradients, "--set", more, "--resume", "auto"},
                  "adam.json");
  };
  ASSERT_EQ(train(2, "power_sgd", "train.max_steps=6").exit_code, kExitOk);
  const std::string path = newest();
  for (const int ranks : {1, 2}) {
    const CompletedProcess plain = train(ranks, "all_reduce", "train.max_steps=0");
    EXPECT_EQ(plain.exit_code, kExitBadData) << plain.error;
    EXPECT_THAT(plain.error, HasSubstr(path + ": compression.errors: of a run that has still to"));
    EXPECT_EQ(complaints(plain).size(), 1U) << plain.error;
  }
  for (const int ranks : {1, 2}) {
    const CompletedProcess other = train(ranks, "power_sgd", "parallel.power_sgd_rank=3");
    EXPECT_EQ(other.exit_code, kExitBadData) << other.error;
    EXPECT_THAT(other.error, HasSubstr(path + ": power_sgd: errors of "));
    EXPECT_EQ(complaints(other).size(), 1U) << other.error;
  }

  // A single rank, which compresses nothing, hands on what two have to make good.
  const std::vector<float> two = floats_of(tensors_in(path).at("compression.errors"));
  ASSERT_EQ(train(1, "power_sgd", "train.max_steps=7").exit_code, kExitOk);
  const std::vector<float> sum = floats_of(tensors_in(newest()).at("compression.errors"));
  ASSERT_EQ(two.size(), 2 * sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], two[i] + two[sum.size() + i]);
  EXPECT_EQ(train(2, "power_sgd", "train.max_steps=0").exit_code, kExitOk);
}

INSTANTIATE_TEST_SUITE_P(Engine, CheckpointsOf, ::testing::Values("shard", "power_sgd"),
                         [](const auto& instance) { return std::string(instance.param); });

TEST_F(Checkpoints, OfShardedStateAreThoseOfWholeState) {
  write("adam.json", kWithAdam);
  const auto checkpoint = [&](const std::string& gradients) {
    fs::remove_all(directory_ + "/out");
    const CompletedProcess process =
        dtrain(3,
               {"--set", "checkpoint.every_epochs=1", "--set", "train.max_steps=3", "--set",
                "parallel.gradients=" + gradients},
               "adam.json");
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    return tensors_in(newest());
  };
  const Tensors whole = checkpoint("all_reduce");
  const Tensors sharded = checkpoint("shard");
  ASSERT_EQ(whole.size(), sharded.size());
  EXPECT_EQ(whole.at("optimizer.steps"), sharded.at("optimizer.steps"));
  for (const auto& [name, bytes] : whole) {
    ASSERT_TRUE(sharded.contains(name)) << name;
    const std::vector<float> expected = floats_of(bytes), actual = floats_of(sharded.at(name));
    ASSERT_EQ(expected.size(), actual.size()) << name;
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(expected[i], actual[i], 1e-5) << name << ", element " << i;
  }
}

TEST_F(Checkpoints, ServeAnotherNumberOfRanks) {
  const std::vector<std::string> how{
      "--set", "checkpoint.every_epochs=1",   "--set", "train.global_batch_size=24",
      "--set", "train.batch_size_per_rank=0", "--set", "train.max_steps=2"};
  ASSERT_EQ(dtrain(2, how).exit_code, kExitOk);
  std::vector<std::string> more = how;
  more.back() = "train.max_steps=0";
  more.insert(more.end(), {"--resume", newest()});
  const CompletedProcess process = dtrain(3, more);
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_EQ(metrics().back()["images"], 260);
}

TEST_F(Checkpoints, AreRefusedWhereTheyDoNotBelongAndTheErrorNamesWhat) {
  const std::vector<std::string> how{"--set", "checkpoint.every_epochs=1", "--set",
                                     "train.epochs=1"};
  ASSERT_EQ(dtrain(0, how).exit_code, kExitOk);
  const auto refusal = [&](std::vector<std::string> more, int code) {
    more.insert(more.begin(), how.begin(), how.end());
    const CompletedProcess process = dtrain(2, more);
    EXPECT_EQ(process.exit_code, code) << process.error;
    const auto lines = complaints(process);
    EXPECT_EQ(lines.size(), 1U) << process.error;
    return lines.empty() ? "" : lines[0];
  };
  const std::vector<std::string> resume{"--resume", "auto", "--set"};
  const auto resumed = [&](const std::string& assignment) {
    std::vector<std::string> arguments = resume;
    // As one rank had it: the steps are the same.
    arguments.insert(arguments.end(), {assignment, "--set", "train.batch_size_per_rank=4"});
    return refusal(arguments, kExitBadData);
  };
  EXPECT_THAT(refusal({}, kExitUsage), HasSubstr("is in the way"));
  EXPECT_THAT(
      refusal({"--resume", "auto"}, kExitBadData),
      HasSubstr("samples in a step is 16 in this checkpoint, 32 in the configuration; it was "
                "written by 1 rank, here are 2: set train.global_batch_size=16 and "
                "train.batch_size_per_rank=0, or begin anew"));
  EXPECT_THAT(resumed("data.synthetic.noise=3"), HasSubstr("training images have changed"));
  EXPECT_THAT(resumed("train.seed=2"), HasSubstr("train.seed is 1 in this checkpoint"));
  EXPECT_THAT(resumed("model.name=resnet20"), HasSubstr("model.name is \"small_cnn\""));
  EXPECT_THAT(resumed("optimizer.momentum=0"),
              HasSubstr("optimizer.velocity.conv1.bias: unexpected tensor"));
  EXPECT_THAT(resumed("optimizer.momentum=0"),
              HasSubstr("of this name): set optimizer.* as in the run of"));
  EXPECT_THAT(resumed("ema.decay=0.9"),
              HasSubstr("ema.bn1.running_mean: not in this file: set ema.decay as in the run of"));
  EXPECT_THAT(refusal({"--resume", directory_ + "/out/model.safetensors"}, kExitBadData),
              HasSubstr("no checkpoint of dtrain"));
  EXPECT_THAT(refusal({"--resume", directory_ + "/run.json"}, kExitBadData),
              HasSubstr("no safetensors file"));
  EXPECT_THAT(refusal({"--resume", folder()}, kExitBadData),
              HasSubstr(folder() + " is a folder; name a file, as " + newest() + ", or use auto"));
  EXPECT_THAT(refusal({"--resume", "nosuch"}, kExitBadData),
              HasSubstr("checkpoint.resume: there is no nosuch; name a checkpoint, or use auto"));
  damage(newest());
  EXPECT_THAT(resumed("train.epochs=2"), HasSubstr(": damaged: wrong checksum"));
  fs::resize_file(newest(), fs::file_size(newest()) - 1);
  EXPECT_THAT(resumed("train.epochs=2"), HasSubstr("truncated; remove it to begin anew"));
}

TEST_F(Checkpoints, DamagedOnesCanBeRemovedToGoOnFromTheOneBefore) {
  const std::vector<std::string> how{"--set", "checkpoint.every_steps=1", "--set",
                                     "train.max_steps=2"};
  ASSERT_EQ(dtrain(0, how).exit_code, kExitOk);
  const std::string damaged = newest();
  damage(damaged);
  std::vector<std::string> resume = how;
  resume.insert(resume.end(), {"--resume", "auto"});
  const CompletedProcess refused = dtrain(0, resume);
  EXPECT_EQ(refused.exit_code, kExitBadData);
  EXPECT_THAT(refused.error, HasSubstr(": damaged: wrong checksum; remove it to resume from the "
                                       "one before it, " +
                                       folder() + "/step-00000001.safetensors\n"));
  fs::remove(damaged);
  const CompletedProcess resumed = dtrain(0, resume);
  EXPECT_EQ(resumed.exit_code, kExitOk) << resumed.error;
  EXPECT_THAT(resumed.out, HasSubstr("resuming after step 1"));
}

TEST_F(Checkpoints, WithAnAverageAreRefusedByARunThatHasNone) {
  const std::vector<std::string> how{"--set", "checkpoint.every_epochs=1", "--set",
                                     "train.epochs=1"};
  std::vector<std::string> averaged = how;
  averaged.insert(averaged.end(), {"--set", "ema.decay=0.9"});
  ASSERT_EQ(dtrain(2, averaged).exit_code, kExitOk);
  const Tensors network = tensors_in(directory_ + "/out/model.safetensors");
  const Tensors whole = tensors_in(newest());
  for (const auto& [name, values] : network) EXPECT_EQ(whole.at("ema." + name), values) << name;
  std::vector<std::string> resumed = how;
  resumed.insert(resumed.end(), {"--resume", "auto"});
  const CompletedProcess process = dtrain(2, resumed);
  EXPECT_EQ(process.exit_code, kExitBadData) << process.error;
  EXPECT_THAT(
      process.error,
      HasSubstr("ema.bn1.running_mean: unexpected tensor (this run has none of this name): set "
                "ema.decay as in the run of this checkpoint, or begin anew"));
}

TEST_F(Checkpoints, OfAFullDiskFailWithALineAndLeaveTheOldOneGood) {
  const std::vector<std::string> how{"--set", "checkpoint.every_steps=1", "--set",
                                     "checkpoint.keep=1"};
  std::vector<std::string> two_steps = how;
  two_steps.insert(two_steps.end(), {"--set", "train.max_steps=2"});
  ASSERT_EQ(dtrain(0, two_steps).exit_code, kExitOk);
  const Tensors good = tensors_in(newest());

  // No file may grow beyond a megabyte: a write then fails as on a full disk.
  const CompletedProcess process = testing::run_command(
      {.arguments = {"/bin/bash", "-c", "ulimit -f 1000 && trap '' XFSZ && exec \"$@\"", "bash",
                     built_program("dtrain"), directory_ + "/run.json", "--resume", "auto", "--set",
                     "output.directory=" + directory_ + "/out", "--set", "checkpoint.every_steps=1",
                     "--set", "checkpoint.keep=1"}},
      Deadline::after(std::chrono::seconds(100)));
  EXPECT_EQ(process.exit_code, kExitFailure) << process.error;
  EXPECT_THAT(process.error, HasSubstr("training goes on, the checkpoints before it are good"));
  EXPECT_THAT(process.error, HasSubstr("dtrain: rank 0: cannot write " + folder() + "/step-"));
  EXPECT_EQ(steps(), std::vector<std::uint64_t>{2});
  EXPECT_EQ(tensors_in(newest()), good);
  EXPECT_TRUE(fs::exists(directory_ + "/out/model.safetensors")) << "which has room";
  std::vector<std::string> resume = how;
  resume.insert(resume.end(), {"--resume", "auto"});
  EXPECT_EQ(dtrain(0, resume).exit_code, kExitOk);
}

TEST_F(Checkpoints, AndNetworksOfAFullDiskAreAllNamedAndNotListedAsWritten) {
  const CompletedProcess process = testing::run_command(
      {.arguments = {"/bin/bash", "-c", "ulimit -f 100 && trap '' XFSZ && exec \"$@\"", "bash",
                     built_program("dtrain"), directory_ + "/run.json", "--set", "train.epochs=1",
                     "--set", "output.directory=" + directory_ + "/out", "--set",
                     "checkpoint.every_steps=1", "--set", "checkpoint.keep_best=true"}},
      Deadline::after(std::chrono::seconds(100)));
  EXPECT_EQ(process.exit_code, kExitFailure) << process.error;
  EXPECT_THAT(process.error,
              ::testing::ContainsRegex("rank 0: cannot write .*/step-00000009.*; cannot write "
                                       ".*/model.safetensors.*; cannot write .*/best.safetensors"));
  EXPECT_THAT(process.out,
              HasSubstr("  files          " + directory_ + "/out: metrics.jsonl, tensorboard"));
  EXPECT_EQ(process.out.find(".safetensors"), std::string::npos);
}

constexpr int kEpochs = testing::kSanitized ? 3 : 8;  // runs take many times as long then

/// A job of two ranks whose processes can be found: each writes its pid to a file.
class KilledJob {
 public:
  KilledJob(std::string directory, int kills)
      : directory_(std::move(directory)), job_(command(kills)) {}

  /// Kills `rank` of attempt `attempt` as soon as it is there and `delay` has passed. False if the
  /// job ended before there was such an attempt: the kill before this one came too late to matter.
  bool kill_rank(int rank, int attempt, std::chrono::milliseconds delay, Deadline deadline) {
    const std::string path = pid_file(std::to_string(rank), std::to_string(attempt));
    while (!fs::exists(path)) {
      if (ended() || deadline.expired()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    pid_t pid = 0;
    std::ifstream(path) >> pid;
    std::this_thread::sleep_for(delay);  // the moment of the kill is what is random
    ::kill(pid, SIGKILL);
    return true;
  }
  Subprocess& process() { return job_; }

 private:
  testing::Command command(int kills) const {
    const std::string pids = pid_file("$RANK", "$TORCHELASTIC_RESTART_COUNT");
    const std::string script =
        "echo $$ > " + pids + ".new && mv " + pids + ".new " + pids + " && exec \"$@\"";
    std::vector<std::string> words{built_program("dlaunch"), "--nproc", "2", "--restart-delay",
                                   "0"};
    words.insert(words.end(), {"--max-restarts", std::to_string(kills), "--", "/bin/bash", "-c"});
    words.insert(words.end(), {script, "bash", built_program("dtrain"), directory_ + "/run.json"});
    for (const std::string& setting :
         {"output.directory=" + directory_ + "/out", std::string("checkpoint.every_steps=1"),
          "train.epochs=" + std::to_string(kEpochs), std::string("ema.decay=0.8")})
      words.insert(words.end(), {"--set", setting});
    return {.arguments = words, .environment = {{"OMP_NUM_THREADS", "1"}}};
  }
  /// Whether dlaunch has ended; leaves it to be waited for.
  bool ended() const {
    siginfo_t about{};
    return ::waitid(P_PID, static_cast<id_t>(job_.pid()), &about, WEXITED | WNOHANG | WNOWAIT) !=
               0 ||
           about.si_pid != 0;
  }
  std::string pid_file(const std::string& rank, const std::string& attempt) const {
    return directory_ + "/pid-" + rank + "-" + attempt;
  }

  std::string directory_;
  Subprocess job_;
};

TEST_F(Checkpoints, AJobKilledAtAnyMomentEndsAsOneThatWasNot) {
  const auto begin = std::chrono::steady_clock::now();
  const CompletedProcess undisturbed =
      dtrain(2, {"--set", "train.epochs=" + std::to_string(kEpochs), "--set",
                 "checkpoint.every_steps=1", "--set", "ema.decay=0.8"});
  ASSERT_EQ(undisturbed.exit_code, kExitOk) << undisturbed.error;
  const auto duration = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  const Tensors expected = tensors_in(newest());
  const double training = metrics().back()["train_seconds"];
  fs::remove_all(directory_ + "/out");

  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr int kKills = testing::kSanitized ? 2 : 6;
  const Deadline deadline = Deadline::after(std::chrono::seconds(200));
  KilledJob job(directory_, kKills);
  // What fails before it ever worked is not restarted, so the first kill waits for a checkpoint.
  while (steps().empty() && !deadline.expired()) std::this_thread::yield();
  for (int attempt = 0; attempt < kKills; ++attempt) {
    // The first, which comes behind a checkpoint, is certain to find the ranks at work.
    const double most = attempt == 0 ? training / 4 * 1000 : duration.count() / 2.0;
    std::uniform_int_distribution<std::int64_t> moment(0, static_cast<std::int64_t>(most));
    const int rank = static_cast<int>(random() % 2);
    if (!job.kill_rank(rank, attempt, std::chrono::milliseconds(moment(random)), deadline)) break;
  }
  const CompletedProcess killed = job.process().finish(deadline);
  EXPECT_EQ(killed.exit_code, kExitOk) << killed.error;
  EXPECT_FALSE(events("resume").empty()) << "no kill had an effect";
  EXPECT_EQ(steps().back(), 5U * kEpochs);
  EXPECT_EQ(tensors_in(newest()), expected);
}

}  // namespace
}  // namespace dlaunch
