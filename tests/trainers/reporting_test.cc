#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/temporary_folder.h"
#include "trainers/output/memory_account.h"
#include "trainers/output/metrics_file.h"
#include "trainers/output/progress.h"
#include "trainers/output/reporter.h"
#include "trainers/output/summary.h"

namespace dlaunch {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const ProgressState kState{.epoch = 1,
                           .epochs = 20,
                           .step = 100,
                           .steps = 400,
                           .loss = 3.25,
                           .images_per_second = 1234.5,
                           .seconds_left = 3725};

TEST(FormatDuration, IsShort) {
  EXPECT_EQ(format_duration(0.2), "0.2s");
  EXPECT_EQ(format_duration(9.96), "10s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(61), "1:01");
  EXPECT_EQ(format_duration(3725), "1:02:05");
}

TEST(Progress, RewritesOneLineOnATerminal) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kAuto, out, /*out_is_terminal=*/true);
  const auto later = Progress::Clock::now() + std::chrono::seconds(1);
  progress.show(kState, later);
  EXPECT_EQ(out.str(),
            "\repoch 2/20 [#####...............]  loss 3.250  1234 images/s  1:02:05 "
            "left\x1b[K");
  EXPECT_FALSE(progress.due(later));
  EXPECT_TRUE(progress.due(later + std::chrono::milliseconds(100)));
  out.str("");
  progress.line("done");
  EXPECT_EQ(out.str(), "\r\x1b[Kdone\n");
}

TEST(Progress, EndsTheBarsLineOnce) {
  std::ostringstream out;
  {
    Progress progress(ProgressStyle::kBar, out, true);
    progress.show(kState, Progress::Clock::now() + std::chrono::seconds(1));
    out.str("");
    progress.end();
    EXPECT_EQ(out.str(), "\n");
    progress.end();
  }
  EXPECT_EQ(out.str(), "\n");
  { const Progress nothing_shown(ProgressStyle::kBar, out, true); }
  EXPECT_EQ(out.str(), "\n");
}

TEST(Progress, CutsTheLineToTheTerminal) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kBar, out, true, 20);
  progress.show(kState, Progress::Clock::now() + std::chrono::seconds(1));
  EXPECT_EQ(out.str(), "\repoch 2/20 [#####..\x1b[K");
}

TEST(Progress, WritesPlainLinesElsewhereNowAndThen) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kAuto, out, /*out_is_terminal=*/false);
  const auto start = Progress::Clock::now();
  progress.show(kState, start + std::chrono::seconds(1));
  EXPECT_EQ(out.str(), "");
  progress.show(kState, start + std::chrono::seconds(11));
  EXPECT_EQ(out.str(), "epoch 2/20  step 100/400  loss 3.250  1234 images/s  1:02:05 left\n");
}

TEST(Progress, IsSilentOnRequest) {
  std::ostringstream out;
  Progress progress(ProgressStyle::kNone, out, true);
  progress.show(kState, Progress::Clock::now() + std::chrono::seconds(100));
  progress.line("done");
  EXPECT_EQ(out.str(), "");
}

TEST(MetricsFile, HoldsOneObjectPerLine) {
  const TemporaryFolder temporary;
  const std::string& directory = temporary.path();
  {
    MetricsFile metrics(directory + "/a/b", "metrics.jsonl");
    metrics.begin(false);
    metrics.write({{"event", "step"}, {"loss", 1.5}});
    metrics.write({{"event", "epoch"}});
    std::ifstream file(metrics.path());
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_EQ(text.str(), "{\"event\":\"step\",\"loss\":1.5}\n{\"event\":\"epoch\"}\n");
  }
}

