// dtrain as a program, alone and under dlaunch.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "tests/trainers/dtrain_test.h"
#include "tests/trainers/images.h"

namespace dlaunch {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::built_program;
using testing::CompletedProcess;
using ::testing::HasSubstr;
using ::testing::Not;

class Dtrain : public testing::DtrainTest {};

TEST_F(Dtrain, TrainsOnSeveralRanksAndRankZeroAloneReports) {
  for (const int ranks : {0, 2, 3}) {
    SCOPED_TRACE(ranks);
    const CompletedProcess process = dtrain(ranks, {"--set", "output.log_every=2"});
    ASSERT_EQ(process.exit_code, kExitOk) << process.error;
    EXPECT_THAT(process.out, AllOf(HasSubstr("epoch 2/2: loss "), HasSubstr("on 37 images"),
                                   HasSubstr("communication"), HasSubstr("peak memory")));
    EXPECT_EQ(process.out.find("epoch 2/2: loss "), process.out.rfind("epoch 2/2: loss "));
    const auto lines = metrics();
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines.front()["event"], "start");
    EXPECT_EQ(lines.front()["config"]["train"]["epochs"], 2);
    const auto& summary = lines.back();
    EXPECT_EQ(summary["event"], "summary");
    EXPECT_EQ(summary["images"], 260);  // every image once per epoch, on any number of ranks
    EXPECT_EQ(summary["validation_images"], 37);
    for (const char* count : {"images", "validation_images"})
      EXPECT_TRUE(summary[count].is_number_integer()) << count;
    EXPECT_EQ(summary["ranks"], std::max(ranks, 1));
  }
}

