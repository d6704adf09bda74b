// dbench train and dbench syncbn as their users run them.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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

TEST_F(DbenchTraining, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(run({"train", "/nowhere.json"}).exit_code, kExitUsage);
  EXPECT_EQ(run({"syncbn", "--channels", "many"}).exit_code, kExitUsage);
}

}  // namespace
}  // namespace dlaunch::testing
