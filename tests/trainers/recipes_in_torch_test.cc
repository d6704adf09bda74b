// Configurations of configs/ beside the same networks and optimizers in PyTorch. Where that is
// installed this takes most of a minute of processor time.
#include <chrono>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "tests/trainers/dtrain_test.h"

namespace dlaunch {
namespace {

class Recipes : public testing::DtrainTest {};

TEST_F(Recipes, TakeTheStepsOfNetworksAndOptimizersWrittenInTorch) {
  const char* named = std::getenv("DLAUNCH_TEST_PYTHON");  // NOLINT(concurrency-mt-unsafe)
  const auto process = testing::run_command(
      {.arguments = {"/usr/bin/env", named == nullptr ? "python3" : named,
                     SOURCE_ROOT "/tests/trainers/torch/recipes.py",
                     testing::built_program("dtrain"), SOURCE_ROOT "/configs", directory_}},
      Deadline::after(std::chrono::seconds(300)));
  if (process.exit_code == 77 || process.exit_code == 127)
    GTEST_SKIP() << "there is no python3 with torch (DLAUNCH_TEST_PYTHON)";
  EXPECT_EQ(process.exit_code, 0) << process.out << process.error;
}

}  // namespace
}  // namespace dlaunch