TEST_F(Dtrain, SetsAsideWhatAnEarlierRunLeft) {
  const std::string out = directory_ + "/out/";
  const auto contents = [&](const std::string& name) {
    std::ifstream file(out + name, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  };
  const auto run = [&](int ranks, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--set", "train.max_steps=1"});
    const CompletedProcess process = dtrain(ranks, arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    return process.out;
  };
  const char* const kSaid = "set aside from an earlier run: ";
  const std::vector<std::string> names{"metrics.jsonl", "best.safetensors", "model.safetensors"};
  EXPECT_THAT(run(2, {"--set", "checkpoint.keep_best=true"}), Not(HasSubstr(kSaid)));
  std::map<std::string, std::string> first;
  for (const std::string& name : names) first[name] = contents(name);
  run(2, {"--dry-run"});
  EXPECT_EQ(dtrain(2, {"--validate", out + "model.safetensors"}).exit_code, kExitOk);
  for (const std::string& name : names) EXPECT_EQ(contents(name), first[name]);

  const std::string said = run(2, {"--set", "train.seed=2"});
  EXPECT_THAT(said,
              HasSubstr(kSaid + out + "metrics.jsonl.previous, " + out +
                        "best.safetensors.previous, " + out + "model.safetensors.previous\n"));
  EXPECT_EQ(said.find(kSaid), said.rfind(kSaid));
  for (const std::string& name : names) EXPECT_EQ(contents(name + ".previous"), first[name]);
  EXPECT_FALSE(std::filesystem::exists(out + "best.safetensors"));
  EXPECT_EQ(metrics().front()["config"]["train"]["seed"], 2);

  // The next takes the place of those, and begins with a network that is found there once more.
  const std::string second = contents("model.safetensors");
  const std::string weights = "model.weights=" + out + "model.safetensors";
  run(0, {"--set", weights, "--set", "checkpoint.every_steps=1"});
  EXPECT_EQ(contents("model.safetensors.previous"), second);
  EXPECT_NE(contents("model.safetensors"), second);
  EXPECT_THAT(run(0, {"--resume", "auto"}), Not(HasSubstr(kSaid)));
  EXPECT_EQ(contents("model.safetensors.previous"), second);
}

TEST_F(Dtrain, RunsThatFailSayWhyInTheMetricsAndLeaveTheResultsOfTheLastGoodOne) {
  ASSERT_EQ(dtrain(0, {"--set", "train.epochs=1"}).exit_code, kExitOk);
  const auto good = metrics();
  for (const int ranks : {2, 0, 2}) {
    EXPECT_EQ(dtrain(ranks, {"--set", "optimizer.learning_rate=1e30"}).exit_code, kExitDiverged);
    EXPECT_EQ(metrics("metrics.jsonl.previous"), good);
    EXPECT_EQ(events("start").size(), 1U);
    const nlohmann::json last = metrics().back();
    EXPECT_EQ(last["event"], "failed");
    EXPECT_EQ(last["exit_code"], kExitDiverged);
    EXPECT_THAT(last["line"], HasSubstr("the loss is "));
  }
  EXPECT_EQ(dtrain(0, {"--set", "train.epochs=1"}).exit_code, kExitOk);
  EXPECT_EQ(metrics("metrics.jsonl.previous"), good) << "nothing has come of those between";
}

TEST_F(Dtrain, RefusesFoldersWhereItsFilesAreToBeBeforeItTrains) {
  const std::string out = directory_ + "/out/";
  const auto refusal = [&](const std::string& folder) {
    write("out/" + folder + "/keep", "a file of the user's");
    const CompletedProcess process = dtrain(2, {"--set", "checkpoint.keep_best=true"});
    EXPECT_EQ(process.exit_code, kExitUsage) << process.error;
    EXPECT_TRUE(std::filesystem::exists(out + folder + "/keep"));
    std::filesystem::remove_all(out + folder);
    const auto lines = complaints(process);
    return lines.size() == 1 ? lines[0] : process.error;
  };
  for (const std::string name : {"model.safetensors", "best.safetensors", "metrics.jsonl"})
    EXPECT_THAT(refusal(name), HasSubstr(out + name + " is a folder, but the run is to write "));
  write("out/metrics.jsonl", "an earlier run's");
  for (const std::string name : {"model.safetensors", "best.safetensors", "metrics.jsonl"}) {
    write("out/" + name, "an earlier run's");
    EXPECT_THAT(refusal(name + ".previous"),
                HasSubstr(out + name + ".previous is a folder, but an earlier run's file is to "));
    EXPECT_FALSE(std::filesystem::exists(out + "metrics.jsonl.previous")) << "nothing is renamed";
  }
}

TEST_F(Dtrain, RepeatsItselfExactly) {
  const auto losses = [&] {
    EXPECT_EQ(dtrain(2, {}).exit_code, kExitOk);
    std::vector<double> values;
    for (const auto& line : metrics())
      if (line["event"] == "epoch") values.push_back(line["loss"]);
    return values;
  };
  const auto first = losses();
  EXPECT_EQ(first.size(), 2U);
  EXPECT_EQ(losses(), first);
}

TEST_F(Dtrain, LearnsTheSameHoweverGradientsAreSummed) {
  const auto last_loss = [&](int ranks, const std::string& gradients) {
    const CompletedProcess process =
        dtrain(ranks, {"--set", "parallel.gradients=" + gradients, "--set",
                       "parallel.first_bucket_mib=0.1", "--set", "train.batch_size_per_rank=0",
                       "--set", "train.global_batch_size=32"});
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    return metrics().back()["train_loss"].get<double>();
  };
  // Not more than rounding apart: batch norm's statistics are those of all ranks.
  const double loss = last_loss(2, "all_reduce");
  EXPECT_NEAR(last_loss(2, "shard"), loss, 1e-5);
  EXPECT_NEAR(last_loss(3, "shard"), last_loss(3, "all_reduce"), 1e-5);
  EXPECT_NEAR(last_loss(2, "bf16"), loss, 0.02);
  EXPECT_NEAR(last_loss(2, "fp16"), loss, 0.02);
  EXPECT_NEAR(last_loss(2, "power_sgd"), loss, 0.3);
}

TEST_F(Dtrain, SaysThatAScheduleIsCutOff) {
  const CompletedProcess process = dtrain(2, {"--set", "schedule.warmup_epochs=3"});
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_THAT(process.out, HasSubstr("schedule.warmup_epochs 3 covers all of train.epochs 2: "));
}

TEST_F(Dtrain, StopsAllRanksAtALimit) {
  const CompletedProcess steps = dtrain(2, {"--set", "train.max_steps=3"});
  EXPECT_EQ(steps.exit_code, kExitOk) << steps.error;
  EXPECT_EQ(metrics().back()["steps"], 3);
  const CompletedProcess time =
      dtrain(2, {"--set", "train.max_seconds=0.01", "--set", "train.epochs=100000"});
  EXPECT_EQ(time.exit_code, kExitOk) << time.error;
  EXPECT_EQ(metrics().back()["event"], "summary");
}

TEST_F(Dtrain, DryRunPrintsTheResolvedConfigurationAndTheLayers) {
  const CompletedProcess process = dtrain(0, {"--dry-run", "--set", "train.seed=77"});
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_THAT(process.out, AllOf(HasSubstr("\"seed\": 77"), HasSubstr("\"weight_decay\": 0"),
                                 HasSubstr("conv1"), HasSubstr("[1, 28, 28, 32]")));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/out"));
  const CompletedProcess job = dtrain(2, {"--dry-run", "--set", "train.seed=77"});
  EXPECT_EQ(job.exit_code, kExitOk) << job.error;
  EXPECT_EQ(job.out, process.out) << "once, not once per rank";
}

TEST_F(Dtrain, RefusesBadInputWithOneLineAndItsExitCode) {
  struct Refusal {
    std::vector<std::string> arguments;
    int code;
    std::string line;
  };
  const std::vector<Refusal> refusals{
      {{"--set", "train.epoch=3"},
       kExitUsage,
       "train.epoch: unknown key; did you mean train.epochs?"},
      {{"--set", "train.epochs=ten"},
       kExitUsage,
       "dtrain: --set train.epochs=ten: train.epochs: found \"ten\"; allowed: an integer"},
      {{"--trace-steps", "five", "--trace", "trace.json"},
       kExitUsage,
       "dtrain: --trace-steps five: output.trace_steps: allowed: FIRST:LAST"},
      {{"--trace", directory_ + "/run.json"},
       kExitUsage,
       "output.trace: " + directory_ + "/run.json is the configuration too; name another one"},
      {{"--set", "data.cutout=64"}, kExitUsage, "data.cutout: a square of 64 covers images of 32 "},
      {{"--set", "train.global_batch_size=200000000", "--set", "train.batch_size_per_rank=0",
        "--set", "data.synthetic.train_size=10000000"},
       kExitUsage,
       "train.global_batch_size: a rank needs at least "},
      {{"--set", "data.synthetic.test_size=1000000000"},
       kExitUsage,
       "data: a rank needs at least 1430.5 GiB for its 500000000 test images, 2 of them on this "},
      {{"--resume", ""}, kExitUsage, "dtrain: --resume : checkpoint.resume: allowed: auto, none, "},
      {{"--set", "train.device=cuda"}, kExitUsage, "train.device: "},
      {{"--set", "train.compute_type=fp16"}, kExitUsage, "train.compute_type: \"fp16\" is for "},
      {{"--set", "train.global_batch_size=1", "--set", "train.batch_size_per_rank=0"},
       kExitUsage,
       "train.global_batch_size: 1 is less than 2 ranks"},
      {{"--set", "train.batch_size_per_rank=100000000", "--set",
        "data.synthetic.train_size=10000000"},
       kExitUsage,
       "train.batch_size_per_rank: a rank needs at least "},
      {{"--set", "data.set=cifar-100", "--set", "data.directory=/nowhere"},
       kExitBadData,
       "/nowhere/train.bin: No such file or directory; get it with dlaunch's `tools/fetch_data"},
      {{"--set", "data.set=folder", "--set", "data.directory=/nowhere"},
       kExitBadData,
       "/nowhere/train: no such folder; data.directory must hold train/CLASS/... and"},
      {{"--set", "data.set=folder", "--set", "data.directory=/" + std::string(300, 'x')},
       kExitBadData,
       "/train: File name too long; data.directory must hold train/CLASS/... and"},
      {{"--set", "output.metrics=../../../../../../../../proc/x/y"},
       kExitUsage,
       "cannot write metrics"},
      {{"--set", "optimizer.learning_rate=1e30"}, kExitDiverged, "the loss is "},
  };
  environment_.emplace_back("CUDA_VISIBLE_DEVICES", "");  // whether or not there is one
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.line);
    const CompletedProcess process = dtrain(2, refusal.arguments);
    EXPECT_EQ(process.exit_code, refusal.code) << process.error;
    const auto lines = complaints(process);
    ASSERT_EQ(lines.size(), 1U) << process.error;
    EXPECT_THAT(lines[0], HasSubstr(refusal.line));
    // The one that says why, although all have found out.
    EXPECT_THAT(process.error, AnyOf(HasSubstr("dlaunch: rank 0 (pid"), HasSubstr("[rank 1] ")));
  }
}

