// dbench train and dbench syncbn as their users run them.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nn/cuda/cuda_backend.h"
#include "runtime/base/exit_codes.h"
#include "tests/support/subprocess.h"

namespace dlaunch::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kLimit = std::chrono::seconds(120);

class DbenchTraining : public ::testing::Test {
 protected:
  DbenchTraining()
      : folder_(fs::temp_directory_path() / ("dbench_training_test_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "config.json")
        << R"({"data": {"set": "cifar-100", "flip": true}, "train": {"batch_size_per_rank": 6}})"
        << std::flush;
  }
  ~DbenchTraining() override { fs::remove_all(folder_); }

  std::string config() const { return (folder_ / "config.json").string(); }

  static CompletedProcess run(std::vector<std::string> words) {
    words.insert(words.begin(), built_program("dbench"));
    return run_command({.arguments = words}, Deadline::after(kLimit));
  }

  json results(std::vector<std::string> words) const {
    const std::string path = (folder_ / "results.json").string();
    words.insert(words.end(), {"--json", path});
    const auto done = run(words);
    EXPECT_EQ(done.exit_code, 0) << done.error;
    std::ifstream file(path);
    return json::parse(file);
  }

  fs::path folder_;
};

TEST_F(DbenchTraining, TimesTheStepsOfAConfigurationWithoutItsData) {
  const json document = results({"train", config(), "--nproc", "2", "--threads", "1", "--warmup",
                                 "1", "--steps", "3", "--set", "train.accumulation_steps=2"});
  EXPECT_EQ(document["ranks"], 2);
  EXPECT_EQ(document["model"], "small_cnn");
  EXPECT_EQ(document["steps"], 3);
  EXPECT_EQ(document["images_per_step"], 2 * 2 * 6);
  EXPECT_GT(document["ms_p10"], 0);
  EXPECT_LE(document["ms_p10"], document["ms"]);
  EXPECT_LE(document["ms"], document["ms_most"]);
  // 24 images in a step: no faster than the fastest and no slower than the slowest step.
  EXPECT_GE(document["images_per_second"].get<double>() * 1.001,
            24e3 / document["ms_most"].get<double>());
  EXPECT_GT(document["peak_mib"], document["tensor_mib"]);
  EXPECT_GT(document["tensor_mib"], 1);
}

TEST_F(DbenchTraining, CountsTheImagesThatThereAre) {
  const json document =
      results({"train", config(), "--own-data", "--nproc", "2", "--threads", "1", "--warmup", "1",
               "--steps", "3", "--set", "data.set=synthetic", "--set",
               "data.synthetic.train_size=10", "--set", "checkpoint.every_steps=1"});
  EXPECT_EQ(document["images_per_step"], 10);
  EXPECT_GE(document["images_per_second"].get<double>() * 1.001,
            10e3 / document["ms_most"].get<double>());
}

TEST_F(DbenchTraining, TimesSyncBatchNormBesideBatchNorm) {
  const json document = results(
      {"syncbn", "--nproc", "3", "--channels", "5,128", "--batches", "7", "--iterations", "4"});
  EXPECT_EQ(document["ranks"], 3);
  ASSERT_EQ(document["cells"].size(), 2U);
  for (const json& cell : document["cells"]) {
    EXPECT_EQ(cell["rows"], 7);
    EXPECT_GT(cell["us"], 0);
    EXPECT_GT(cell["batch_norm_us"], 0);
    EXPECT_EQ(cell["repetitions"], 4);
  }
}

TEST_F(DbenchTraining, TimesImagesInEitherType) {
  for (const bool bf16 : {false, true}) {
    std::vector<std::string> words{"syncbn", "--nproc",   "2",          "--channels",
                                   "8",      "--batches", "4",          "--iterations",
                                   "3",      "--images",  "3x5x4,2x8x2"};
    if (bf16) words.emplace_back("--bf16");
    const json document = results(words);
    EXPECT_EQ(document["device"], "cpu");
    EXPECT_EQ(document["dtype"], bf16 ? "bf16" : "fp32");
    ASSERT_EQ(document["cells"].size(), 3U);
    EXPECT_EQ(document["cells"][1]["shape"], "[3, 4, 4, 5]");
    for (const json& cell : document["cells"]) {
      EXPECT_GT(cell["us"], 0);
      EXPECT_FALSE(cell.contains("bound_us"));  // of a GPU's memory
    }
  }
}

TEST_F(DbenchTraining, TellsWhatADeviceDoesAtBest) {
  const json document =
      results({"device", "--nproc", "1", "--iterations", "3", "--matrix", "64", "--bytes", "64K"});
  ASSERT_EQ(document["cells"].size(), 3U);
  for (const json& cell : document["cells"]) EXPECT_GT(cell["rate"], 0);
}

TEST_F(DbenchTraining, TellsOnSeveralRanksWhatASmallAllReduceTakes) {
  const json document =
      results({"device", "--nproc", "2", "--iterations", "3", "--matrix", "64", "--bytes", "64K"});
  ASSERT_EQ(document["cells"].size(), 4U);
  EXPECT_EQ(document["cells"][3]["what"], "sum");
  EXPECT_GT(document["cells"][3]["us"], 0);
}

TEST_F(DbenchTraining, SaysInALineThatThereIsNoGpu) {
  if (const std::string why = nn::why_no_cuda(); why.empty()) {
    GTEST_SKIP() << "there is a GPU";
  } else {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"syncbn", "--device", "cuda"}, {"device", "--device", "cuda"}}) {
      std::vector<std::string> alone = words;
      alone.insert(alone.end(), {"--nproc", "1"});
      const auto done = run(alone);
      EXPECT_EQ(done.exit_code, kExitUsage);
      EXPECT_NE(done.error.find("dbench: --device cuda: " + why), std::string::npos) << done.error;
    }
  }
}

