// dtrain as a program on GPUs. Where there is none, or in a build without CUDA, it says so.
#include <cmath>
#include <iostream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/cuda/cuda_backend.h"
#include "runtime/base/exit_codes.h"
#include "tests/trainers/dtrain_test.h"

namespace dlaunch {
namespace {

using testing::CompletedProcess;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

class DtrainOnCuda : public testing::DtrainTest {
 protected:
  void SetUp() override {
    DtrainTest::SetUp();
    if (const std::string why = nn::why_no_cuda(); !why.empty()) GTEST_SKIP() << why;
  }

  CompletedProcess train(int ranks, const std::string& device, Arguments arguments) const {
    for (const std::string& word :
         {"train.device=" + device, std::string("train.epochs=4"),
          std::string("output.log_every=7"), std::string("checkpoint.every_epochs=4")})
      arguments.insert(arguments.end(), {"--set", word});
    arguments.insert(arguments.end(), {"--resume", "none"});
    std::filesystem::remove_all(directory_ + "/out");
    return dtrain(ranks, arguments);
  }

  /// The network's file after training on GPUs, with the steps recorded or not, as far as the
  /// collectives' path lets them be.
  std::string network_after(int ranks, Arguments arguments, bool recorded) const {
    if (!recorded) arguments.insert(arguments.end(), {"--set", "train.cuda_graphs=false"});
    const CompletedProcess process = train(ranks, "cuda", arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    const bool told =
        process.out.find("steps are not recorded as CUDA graphs") != std::string::npos;
    EXPECT_EQ(last_line().value("repeated_steps", 0) > 0, recorded && !told) << process.out;
    if (recorded && told) std::cout << process.out;  // that nobody takes it for a test of graphs
    std::ifstream file(directory_ + "/out/model.safetensors", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// Of the metrics; empty where training came to none.
  nlohmann::json last_line() const {
    const auto lines = metrics();
    return lines.empty() ? nlohmann::json::object() : lines.back();
  }

  double last_loss() const { return last_line().value("train_loss", std::nan("")); }
};

// Where a loss is compared with one that is rounded otherwise, the last step has as many images as
// the others: batch norm over the two that kSmallRun leaves for it makes much of little.
const Arguments kWholeBatches{
    "--set", R"(data.synthetic={"classes": 4, "train_size": 128, "test_size": 37})"};

TEST_F(DtrainOnCuda, LearnsAsOnTheCpu) {
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(ranks);
    ASSERT_EQ(train(ranks, "cpu", kWholeBatches).exit_code, kExitOk);
    const double of_cpu = last_loss();
    const CompletedProcess process = train(ranks, "cuda", kWholeBatches);
    ASSERT_EQ(process.exit_code, kExitOk) << process.error;
    EXPECT_NEAR(last_loss(), of_cpu, 0.02);
    if (ranks > 1) {
      EXPECT_THAT(process.out, HasSubstr("collectives on GPU memory take the path "));
    }
  }
}

TEST_F(DtrainOnCuda, GivesTheSameBitsWhetherStepsAreRecordedOrNot) {
  // With batch norm there are collectives between layers, too, beside those of gradients.
  const std::vector<Arguments> cases{
      {"--set", R"(optimizer={"name": "sgd", "learning_rate": 0.003})"},
      {"--set", R"(optimizer={"name": "adamw", "learning_rate": 0.003})"},
      {"--set", R"(optimizer={"name": "muon", "learning_rate": 0.003})"},
      {"--set", "model.name=resnet20"},
      {"--set", "model.name=resnet20", "--set", "parallel.gradients=shard"},
  };
  for (const Arguments& arguments : cases) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(arguments.back() + " on " + std::to_string(ranks));
      const std::string recorded = network_after(ranks, arguments, true);
      EXPECT_FALSE(recorded.empty());
      EXPECT_TRUE(recorded == network_after(ranks, arguments, false));
    }
  }
}

TEST_F(DtrainOnCuda, LearnsTheSameOnEveryPathAndWithShards) {
  const CompletedProcess chosen = train(2, "cuda", {});
  ASSERT_EQ(chosen.exit_code, kExitOk) << chosen.error;
  const double loss = last_loss();
  for (const std::string word :
       {"parallel.device_path=ipc", "parallel.device_path=staging", "parallel.gradients=shard"}) {
    SCOPED_TRACE(word);
    // Some systems do not let processes share a device's memory; what chose another way says why.
    if (word.ends_with("ipc") && chosen.out.find("take the path staging") != std::string::npos) {
      std::cout << "not forced here: " << word << '\n' << chosen.out;
      continue;
    }
    const CompletedProcess process = train(2, "cuda", {"--set", word});
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    EXPECT_NEAR(last_loss(), loss, 1e-4);
  }
}

TEST_F(DtrainOnCuda, LearnsInFp16AsInFp32) {
  ASSERT_EQ(train(2, "cuda", kWholeBatches).exit_code, kExitOk);
  const double loss = last_loss();
  for (const std::string gradients : {"all_reduce", "shard"}) {
    SCOPED_TRACE(gradients);
    Arguments arguments = kWholeBatches;
    // With a greater scale gradients overflow, and the steps that are skipped tell in the loss.
    arguments.insert(arguments.end(),
                     {"--set", "train.compute_type=fp16", "--set", "train.loss_scale=65536",
                      "--set", "parallel.gradients=" + gradients});
    const CompletedProcess process = train(2, "cuda", arguments);
    EXPECT_EQ(process.exit_code, kExitOk) << process.error;
    EXPECT_NEAR(last_loss(), loss, 0.05);
  }
}

TEST_F(DtrainOnCuda, RefusesNcclWhereRanksShareAGpuAndCompressedGradientsInOneLine) {
  const int ranks = nn::cuda_devices() + 1;
  const CompletedProcess forced = train(ranks, "cuda", {"--set", "parallel.device_path=nccl"});
  EXPECT_EQ(forced.exit_code, kExitUsage);
  ASSERT_EQ(complaints(forced).size(), 1U) << forced.error;
  EXPECT_THAT(complaints(forced)[0], HasSubstr("parallel.device_path: "));
  const CompletedProcess compressed = train(2, "cuda", {"--set", "parallel.gradients=fp16"});
  EXPECT_EQ(compressed.exit_code, kExitUsage);
  ASSERT_EQ(complaints(compressed).size(), 1U) << compressed.error;
  EXPECT_THAT(complaints(compressed)[0], HasSubstr("gradients on GPUs are not compressed"));
}

}  // namespace
}  // namespace dlaunch