TEST_F(Dtrain, IsNotRestartedForWhatWouldFailAgain) {
  for (const char* assignment : {"train.epoch=3", "data.set=cifar-100"}) {
    SCOPED_TRACE(assignment);
    const CompletedProcess process =
        dtrain(2, {"--set", "data.directory=/nowhere", "--set", assignment}, "run.json",
               {"--max-restarts", "3", "--restart-delay", "0"});
    EXPECT_THAT(process.exit_code, AnyOf(kExitUsage, kExitBadData)) << process.error;
    EXPECT_EQ(complaints(process).size(), 1U) << process.error;
    EXPECT_THAT(process.error, HasSubstr("dlaunch: no restart: the job never got ready"));
  }
  std::mt19937 random(7);
  for (const char* name : {"train/a/1", "train/b/1", "test/a/1", "test/b/1"})
    write(std::string("images/") + name + ".png", testing::noise_png(32, random));
  const std::string whole = testing::noise_png(32, random);
  write("images/test/b/1.png", whole.substr(0, whole.size() / 2));  // only its head is read before
  const CompletedProcess process =
      dtrain(2, {"--set", "data.set=folder", "--set", "data.directory=" + directory_ + "/images"},
             "run.json", {"--max-restarts", "3", "--restart-delay", "0"});
  EXPECT_EQ(process.exit_code, kExitBadData) << process.error;
  EXPECT_THAT(process.error, HasSubstr("dlaunch: no restart: the job never got ready"));
  // Rank 1, which was told, has left it to rank 0 to be the first that fails.
  EXPECT_THAT(process.error, HasSubstr("dlaunch: the other ranks: 1 ended by SIGTERM"));
}

