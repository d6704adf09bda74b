// A PyTorch script that knows nothing of dlaunch. DLAUNCH_TEST_PYTHON names a Python that has
// torch; by default python3 is asked.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

// Has a Python with torch.
class PyTorch : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("DLAUNCH_TEST_PYTHON");  // NOLINT(concurrency-mt-unsafe)
    python_ = named == nullptr ? "python3" : named;
    const auto has_torch =
        run_command({.arguments = {"/usr/bin/env", python_, "-c",
                                   "import torch.distributed as d; assert d.is_available()"}},
                    patiently());
    if (has_torch.exit_code != 0) GTEST_SKIP() << python_ << " has no torch";
  }
  static Deadline patiently() { return Deadline::after(std::chrono::seconds(200)); }
  const std::string& python() const { return python_; }

 private:
  std::string python_;
};

TEST_F(PyTorch, TrainsUnmodifiedWithGlooUnderDlaunch) {
  const auto result = run_command(
      {.arguments = {built_program("dlaunch"), "--nproc", "4", python(), DLAUNCH_TORCH_SCRIPT}},
      patiently());
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(result.out, "4 ranks agree after 5 steps\n");
}

TEST_F(PyTorch, TellsItsErrorByItsRecord) {
  const std::string script =
      "from torch.distributed.elastic.multiprocessing.errors import record\n"
      "@record\n"
      "def main():\n"
      "    raise ValueError('upside down')\n"
      "main()\n";
  // Nothing of it comes on stderr.
  const auto result =
      run_command({.arguments = {built_program("dlaunch"), "--nproc", "1", "/bin/sh", "-c",
                                 "exec \"$0\" -c \"$1\" 2>/dev/null", python(), script}},
                  patiently());
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error,
              ::testing::HasSubstr("dlaunch: probable cause: a Python exception: ValueError: "
                                   "upside down (<string>:4, in main)\n"));
}

}  // namespace
}  // namespace dlaunch::testing