TEST(MetricsFile, SaysWhyItCannotBeWritten) {
  const auto error_of = [](auto&& action) -> std::string {
    try {
      action();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(error_of([] { MetricsFile("/proc/nowhere", "m"); }),
            "/proc/nowhere/m: cannot write metrics: No such file or directory; set "
            "output.directory, or output.metrics to \"\"");
  EXPECT_EQ(error_of([] { MetricsFile("runs", "/proc/nowhere/m"); }),
            "/proc/nowhere/m: cannot write metrics: No such file or directory; set "
            "output.metrics, or to \"\" for none");
  EXPECT_THAT(error_of([] {
                MetricsFile full("/dev", "full");
                full.begin(false);
                full.write({{"event", "step"}});
                full.finish();
              }),
              StartsWith("/dev/full: cannot write metrics: No space left on device"));
}

TEST(Reporter, SaysWhatIsLeftOfALimitThatEachStartHasWhole) {
  TrainConfig config;
  config.epochs = 1000;
  config.log_every = 1000;
  config.max_seconds = 100;
  config.progress = ProgressStyle::kBar;
  std::ostringstream out;
  Reporter reporter(config, {out}, /*enabled=*/true, /*resumes=*/true);
  reporter.start(1, nn::StepPlan(100, 10, 1, 1), 100, 1, "fp32");
  nlohmann::json state = reporter.state();
  state["steps"] = 500;
  state["train_seconds"] = 5000.0;  // longer than the limit
  reporter.restore(state);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // a bar is rewritten now and then
  reporter.step({.epoch = 50, .totals = {.samples = 10}, .seconds_since_start = 40});
  EXPECT_THAT(out.str(), HasSubstr("1000 epochs, at most 100 s"));
  EXPECT_THAT(out.str(), HasSubstr("1:00 left"));
}

TEST(Reporter, GoesOnInTheMiddleOfALine) {
  const TemporaryFolder folder;
  TrainConfig config;
  config.epochs = 1;
  config.log_every = 4;
  config.progress = ProgressStyle::kNone;
  config.output_directory = folder.path();
  config.metrics_file = "metrics.jsonl";
  std::ostringstream out;
  const auto report = [&](const nlohmann::json& before, double loss) {
    Reporter reporter(config, {out}, /*enabled=*/true, /*resumes=*/!before.is_null());
    reporter.start(1, nn::StepPlan(100, 10, 1, 1), 100, 1, "fp32");
    if (!before.is_null()) reporter.restore(before);
    StepTimes times;
    times[StepPhase::kForward] = loss;
    times[StepPhase::kCommunication] = 1;
    for (int i = 0; i < 2; ++i)
      reporter.step({.totals = {.samples = 10, .loss = 10 * loss}, .times = times});
    return reporter.state();
  };
  report(report(nullptr, 1), 3);
  std::ifstream file(folder.path() + "/metrics.jsonl");
  nlohmann::json last;
  for (std::string line; std::getline(file, line);) last = nlohmann::json::parse(line);
  EXPECT_EQ(last["step"], 4);
  EXPECT_EQ(last["loss"], 2);
  EXPECT_EQ(last["images_per_second"], 40.0 / 12);
  EXPECT_EQ(last["exposed_communication_seconds"], 1);
}

TEST(Summary, TakesWhatIsNotWorseForTheBestIfItsLossIsFinite) {
  Summary summary;
  summary.best_top1 = 0.5;
  EXPECT_TRUE(summary.is_best({.samples = 4, .top1 = 3, .loss = 1}));
  EXPECT_TRUE(summary.is_best({.samples = 4, .top1 = 2, .loss = 1})) << "as good, and later";
  EXPECT_FALSE(summary.is_best({.samples = 4, .top1 = 1, .loss = 1}));
  EXPECT_FALSE(summary.is_best({.samples = 4, .top1 = 3, .loss = std::nan("")}));
  EXPECT_FALSE(summary.is_best({.samples = 4, .top1 = 3, .loss = HUGE_VAL}));
}

TEST(Summary, NamesTheFiguresThatMatter) {
  Summary summary;
  summary.ranks = 2;
  summary.epochs = 20;
  summary.steps = 7820;
  summary.steps_per_epoch = 391;
  summary.images = 1e6;
  summary.first_step_seconds = 1.249;
  summary.train_seconds = 500;
  summary.total_seconds = 540;
  summary.communication_seconds = 5;
  summary.peak_resident_bytes = 150U << 20;
  summary.peak_tensor_bytes = 60U << 20;
  summary.last_train_loss = 2.5;
  summary.validation = {.samples = 10000, .top1 = 3880, .top5 = 7000, .loss = 23400};
  summary.best_top1 = 0.39;
  summary.best_epoch = 18;
  EXPECT_EQ(format_summary(summary),
            "20 epochs, 7820 steps, 1000000 images in 9:00 on 2 ranks\n"
            "  accuracy       top-1 0.3880, top-5 0.7000, loss 2.340 on 10000 images; best top-1 "
            "0.3900 in epoch 18\n"
            "  training       loss 2.500, 2000 images/s, first step done 1.25 s after the start");
  EXPECT_EQ(summary_to_json(summary)["top1"], 0.388);
  EXPECT_EQ(summary_to_json(summary)["first_step_seconds"], 1.249);
  summary.first_step_seconds.reset();
  EXPECT_THAT(format_summary(summary), EndsWith("2000 images/s")) << "there was no step";
  EXPECT_TRUE(summary_to_json(summary)["first_step_seconds"].is_null());
  EXPECT_GT(peak_resident_bytes(), std::size_t{1} << 20);
}

TEST(Summary, OfARunThatEndedWithinAnEpochTellsHowMuchOfItThereWas) {
  Summary summary;
  summary.steps_per_epoch = 391;
  const auto length = [&](std::size_t epochs, std::size_t steps) {
    summary.epochs = epochs;
    summary.steps = steps;
    const std::string text = format_summary(summary);
    return text.substr(0, text.find(", 0 images"));
  };
  EXPECT_EQ(length(1, 391), "1 epoch, 391 steps");
  EXPECT_EQ(length(1, 8), "8 steps (0.0205 epochs)");
  EXPECT_EQ(length(3, 1000), "1000 steps (2.56 epochs)");
  EXPECT_EQ(length(0, 0), "0 epochs, 0 steps");
}

}  // namespace
}  // namespace dlaunch