TEST_F(Dtrain, RefusesWhatCannotGoTogetherBeforeAnythingIsWritten) {
  struct Refusal {
    std::vector<std::string> arguments;
    std::string line;
  };
  const std::vector<Refusal> refusals{
      {{"data.crop_padding=40"},
       "data.crop_padding: 40 is not below the sides of images of 32 x 32; allowed: at most 31"},
      {{"data.synthetic.height=5"}, "model.name: small_cnn cannot be made for images of 5 x 32: "},
      {{"model.name=airbench94", "data.synthetic.height=16"},
       "model.name: airbench94 cannot be made for images of 16 x 32: "},
      {{"model.name=speedrun100", "data.synthetic.height=16"},
       "model.name: speedrun100 cannot be made for images of 16 x 32: "},
      {{"train.batch_size_per_rank=0", "train.global_batch_size=3", "train.accumulation_steps=4"},
       "train.global_batch_size: 3 is less than "},
      {{"train.compute_type=fp16"}, "train.compute_type: \"fp16\" is for train.device \"cuda\""},
      {{"train.loss_scaling=dynamic"}, "train.loss_scaling: only losses on GPUs are scaled"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.line);
    std::vector<std::string> arguments;
    for (const std::string& assignment : refusal.arguments)
      arguments.insert(arguments.end(), {"--set", assignment});
    const CompletedProcess process = dtrain(2, arguments);
    EXPECT_EQ(process.exit_code, kExitUsage) << process.error;
    const auto lines = complaints(process);
    ASSERT_EQ(lines.size(), 1U) << process.error;
    EXPECT_THAT(lines[0], HasSubstr(refusal.line));
    EXPECT_FALSE(std::filesystem::exists(directory_ + "/out"));
    arguments.emplace_back("--dry-run");
    const CompletedProcess dry = dtrain(0, arguments);
    EXPECT_EQ(dry.exit_code, kExitUsage);
    EXPECT_THAT(dry.error, HasSubstr(refusal.line));
  }
}

