// What a run of dtrain leaves behind for whoever wants to see what happened in it.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "tests/trainers/dtrain_test.h"
#include "tests/trainers/event_records.h"

namespace dlaunch {
namespace {

using ::testing::AllOf;
using testing::CompletedProcess;
using ::testing::HasSubstr;

class Observing : public testing::DtrainTest {};

TEST_F(Observing, AccountsForAllTimeAndMemoryOfTheSteps) {
  const CompletedProcess process = dtrain(2, {"--set", "output.log_every=3"});
  ASSERT_EQ(process.exit_code, kExitOk) << process.error;
  EXPECT_THAT(process.out, AllOf(HasSubstr("time of a step, mean of "),
                                 HasSubstr("exposed communication"), HasSubstr("peak memory")));
  const auto summary = metrics().back();
  const auto& use = summary["use"];
  EXPECT_EQ(use["steps"], summary["steps"]);
  ASSERT_EQ(use["ranks"].size(), 2U);
  double mean = 0;
  double longest = 0;
  for (const auto& rank : use["ranks"]) {
    double step = 0;
    for (const auto& [phase, seconds] : rank["step_seconds"].items()) {
      EXPECT_GE(seconds, -1e-9) << phase;
      step += seconds.get<double>();
    }
    mean += step / 2;
    longest = std::max(longest, step);
    EXPECT_GT(rank["step_seconds"]["forward"], 0);
    EXPECT_GT(rank["step_seconds"]["backward"], 0);
    EXPECT_GT(rank["step_seconds"]["optimizer"], 0);
    const auto& bytes = rank["peak_bytes"];
    EXPECT_GE(bytes["parameters"], 4 * metrics().front()["parameters"].get<int>());
    EXPECT_EQ(bytes["gradients"], bytes["parameters"]);
    EXPECT_EQ(bytes["optimizer"], bytes["parameters"]);     // a velocity
    EXPECT_GT(bytes["activations"], 8 * 28 * 28 * 32 * 4);  // at least the first layer's
    EXPECT_GT(bytes["whole process"], bytes["activations"]);
  }
  EXPECT_NEAR(mean, use["step_seconds_mean"], 1e-9);
  EXPECT_NEAR(longest * use["steps"].get<double>(), summary["train_seconds"], 1e-6);
  EXPECT_LE(use["step_seconds_p50"], use["step_seconds_p90"]);
}

TEST_F(Observing, MeasuresTheSameGradientsHoweverTheyAreSummed) {
  const auto norms = [&](int ranks, const std::string& gradients) {
    const CompletedProcess process =
        dtrain(ranks, {"--set", "parallel.gradients=" + gradients, "--set", "output.log_every=1",
                       "--set", "train.batch_size_per_rank=0", "--set",
                       "train.global_batch_size=32", "--set", "train.max_steps=3"});
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    std::vector<double> values;
    for (const auto& step : events("step")) values.push_back(step["gradient_norm"]);
    return values;
  };
  const std::vector<double> plain = norms(2, "all_reduce");
  const std::vector<double> sharded = norms(2, "shard");
  ASSERT_EQ(plain.size(), 3U);
  ASSERT_EQ(sharded.size(), 3U);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_GT(plain[i], 0);
    EXPECT_NEAR(sharded[i], plain[i], 1e-4 * plain[i]);
  }
}

/// Events of the trace with this category and, if there is one, name.
std::vector<nlohmann::json> chosen(const nlohmann::json& trace, const std::string& category,
                                   const std::string& name = "") {
  std::vector<nlohmann::json> events;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["cat"] == category && (name.empty() || event["name"] == name))
      events.push_back(event);
  return events;
}

double begin_of(const nlohmann::json& event) {
  return event["ts"];
}
double end_of(const nlohmann::json& event) {
  return event["ts"].get<double>() + event["dur"].get<double>();
}
constexpr double kRounding = 0.005;  // microseconds

/// That what is on one line of one rank is either inside or beside of each other.
void expect_nesting(const nlohmann::json& trace) {
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lines;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X")
      lines[{event["pid"], event["tid"]}].emplace_back(begin_of(event), -end_of(event));
  for (auto& [line, intervals] : lines) {
    std::ranges::sort(intervals);
    std::vector<double> open;  // ends
    for (const auto& [begin, negative_end] : intervals) {
      while (!open.empty() && open.back() <= begin + kRounding) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(-negative_end, open.back() + kRounding);
      }
      open.push_back(-negative_end);
    }
  }
}

TEST_F(Observing, ATraceStaysWholeIfTheMetricsCannotBeWritten) {
  const std::string file = directory_ + "/trace.json";
  const CompletedProcess process =
      dtrain(2, {"--trace", file, "--set", "output.metrics=/dev/full"});
  EXPECT_EQ(process.exit_code, kExitFailure) << process.error;
  const auto trace = nlohmann::json::parse(std::ifstream(file));
  for (const int rank : {0, 1}) {
    const auto of_rank = [&](const nlohmann::json& step) { return step["pid"] == rank; };
    EXPECT_TRUE(std::ranges::any_of(chosen(trace, "phase", "step"), of_rank)) << rank;
  }
}

