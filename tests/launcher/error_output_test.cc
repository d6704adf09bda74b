// stderr: whole lines with the rank in front.
#include <algorithm>
#include <map>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ErrorOutput, HasWholeLinesWithTheRankInFrontAndLosesNone) {
  constexpr int kRanks = 4;
  constexpr int kLines = 200;
  const auto result = run_command(ranks_that({"chunks=" + std::to_string(kLines)}, kRanks));
  std::map<std::string, int> next;
  std::istringstream stream(result.error);
  std::string line;
  int whole = 0;
  while (std::getline(stream, line)) {
    ASSERT_EQ(line.substr(0, 6), "[rank ") << line;
    const std::string rank = line.substr(6, 1);
    EXPECT_EQ(line, "[rank " + rank + "] line " + std::to_string(next[rank]++) + " of rank " +
                        rank + " with some more text");
    ++whole;
  }
  EXPECT_EQ(whole, kRanks * kLines);
}

TEST(ErrorOutput, RelaysALastLineWithoutNewline) {
  EXPECT_EQ(run_command(ranks_that({"err=", "part=no newline"}, 1)).error,
            "[rank 0] \n[rank 0] no newline\n");
}

TEST(ErrorOutput, CutsVeryLongLinesIntoPieces) {
  const std::string text(100'000, 'y');
  const auto result = run_command(ranks_that({"err=" + text}, 1));
  std::string joined;
  std::istringstream stream(result.error);
  std::string line;
  while (std::getline(stream, line)) {
    EXPECT_LT(line.size(), 20'000U);
    joined += line.substr(std::string("[rank 0] ").size());
  }
  EXPECT_EQ(joined, text);
}

TEST(ErrorOutput, EndsALineOfWholePiecesWithoutAnEmptyOne) {
  const std::string text(65'536, 'y');
  const std::string piece = "[rank 0] " + text.substr(0, 16'384) + "\n";
  EXPECT_EQ(run_command(ranks_that({"err=" + text, "err=", "err=end"}, 1)).error,
            piece + piece + piece + piece + "[rank 0] \n[rank 0] end\n");
}

TEST(ErrorOutput, CutsBetweenCharacters) {
  std::string text = "x";  // so that none ends where a piece does
  for (int i = 0; i < 20'000; ++i) text += "\u2588";
  const auto result = run_command(ranks_that({"err=" + text}, 1));
  std::string joined;
  std::istringstream stream(result.error);
  for (std::string line; std::getline(stream, line);) {
    line.erase(0, std::string("[rank 0] ").size());
    EXPECT_EQ(line.size() % 3, joined.empty() ? 1U : 0U);
    joined += line;
  }
  EXPECT_EQ(joined, text);
}

TEST(ErrorOutput, OfAHiddenRankIsWhatStandsBehindItsProgressBar) {
  Strings bar;
  for (int i = 0; i < 100; ++i) bar.push_back("part=\rstep " + std::to_string(i) + " of 100 [===]");
  bar.insert(bar.begin(), "only=1");
  bar.insert(bar.end(), {"err=error: data missing at shard 17",
                         "err=" + std::string(4000, '-') + "!", "exit=1"});
  const auto result = run_command(ranks_that(bar, {"--nproc", "2", "--only", "0"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error, HasSubstr("[rank 1] step 99 of 100 [===]error: data missing"));
  EXPECT_THAT(result.error, Not(HasSubstr("step 98")));
  EXPECT_THAT(result.error, ContainsRegex("--- \\.\\.\\. --*!\n"));
}

TEST(ErrorOutput, OfAHiddenRankIsShownAlsoWhereItsLinesEndWithACarriageReturn) {
  const auto result = run_command(ranks_that({"only=1", "err=error: no shard 17\r", "exit=1"},
                                             {"--nproc", "2", "--only", "0"}));
  EXPECT_THAT(result.error, HasSubstr("[rank 1] error: no shard 17"));
}

TEST(ErrorOutput, ArrivesWholeHoweverMuchItIs) {
  constexpr int kLines = 20'000;
  const auto result = run_command(ranks_that({"chunks=" + std::to_string(kLines)}, 2));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 2 * kLines);
}

TEST(ErrorOutput, ThatNobodyReadsDoesNotStopTheSupervision) {
  const std::string mark = fresh_mark();
  Subprocess job(ranks_that({mark, "chunks=100000"}, {"--nproc", "2", "--timeout", "3"}));
  ASSERT_TRUE(all_there(mark, 4, soon()));  // dlaunch's two processes and the ranks
  EXPECT_TRUE(all_gone(mark, soon()));
  EXPECT_EQ(job.finish(soon()).exit_code, 124);
}

TEST(ErrorOutput, OfALeftoverChildDoesNotHoldUpTheEnd) {
  const auto result = run_command(ranks_that({"family", "err=bye"}, 2));
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 0);
}

}  // namespace
}  // namespace dlaunch::testing