TEST_F(Dtrain, RefusesStepsWithTooFewImagesForABatchNorm) {
  const auto refusal = [&](const std::vector<std::string>& assignments) {
    std::vector<std::string> arguments{"--set", "train.batch_size_per_rank=0"};
    for (const std::string& assignment : assignments)
      arguments.insert(arguments.end(), {"--set", assignment});
    const CompletedProcess process = dtrain(2, arguments);
    if (process.exit_code == kExitOk) return std::string("accepted");
    EXPECT_EQ(process.exit_code, kExitUsage) << process.error;
    const auto lines = complaints(process);
    return lines.size() == 1 ? lines[0] : process.error;
  };
  const std::string apart = "train.sync_batch_norm=false";
  EXPECT_THAT(refusal({"train.global_batch_size=64", apart}),  // 2 images are left
              HasSubstr("train.drop_last: the last step of an epoch has a single image on a rank, "
                        "of which the batch norm "));
  EXPECT_EQ(refusal({"train.global_batch_size=64", apart, "train.drop_last=true"}), "accepted");
  EXPECT_EQ(refusal({"train.global_batch_size=64", apart, "train.max_steps=2"}), "accepted");
  EXPECT_EQ(refusal({"train.global_batch_size=64"}), "accepted");
  EXPECT_THAT(refusal({"train.global_batch_size=43"}),  // 1 image is left
              HasSubstr("train.drop_last: the last step of an epoch has a single image, of which"));
  EXPECT_THAT(refusal({"train.global_batch_size=4", apart}),
              HasSubstr("train.global_batch_size: a micro-batch has a single image on a rank, of"));
  const std::vector<std::string> convolutional{"train.global_batch_size=43", "model.name=resnet20"};
  EXPECT_EQ(refusal(convolutional), "accepted");
  std::vector<std::string> small = convolutional;  // 1 x 1 where it ends
  small.insert(small.end(), {"data.resize_sides=[4]", "data.resize_until=[1]"});
  EXPECT_THAT(refusal(small),
              HasSubstr("train.drop_last: the last step of an epoch has a single "));
}

TEST_F(Dtrain, TakesNoMoreImagesInAStepThanThereAre) {
  const CompletedProcess process = dtrain(2, {"--set", "train.batch_size_per_rank=10000000"});
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_THAT(process.out, HasSubstr("2 ranks, 130 samples a step (all there are), 2 epochs\n"));
  EXPECT_EQ(metrics().back()["steps"], 2);
}

TEST_F(Dtrain, ANewRunVoidsWhatAnEarlierOneWroteForTensorBoard) {
  const auto newest = [&] {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/out/tensorboard"))
      files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::ifstream file(files.back(), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  };
  for (int run = 0; run < 2; ++run)
    ASSERT_EQ(dtrain(0, {"--set", "train.max_steps=1"}).exit_code, kExitOk);
  // step (2) 1, session_log (7) with status (1) START: see EventFileTest
  EXPECT_THAT(newest(), HasSubstr(std::string("\x10\x01\x3A\x02\x08\x01")));
}

TEST_F(Dtrain, ARunThatDoesNotBeginLeavesWhatAnEarlierOneWrote) {
  const auto files = [&] {
    std::map<std::string, std::string> contents;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
      std::ifstream file(entry.path(), std::ios::binary);
      std::ostringstream bytes;
      if (entry.is_regular_file()) bytes << file.rdbuf();
      contents[entry.path()] = bytes.str();
    }
    return contents;
  };
  const std::string trace = "output.trace=" + directory_ + "/trace.json";
  ASSERT_EQ(dtrain(0, {"--set", "train.max_steps=1", "--set", trace}).exit_code, kExitOk);
  const auto before = files();
  for (const int ranks : {0, 2}) {
    const CompletedProcess process =
        dtrain(ranks, {"--set", "model.weights=typo.safetensors", "--set", trace});
    EXPECT_EQ(process.exit_code, kExitBadData) << process.error;
    EXPECT_EQ(files(), before);
  }
}

