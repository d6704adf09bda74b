// sequential_print under dlaunch: every line in its place, whatever stdout is.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

std::string expected_output(int ranks, int iterations) {
  std::string text;
  for (int i = 0; i < iterations; ++i) {
    if (i > 0) text += "---\n";
    for (int rank = 0; rank < ranks; ++rank) text += "Process " + std::to_string(rank) + "\n";
  }
  return text;
}

Command sequential_print(int ranks, const std::string& iterations) {
  return {.arguments = {built_program("dlaunch"), "--nproc", std::to_string(ranks),
                        built_program("sequential_print"), "--iterations", iterations}};
}

class SequentialPrint : public ::testing::TestWithParam<int> {};

TEST_P(SequentialPrint, PrintsInOrder) {
  for (const int iterations : {1, 2, 7}) {
    const auto result = run_command(sequential_print(GetParam(), std::to_string(iterations)));
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_EQ(result.out, expected_output(GetParam(), iterations));
    EXPECT_EQ(result.error, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, SequentialPrint, ::testing::Values(1, 2, 3, 8, 17, 32));

TEST(SequentialPrintAlone, WorksWithoutALauncher) {
  const auto result =
      run_command({.arguments = {built_program("sequential_print"), "--iterations", "3"}});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(result.out, expected_output(1, 3));
}

TEST(SequentialPrintAlone, PrintsNothingForNoIterations) {
  const auto result = run_command(sequential_print(3, "0"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
}

TEST(SequentialPrintAlone, RefusesWhatIsNoCount) {
  for (const char* wrong : {"-1", "many", "99999999999999999999"}) {
    const auto result =
        run_command({.arguments = {built_program("sequential_print"), "--iterations", wrong}});
    EXPECT_EQ(result.exit_code, kExitUsage);
    EXPECT_THAT(result.error,
                ::testing::MatchesRegex("sequential_print: [^\n]*--iterations[^\n]*\n"));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace dlaunch::testing