TEST_F(Observing, TracesAllRanksInOneTimeline) {
  const std::string file = directory_ + "/trace.json";
  const CompletedProcess process =
      dtrain(3, {"--trace", file, "--trace-steps", "2:3", "--set", "train.batch_size_per_rank=4"});
  ASSERT_EQ(process.exit_code, kExitOk) << process.error;
  const auto trace = nlohmann::json::parse(std::ifstream(file));
  expect_nesting(trace);

  // Two steps of two micro-batches on each rank, with everything that they consist of.
  const auto steps = chosen(trace, "phase", "step");
  ASSERT_EQ(steps.size(), 6U);
  EXPECT_EQ(chosen(trace, "phase", "waiting for data").size(), 12U);
  EXPECT_EQ(chosen(trace, "phase", "backward").size(), 12U);
  EXPECT_GE(chosen(trace, "phase", "optimizer").size(), 6U);
  EXPECT_EQ(chosen(trace, "forward", "conv2").size(), 12U);
  EXPECT_EQ(chosen(trace, "backward", "conv2").size(), 12U);
  EXPECT_EQ(chosen(trace, "backward", "cross_entropy").size(), 12U);

  // Collectives lie in a step of their rank, and each was in flight on all ranks at some time.
  std::map<std::pair<std::string, int>, std::vector<nlohmann::json>> calls;
  for (const auto& call : chosen(trace, "collective")) {
    calls[{call["args"]["lane"], call["args"]["sequence"]}].push_back(call);
    EXPECT_TRUE(std::ranges::any_of(steps, [&](const nlohmann::json& step) {
      return step["pid"] == call["pid"] && begin_of(step) <= begin_of(call) + kRounding &&
             end_of(call) <= end_of(step) + kRounding;
    })) << call;
  }
  double clock_error = 0;
  for (const auto& event : trace["traceEvents"])
    if (event["name"] == "clock_error")
      clock_error = std::max<double>(clock_error, event["args"]["microseconds"]);
  EXPECT_GT(clock_error, 0);
  EXPECT_GE(calls.size(), 8U);  // two of batch norm in each micro-batch, and the gradients
  for (const auto& [call, ranks] : calls) {
    ASSERT_EQ(ranks.size(), 3U) << call.first << " " << call.second;
    double last_begin = 0, first_end = 1e300;
    for (const auto& event : ranks) {
      EXPECT_EQ(event["name"], ranks[0]["name"]);
      EXPECT_EQ(event["args"]["bytes"], ranks[0]["args"]["bytes"]);
      last_begin = std::max(last_begin, begin_of(event));
      first_end = std::min(first_end, end_of(event));
    }
    EXPECT_LE(last_begin, first_end + 2 * clock_error) << call.first << " " << call.second;
  }
}

TEST_F(Observing, ATraceMayBeNamedWithoutAFolder) {
  const std::string command = "cd " + directory_ + " && exec " + testing::built_program("dtrain") +
                              " run.json --trace t.json --set train.max_steps=1";
  const CompletedProcess process =
      testing::run_command({.arguments = {"/bin/sh", "-c", command}, .environment = environment_},
                           Deadline::after(std::chrono::seconds(100)));
  EXPECT_EQ(process.exit_code, kExitOk) << process.error;
  const auto trace = nlohmann::json::parse(std::ifstream(directory_ + "/t.json"));
  EXPECT_EQ(chosen(trace, "phase", "step").size(), 1U);
}

TEST_F(Observing, LeavesATraceOfARunThatDiverged) {
  const std::string file = directory_ + "/trace.json";
  const CompletedProcess process =
      dtrain(2, {"--trace", file, "--set", "optimizer.learning_rate=1e30"});
  EXPECT_EQ(process.exit_code, kExitDiverged);
  const auto trace = nlohmann::json::parse(std::ifstream(file));
  expect_nesting(trace);
  EXPECT_EQ(chosen(trace, "phase", "step").size(), 2U);  // the second one was not ended
}

TEST_F(Observing, SaysWhereNumbersEnded) {
  const CompletedProcess process = dtrain(2, {"--set", "optimizer.learning_rate=1e30"});
  EXPECT_EQ(process.exit_code, kExitDiverged);
  const auto lines = complaints(process);
  ASSERT_EQ(lines.size(), 1U) << process.error;
  EXPECT_THAT(
      lines[0],
      AllOf(HasSubstr("epoch 1, step 2 of 5: the loss is "),
            HasSubstr("begins on rank 0, in the output of conv2, Conv2d(32, 32, kernel 3)"),
            HasSubstr("; lower optimizer.learning_rate, warm up (schedule.warmup_epochs) or clip "
                      "gradients (optimizer.clip_norm)")));
  const CompletedProcess data = dtrain(2, {"--set", "data.std=[1e-39, 1e-39, 1e-39]"});
  EXPECT_EQ(data.exit_code, kExitDiverged);
  EXPECT_THAT(data.error, AllOf(HasSubstr("step 1 of 5: the loss is nan; it begins on rank 0, in "
                                          "the images: "),
                                HasSubstr("finite; set data.mean and data.std to those of the "
                                          "images\n")));
}