TEST_F(Dtrain, WritesNothingIntoItsFilesThatIsMeantForAClosedScreen) {
  const CompletedProcess process = testing::run_command(
      {.arguments = {"/bin/bash", "-c", "exec \"$@\" <&- >&- 2>&-", "bash", built_program("dtrain"),
                     directory_ + "/run.json", "--set", "train.epochs=1", "--set",
                     "output.directory=" + directory_ + "/out"}});
  EXPECT_EQ(process.exit_code, kExitOk);
  const auto lines = metrics();  // each of which is JSON
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.front()["event"], "start");
  EXPECT_EQ(lines.back()["event"], "summary");
}

TEST_F(Dtrain, RefusesRanksWithDifferentConfigurations) {
  const auto train = [&](const std::string& own) {
    return testing::run_command({.arguments = {built_program("dlaunch"), "--nproc", "3", "--",
                                               "/bin/bash", "-c", "exec \"$@\" " + own, "bash",
                                               built_program("dtrain"), directory_ + "/run.json",
                                               "--set", "output.directory=" + directory_ + "/out"},
                                 .environment = environment_},
                                Deadline::after(std::chrono::seconds(100)));
  };
  const std::vector<std::pair<std::string, std::string>> refusals{
      {"--set optimizer.learning_rate=0.0$((RANK+1))",
       "rank 1: optimizer.learning_rate is 0.02, on rank 0 0.01; start all ranks with the same"},
      {"--set train.accumulation_steps=$((RANK/2+1))",
       "rank 2: train.accumulation_steps is 2, on rank 0 1; "},
      {"--set data.mean=[0,0,0.$RANK]",
       "rank 1: data.mean is [0.0,0.0,0.1], on rank 0 [0.0,0.0,0.0]"},
      {"$([ $RANK = 1 ] && echo --set optimizer.name=adam --set optimizer.momentum=0.5)", ""},
      {"$([ $RANK = 0 ] && echo --set output.trace=" + directory_ + "/trace.json)",
       "rank 1: output.trace is \"\", on rank 0 \"FILE\""},
  };
  for (const auto& [own, line] : refusals) {
    SCOPED_TRACE(own);
    const CompletedProcess process = train(own);
    EXPECT_EQ(process.exit_code, kExitUsage) << process.error;
    const auto lines = complaints(process);
    ASSERT_EQ(lines.size(), 1U) << process.error;
    EXPECT_THAT(lines[0], HasSubstr(line));
    EXPECT_FALSE(std::filesystem::exists(directory_ + "/out"));
  }
  const CompletedProcess own_folders =
      train("--set output.directory=" + directory_ + "/of-$RANK --set data.prefetch=$((RANK+1)) " +
            "--set output.trace=" + directory_ + "/trace-$RANK.json --set train.max_steps=1");
  EXPECT_EQ(own_folders.exit_code, kExitOk) << own_folders.error;
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/of-0/metrics.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/of-1"));
}

class RanksWithImagesOfTheirOwn : public Dtrain {
 protected:
  void write_images(const std::string& rank, const std::vector<std::string>& names) {
    for (const std::string& name : names)
      write("images-" + rank + "/" + name + ".png", testing::noise_png(32, random_));
  }
  /// Two ranks, each with the images of its number.
  CompletedProcess run() const {
    return testing::run_command(
        {.arguments = {built_program("dlaunch"), "--nproc", "2", "--max-restarts", "3",
                       "--restart-delay", "0", "--", "/bin/sh", "-c",
                       "exec " + built_program("dtrain") + " " + directory_ +
                           "/run.json --set data.set=folder --set data.directory=" + directory_ +
                           "/images-$RANK --set output.directory=" + directory_ + "/out"},
         .environment = environment_},
        Deadline::after(std::chrono::seconds(100)));
  }

 private:
  std::mt19937 random_{7};
};

