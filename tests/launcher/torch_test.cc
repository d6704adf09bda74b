// A PyTorch script that knows nothing of dlaunch. DLAUNCH_TEST_PYTHON names a Python that has
// torch; by default python3 is asked.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

TEST(PyTorch, TrainsUnmodifiedWithGlooUnderDlaunch) {
  const char* named = std::getenv("DLAUNCH_TEST_PYTHON");  // NOLINT(concurrency-mt-unsafe)
  const std::string python = named == nullptr ? "python3" : named;
  const auto patiently = [] { return Deadline::after(std::chrono::seconds(200)); };
  const auto has_torch =
      run_command({.arguments = {"/usr/bin/env", python, "-c",
                                 "import torch.distributed as d; assert d.is_available()"}},
                  patiently());
  if (has_torch.exit_code != 0) GTEST_SKIP() << python << " has no torch: " << has_torch.error;
  const auto result = run_command(
      {.arguments = {built_program("dlaunch"), "--nproc", "4", python, DLAUNCH_TORCH_SCRIPT}},
      patiently());
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(result.out, "4 ranks agree after 5 steps\n");
}

}  // namespace
}  // namespace dlaunch::testing