TEST_F(Observing, RefusesTracesThatCannotBe) {
  const CompletedProcess nowhere = dtrain(2, {"--trace", "/proc/nowhere/trace.json"});
  EXPECT_EQ(nowhere.exit_code, kExitUsage);
  EXPECT_THAT(nowhere.error, HasSubstr("/proc/nowhere/trace.json: cannot write the trace: "));
  EXPECT_THAT(nowhere.error, HasSubstr("; set output.trace\n"));
  EXPECT_EQ(complaints(nowhere).size(), 1U);
  for (const char* steps : {"5", "0:3", "4:3", "a:b", "1:2:3", ":"}) {
    const CompletedProcess refused = dtrain(0, {"--trace-steps", steps});
    EXPECT_EQ(refused.exit_code, kExitUsage) << steps;
    EXPECT_THAT(refused.error, HasSubstr("output.trace_steps: allowed: FIRST:LAST")) << steps;
  }
  const CompletedProcess late = dtrain(2, {"--trace", directory_ + "/late.json", "--trace-steps",
                                           "100:200", "--set", "train.max_steps=2"});
  EXPECT_EQ(late.exit_code, kExitOk) << late.error;
  EXPECT_THAT(late.out, HasSubstr(directory_ + "/late.json: shows no steps: output.trace_steps "
                                               "begins with 100, and here 1 to 2 were done\n"));
  const CompletedProcess idle = dtrain(0, {"--trace-steps", "2:3"});
  EXPECT_EQ(idle.exit_code, kExitUsage);
  EXPECT_THAT(idle.error, HasSubstr("output.trace_steps: has no effect without output.trace"));
}

/// Says what TensorBoard's own reader finds: one line per scalar.
constexpr const char* kReader = R"(
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
for tag in events.Tags()["scalars"]:
    for event in events.Scalars(tag):
        print(tag, event.step, "%.9g" % event.value)
)";

class ObservingAResume : public Observing {
 protected:
  /// A run of six steps, and another that does the last of them again and goes on to the end.
  void run_twice() {
    const std::vector<std::string> arguments{"--set", "output.log_every=1", "--set",
                                             "checkpoint.every_steps=5"};
    std::vector<std::string> first = arguments;
    first.insert(first.end(), {"--set", "train.max_steps=6"});
    ASSERT_EQ(dtrain(2, first).exit_code, kExitOk);
    // As if it had been killed before the last checkpoint was written.
    ASSERT_TRUE(std::filesystem::remove(directory_ + "/out/checkpoints/step-00000006.safetensors"));
    std::vector<std::string> second = arguments;
    second.insert(second.end(), {"--resume", "auto"});
    const CompletedProcess resumed = dtrain(2, second);
    ASSERT_EQ(resumed.exit_code, kExitOk) << resumed.error;
    ASSERT_EQ(events("resume").size(), 1U);
    EXPECT_EQ(events("resume").front()["step"], 5);
  }
};

TEST_F(ObservingAResume, TellsTensorBoardFromWhichStepOnEarlierFilesAreVoid) {
  ASSERT_NO_FATAL_FAILURE(run_twice());
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory_ + "/out/tensorboard"))
    files.push_back(entry.path());
  std::ranges::sort(files);  // by time
  ASSERT_EQ(files.size(), 2U);
  const auto records = testing::event_records(files.back());
  ASSERT_GT(records.size(), 2U);
  EXPECT_EQ(records[1].event(), "\x10\x06\x3A\x02\x08\x01");  // step 6: session_log, START
}

TEST_F(ObservingAResume, WritesFilesThatTensorBoardReads) {
  const char* named = std::getenv("DLAUNCH_TEST_PYTHON");  // NOLINT(concurrency-mt-unsafe)
  const std::string python = named == nullptr ? "python3" : named;
  const CompletedProcess has =
      testing::run_command({.arguments = {"/usr/bin/env", python, "-c", "import tensorboard"}},
                           Deadline::after(std::chrono::seconds(100)));
  if (has.exit_code != 0) GTEST_SKIP() << python << " has no tensorboard";

  ASSERT_NO_FATAL_FAILURE(run_twice());
  const CompletedProcess reader = testing::run_command(
      {.arguments = {"/usr/bin/env", python, "-c", kReader, directory_ + "/out/tensorboard"}},
      Deadline::after(std::chrono::seconds(100)));
  ASSERT_EQ(reader.exit_code, 0) << reader.error;
  std::istringstream lines(reader.out);
  std::vector<int> steps;
  int validations = 0;
  double value = 0;
  std::string tag;
  for (int step = 0; lines >> tag >> step >> value;) {
    if (tag == "train/gradient_norm") steps.push_back(step);
    if (tag == "validation/top1") ++validations;
    if (tag == "train/learning_rate") {
      EXPECT_NEAR(value, 0.01, 1e-9);
    }
  }
  std::vector<int> expected(static_cast<std::size_t>(metrics().back()["steps"].get<int>()));
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<int>(i) + 1;
  EXPECT_EQ(steps, expected);
  EXPECT_GE(validations, 2);
}

}  // namespace
}  // namespace dlaunch