TEST_F(RanksWithImagesOfTheirOwn, AreRefusedIfTheirNumbersDiffer) {
  const std::vector<std::string> all{"train/a/1", "train/a/2", "train/b/1",
                                     "train/b/2", "test/a/1",  "test/b/1"};
  write_images("0", all);
  write_images("1", all);
  write_images("1", {"train/a/3", "train/b/3"});
  const CompletedProcess process = run();
  EXPECT_EQ(process.exit_code, kExitBadData);
  EXPECT_THAT(process.error, HasSubstr("dtrain: rank 1 has 6 training images, rank 0 4; give all "
                                       "ranks the same data"));
  EXPECT_EQ(complaints(process).size(), 1U) << process.error;
  EXPECT_THAT(process.error, HasSubstr("dlaunch: no restart: the job never got ready"));
}

TEST_F(RanksWithImagesOfTheirOwn, AreRefusedIfTheirClassesDiffer) {
  write_images("0", {"train/a/1", "train/b/1", "test/a/1", "test/b/1"});
  write_images("1", {"train/a/1", "train/c/1", "test/a/1", "test/c/1"});
  const CompletedProcess process = run();
  EXPECT_EQ(process.exit_code, kExitBadData);
  EXPECT_THAT(process.error, HasSubstr("dtrain: rank 1 has training images of other classes than "
                                       "rank 0, or in another order; give all ranks the same"));
}

TEST_F(Dtrain, RefusesItsCommandLine) {
  const CompletedProcess extra = dtrain(0, {"--epochs", "3"});
  EXPECT_EQ(extra.exit_code, kExitUsage);
  EXPECT_EQ(extra.error,
            "dtrain: unknown option --epochs; dlaunch's options go before dtrain, values of the "
            "configuration are changed with --set key.path=value; try dtrain --help\n");
  const CompletedProcess nothing = testing::run_command({.arguments = {built_program("dtrain")}});
  EXPECT_EQ(nothing.exit_code, kExitUsage);
  EXPECT_EQ(nothing.error, "dtrain: CONFIG.json is required; try dtrain --help\n");
  EXPECT_EQ(dtrain(0, {}, "missing.json").exit_code, kExitUsage);
  write("broken.json", "{\n  \"train\": {\"epochs\": }\n}");
  const CompletedProcess broken = dtrain(0, {}, "broken.json");
  EXPECT_EQ(broken.exit_code, kExitUsage);
  EXPECT_THAT(broken.error, HasSubstr("broken.json:2:23: "));
  EXPECT_EQ(testing::run_command({.arguments = {built_program("dtrain"), "--help"}}).exit_code, 0);
  for (const char* option : {"--resume", "--trace"}) {
    const CompletedProcess bytes = dtrain(0, {option, "\xe9"});
    EXPECT_EQ(bytes.exit_code, kExitUsage);
    EXPECT_EQ(bytes.error,
              std::string("dtrain: ") + option + ": its value is not UTF-8; try dtrain --help\n");
  }
}

TEST_F(Dtrain, LostOutputIsAFailureWhereItIsAllThereIs) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  const CompletedProcess process = testing::run_command(
      {.arguments = {"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh", built_program("dtrain"),
                     directory_ + "/run.json", "--dry-run"}});
  EXPECT_EQ(process.exit_code, kExitFailure);
  EXPECT_EQ(process.error, "dtrain: cannot write to standard output: No space left on device\n");
  // Lines are lost one by one: at the end nobody knows the reason any more.
  const CompletedProcess training = testing::run_command(
      {.arguments = {"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh", built_program("dtrain"),
                     directory_ + "/run.json", "--set", "train.max_steps=1", "--set",
                     "output.directory=" + directory_ + "/out"}});
  EXPECT_EQ(training.exit_code, kExitFailure);
  EXPECT_EQ(training.error, "dtrain: cannot write to standard output\n");
}