TEST_F(DbenchTraining, ComparesNothingWhereThereIsNoGpuAndSaysWhy) {
  const std::string python = "/usr/bin/python3";
  if (!fs::exists(python)) GTEST_SKIP() << "no " << python;
  if (nn::why_no_cuda().empty()) GTEST_SKIP() << "there is a GPU";
  for (const std::string what : {"syncbn", "train"}) {
    const auto done = run_command(
        {.arguments = {python, SOURCE_ROOT "/tools/bench/compare_gpu", what, "--programs",
                       fs::path(built_program("dbench")).parent_path(), "--out", folder_.string(),
                       "--torch-python", python, "--rounds", "2"}},
        Deadline::after(kLimit));
    EXPECT_EQ(done.exit_code, 1) << done.error;
    EXPECT_NE(done.out.find("dlaunch skipped: "), std::string::npos) << done.out;
    EXPECT_NE(done.out.find(nn::why_no_cuda()), std::string::npos) << done.out;
    EXPECT_NE(done.out.find("torch skipped: torch_gpu.py: "), std::string::npos) << done.out;
    std::ifstream file(folder_ / ("gpu-" + what + ".jsonl"));
    std::size_t lines = 0;
    for (std::string line; std::getline(file, line); ++lines)
      EXPECT_TRUE(json::parse(line).contains("failure"));
    EXPECT_EQ(lines, what == "train" ? 4U : 2U);  // once each: what cannot run is not tried again
  }
}

TEST_F(DbenchTraining, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(run({"syncbn", "--images", "3x4"}).exit_code, kExitUsage);
  EXPECT_EQ(run({"device", "--device", "tpu"}).exit_code, kExitUsage);
  EXPECT_EQ(run({"train", "/nowhere.json"}).exit_code, kExitUsage);
  EXPECT_EQ(run({"syncbn", "--channels", "many"}).exit_code, kExitUsage);
  EXPECT_EQ(run({"syncbn", "--device", "cuda", "--device-path", "ring"}).exit_code, kExitUsage);
  const auto on_cpu = run({"device", "--nproc", "1", "--device-path", "ipc"});
  EXPECT_EQ(on_cpu.exit_code, kExitUsage);
  EXPECT_NE(on_cpu.error.find("dbench: --device-path: "), std::string::npos) << on_cpu.error;
}

}  // namespace
}  // namespace dlaunch::testing
