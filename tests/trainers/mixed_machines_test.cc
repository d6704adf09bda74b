// Training on ranks whose processors round differently.
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nn/cpu/cpu_backend.h"
#include "runtime/base/temporary_folder.h"
#include "tests/support/distributed_test.h"
#include "tests/support/processor.h"
#include "trainers/training/trainer.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::json muon(const std::string& type) {
  return {{"name", "muon"}, {"learning_rate", 0.02}, {"iteration_type", type}};
}

/// Trains for two epochs on three ranks, of which the last one is as if it had an old processor.
/// Expects that all have the same network in the end, and returns what rank 0 has said.
std::string train(Communicator& world, const nlohmann::json& optimizer) {
  // oneDNN asks for this once, when its first kernel is made.
  if (world.rank() == 2)
    ::setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 1);  // NOLINT(concurrency-mt-unsafe)
  const TemporaryFolder folder;
  const TrainConfig config = read_train_config(
      {{"data",
        {{"set", "synthetic"},
         {"synthetic",
          {{"classes", 3}, {"train_size", 48}, {"test_size", 7}, {"height", 8}, {"width", 8}}}}},
       {"model", {{"name", "resnet20"}}},
       {"optimizer", optimizer},
       {"train", {{"epochs", 2}, {"global_batch_size", 12}}},
       {"output", {{"directory", folder.path()}, {"progress", "lines"}, {"tensorboard", ""}}}},
      "test");
  const auto backend = nn::make_cpu_backend();
  std::ostringstream screen;
  Trainer trainer(config, {.world = world, .backend = *backend}, {.out = screen}, {});
  (void)trainer.run();
  const std::vector<float> own = trainer.parameters().values.host_values<float>();
  std::vector<float> leaders = own;
  throw_if_error(world.broadcast(leaders, 0));
  EXPECT_EQ(own, leaders);
  return screen.str();
}

TEST(MixedMachines, HaveTheSameNetworkAtEveryValidation) {
  if (!has_avx2()) GTEST_SKIP() << "no processor here has AVX2";
  for (const std::string type : {"fp32", "bf16"})
    run_on_ranks(3, [&](Communicator& world) {
      const std::string said = train(world, muon(type));
      if (world.rank() != 0) return;
      const std::string line = "warning: after step 4 ranks have different parameters, as machines";
      EXPECT_THAT(said, HasSubstr(line));
      EXPECT_EQ(said.find("different parameters"), said.rfind("different parameters"));
    });
}

TEST(MixedMachines, AreNotToldApartWhereTheyRoundAlike) {
  run_on_ranks(3, [](Communicator& world) {
    EXPECT_THAT(train(world, {{"name", "sgd"}, {"learning_rate", 0.02}}),
                Not(HasSubstr("different parameters")));
  });
}

}  // namespace
}  // namespace dlaunch::testing