TEST_F(Dtrain, SaysWhatItLeavesOutOfAFolderOfImages) {
  std::mt19937 random(7);
  for (const std::string name : {"train/a/1", "train/b/1", "test/a/1", "test/b/1"})
    write("images/" + name + ".png", testing::noise_png(32, random));
  const std::vector<std::string> how{
      "--set", "data.set=folder",   "--set", "data.directory=" + directory_ + "/images",
      "--set", "train.max_steps=1", "--set", "checkpoint.keep_best=true"};
  EXPECT_THAT(dtrain(2, how).out, ::testing::Not(HasSubstr("ignored")));
  write("images/train/b/2.webp", "an image all the same");
  write("images/train/a/more/2.png", testing::noise_png(32, random));
  write("images/test/1.png", testing::noise_png(32, random));
  const std::string images = directory_ + "/images/";
  const std::string of_training = images +
                                  "train: ignored 2 entries that are not .png, .jpg or .jpeg " +
                                  "files in a class folder, first: " + images + "train/a/more\n";
  const std::string of_test = images +
                              "test: ignored 1 entry that is not a .png, .jpg or .jpeg file " +
                              "in a class folder, first: " + images + "test/1.png\n";
  const CompletedProcess trained = dtrain(2, how);
  EXPECT_EQ(trained.exit_code, kExitOk) << trained.error;
  EXPECT_THAT(trained.out,
              AllOf(HasSubstr(of_training), HasSubstr(of_test), HasSubstr("on 2 training images")));
  EXPECT_EQ(trained.out.find(of_training), trained.out.rfind(of_training));
  std::vector<std::string> validate = how;
  validate.resize(4);
  validate.insert(validate.end(), {"--validate", directory_ + "/out/best.safetensors"});
  EXPECT_THAT(dtrain(2, validate).out, AllOf(HasSubstr(of_test), HasSubstr("on 2 images")));
}

TEST_F(Dtrain, ValidatesOnValWithoutTestAndTrainsAlikeWithAnyNumberOfWorkers) {
  std::mt19937 random(7);
  for (const char* file : {"train/a/1", "train/a/2", "train/b/1", "train/b/2", "train/b/3",
                           "val/a/1", "val/b/1", "val/b/2"})
    write(std::string("images/") + file + ".png", testing::noise_png(32, random));
  const auto train = [&](const std::string& workers) {
    const CompletedProcess process =
        dtrain(2, {"--set", "data.set=folder", "--set", "data.directory=" + directory_ + "/images",
                   "--set", "data.workers=" + workers, "--set", "data.flip=true"});
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    nlohmann::json line = events("epoch").back();
    return std::pair(line.at("loss").dump(), line.at("validation_loss").dump());
  };
  const auto alone = train("1");
  EXPECT_EQ(train("3"), alone);
  EXPECT_EQ(events("epoch").back().at("validation_images"), 3);

  for (const char* file : {"test/a/1", "test/b/1"})
    write(std::string("images/") + file + ".png", testing::noise_png(32, random));
  train("1");
  EXPECT_EQ(events("epoch").back().at("validation_images"), 2) << "test goes before val";
}

TEST_F(Dtrain, OutOfMemoryBesideStepsIsNotBlamedOnThem) {
  const auto with_little = [&](const std::string& words) {
    return testing::run_command(
        {.arguments = {"/bin/sh", "-c", "ulimit -v 400000; exec $0 " + words,
                       built_program("dtrain")},
         .environment = environment_});
  };
  if (with_little("--version").exit_code != 0) GTEST_SKIP() << "the program alone takes more";
  const auto process = with_little(directory_ + "/run.json --set output.directory=" + directory_ +
                                   "/out --set data.synthetic.test_size=150000");
  EXPECT_EQ(process.exit_code, kExitFailure);
  EXPECT_EQ(process.error, "dtrain: rank 0: out of memory\n");
}

TEST_F(Dtrain, RefusesATruncatedDataFile) {
  write("cifar/train.bin", std::string(3074 * 3 + 1, '\0'));
  const CompletedProcess process = dtrain(
      0, {"--set", "data.set=cifar-100", "--set", "data.directory=" + directory_ + "/cifar"});
  EXPECT_EQ(process.exit_code, kExitBadData);
  EXPECT_THAT(process.error, HasSubstr("train.bin: 9223 bytes, but 50000 records of 3074 bytes"));
}

}  // namespace
}  // namespace dlaunch
