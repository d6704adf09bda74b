// Every configuration of configs/ trains: a few steps of it, on built-in images, on the CPU.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "runtime/base/json_reader.h"
#include "tests/trainers/dtrain_test.h"

namespace dlaunch {
namespace {

using ::testing::HasSubstr;

class Recipes : public testing::DtrainTest {
 protected:
  static std::string path_of(const std::string& name) {
    return std::string(SOURCE_ROOT) + "/configs/" + name + ".json";
  }

  /// The losses of the first steps.
  std::vector<double> losses(const std::string& name, int ranks, int batch, int steps,
                             std::vector<std::string> more = {}) {
    std::filesystem::copy_file(path_of(name), directory_ + "/" + name + ".json",
                               std::filesystem::copy_options::overwrite_existing);
    const nlohmann::json json = read_json_file(path_of(name));
    const bool global = json.at("train").contains("global_batch_size");
    const std::string size = global ? "global_batch_size" : "batch_size_per_rank";
    std::vector<std::string> arguments;
    for (const std::string& text :
         {std::string("data.set=synthetic"),
          "data.synthetic.train_size=" + std::to_string(batch * steps),
          std::string("data.synthetic.test_size=10"), std::string("train.accumulation_steps=1"),
          "train." + size + "=" + std::to_string(global ? batch : batch / ranks),
          "train.max_steps=" + std::to_string(steps), std::string("train.compute_type=fp32"),
          std::string("output.log_every=1")})
      more.push_back(text);
    for (const std::string& text : more) arguments.insert(arguments.end(), {"--set", text});
    const auto process = dtrain(ranks, arguments, name + ".json");
    EXPECT_EQ(process.exit_code, kExitOk) << name << ": " << process.error;
    std::vector<double> values;
    for (const auto& line : metrics())
      if (line["event"] == "step") values.push_back(line["loss"]);
    EXPECT_EQ(metrics().back()["validation_images"], 10);
    return values;
  }
};

TEST_F(Recipes, AllOfThemTrain) {
  for (const auto& entry : std::filesystem::directory_iterator(SOURCE_ROOT "/configs")) {
    const std::vector<double> values = losses(entry.path().stem(), 1, 4, 2);
    ASSERT_EQ(values.size(), 2U) << entry.path();
    for (const double loss : values) EXPECT_TRUE(std::isfinite(loss)) << entry.path();
  }
}

TEST_F(Recipes, ThoseOfTheSpeedrunsBeginAlikeOnAnyNumberOfRanks) {
  const std::vector<std::string> sizes{"data.resize_sides=[20,24]", "data.resize_until=[0.3,0.6]"};
  for (const bool cifar100 : {false, true}) {
    const std::string name = cifar100 ? "cifar100_speedrun" : "cifar10_airbench94";
    const int steps = cifar100 ? 3 : 1;  // one for each size
    const auto more = cifar100 ? sizes : std::vector<std::string>{};
    const std::vector<double> alone = losses(name, 1, 6, steps, more);
    const std::vector<double> together = losses(name, 2, 6, steps, more);
    ASSERT_EQ(alone.size(), static_cast<std::size_t>(steps));
    ASSERT_EQ(together.size(), alone.size());
    EXPECT_NEAR(together[0], alone[0], 1e-4 * alone[0]);  // before anything has been learned
  }
}

TEST_F(Recipes, ImagesThatANetworkDoesNotTakeAreRefused) {
  const auto process =
      dtrain(0, {"--set", "data.resize_sides=[20]", "--set", "data.resize_until=[1]"});
  EXPECT_EQ(process.exit_code, kExitUsage);
  EXPECT_THAT(process.error,
              HasSubstr("data.resize_sides: small_cnn does not take images of 20 x 20"));
}

TEST_F(Recipes, TheLastSmallerStepOfAnEpochCanBeLeftOut) {
  EXPECT_EQ(dtrain(0, {"--set", "train.drop_last=true"}).exit_code, kExitOk);
  EXPECT_EQ(metrics().back()["images"], 2 * 128);  // of 130, in steps of 16
}

}  // namespace
}  // namespace dlaunch
