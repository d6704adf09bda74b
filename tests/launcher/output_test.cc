// What becomes of the ranks' output (--output, --only, --log-dir), and who reads stdin.
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/temporary_folder.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Strings lines_of(const std::string& text) {
  Strings lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Fails unless `text` is the chunks of `ranks` ranks, each line whole and each rank's in order.
void expect_whole_lines(const std::string& text, int ranks, int lines) {
  std::map<std::string, int> next;
  int whole = 0;
  for (const std::string& line : lines_of(text)) {
    ASSERT_EQ(line.substr(0, 6), "[rank ") << line;
    const std::string rank = line.substr(6, 1);
    EXPECT_EQ(line, "[rank " + rank + "] line " + std::to_string(next[rank]++) + " of rank " +
                        rank + " with some more text");
    ++whole;
  }
  EXPECT_EQ(whole, ranks * lines);
}

TEST(OutputPrefix, HasWholeLinesWithTheRankInFrontOnBothStreams) {
  const auto result = run_command(
      ranks_that({"out-chunks=200", "chunks=200"}, {"--nproc", "4", "--output", "prefix"}));
  EXPECT_EQ(result.exit_code, 0);
  expect_whole_lines(result.out, 4, 200);
  expect_whole_lines(result.error, 4, 200);
}

// stdout and stderr are one pipe: lines of the two must not fall into each other either.
TEST(OutputPrefix, KeepsLinesWholeWhereBothStreamsGoToOnePlace) {
  const Command job =
      ranks_that({"out-chunks=200", "chunks=200"}, {"--nproc", "4", "--output", "prefix"});
  Command shell{.arguments = {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"}};
  shell.arguments.insert(shell.arguments.end(), job.arguments.begin(), job.arguments.end());
  const auto result = run_command(shell);
  const Strings lines = lines_of(result.out);
  EXPECT_EQ(lines.size(), 2U * 4 * 200);
  for (const std::string& line : lines) {
    EXPECT_THAT(line, ::testing::MatchesRegex(
                          "\\[rank [0-3]\\] line [0-9]+ of rank [0-3] with some more text"));
  }
}

TEST(OutputPrefix, RelaysALastLineWithoutNewline) {
  const auto result = run_command(ranks_that({"zeros=3"}, {"--nproc", "1", "--output", "prefix"}));
  EXPECT_EQ(result.out, "[rank 0] " + std::string(3, '\0') + "\n");
}

TEST(Only, ShowsTheRanksNamedAndNoOthers) {
  const auto result = run_command(
      ranks_that({"out={rank} out", "err={rank} err"}, {"--nproc", "4", "--only", "1,3"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(lines_of(result.out), ::testing::UnorderedElementsAre("1 out", "3 out"));
  EXPECT_THAT(lines_of(result.error),
              ::testing::UnorderedElementsAre("[rank 1] 1 err", "[rank 3] 3 err"));
}

TEST(Only, NeverHidesTheRankThatFailed) {
  const auto result = run_command(ranks_that(
      {"out={rank} at work", "err={rank} in trouble", "only=2", "exit=5", "only=all", "pause"},
      {"--nproc", "3", "--only", "0"}));
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.error, HasSubstr("[rank 2] 2 at work\n[rank 2] 2 in trouble\n"));
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 2 "));
  EXPECT_THAT(result.out + result.error, Not(HasSubstr("1 in trouble")));
}

// A folder of its own for each test, removed afterwards.
class LogDir : public ::testing::Test {
 protected:
  std::string kept(const std::string& file) const {
    std::ifstream stream(folder_ + "/" + file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(LogDir, HasWhatEachRankWroteByteForByte) {
  const auto result =
      run_command(ranks_that({"zeros=5000", "out={rank} out", "err={rank} err", "part=end"},
                             {"--nproc", "2", "--log-dir", folder_ + "/new"}));
  EXPECT_EQ(result.exit_code, 0) << result.error;
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(kept("new/attempt-0/rank-" + rank + "/stdout"),
              std::string(5000, '\0') + rank + " out\n");
    EXPECT_EQ(kept("new/attempt-0/rank-" + rank + "/stderr"), rank + " err\nend");
  }
  EXPECT_THAT(result.out, HasSubstr("0 out\n"));
  EXPECT_THAT(result.error, HasSubstr("[rank 1] 1 err\n"));
}

TEST_F(LogDir, HasNothingLeftOfAnEarlierJob) {
  for (const std::string text : {"a long line", "short"}) {
    const auto result = run_command(
        ranks_that({"out=" + text, "err=" + text}, {"--nproc", "1", "--log-dir", folder_}));
    EXPECT_EQ(result.exit_code, 0) << result.error;
    EXPECT_EQ(kept("attempt-0/rank-0/stdout"), text + "\n");
    EXPECT_EQ(kept("attempt-0/rank-0/stderr"), text + "\n");
  }
}

TEST_F(LogDir, HasAlsoWhatTheTerminalDoesNotShow) {
  const auto result = run_command(
      ranks_that({"out={rank} out"}, {"--nproc", "2", "--only", "0", "--log-dir", folder_}));
  EXPECT_EQ(result.out, "0 out\n");
  EXPECT_EQ(kept("attempt-0/rank-1/stdout"), "1 out\n");
}

TEST_F(LogDir, ThatCannotBeMadeIsOneLineAndNothingIsStarted) {
  std::ofstream(folder_ + "/file") << "in the way";
  const auto result =
      run_command(ranks_that({"out=started"}, {"--nproc", "1", "--log-dir", folder_ + "/file"}));
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.error, ::testing::MatchesRegex("dlaunch: --log-dir: [^\n]+\n"));
}

// Ranks write 100 times what there is room for: the job ends well, and one line says what is
// missing.
TEST_F(LogDir, ThatIsFullCostsALineAndNotTheJob) {
  if (mount("dlaunch-test", folder_.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "a small file system to fill needs the right to mount one";
  }
  const auto result =
      run_command(ranks_that({"out-chunks=100000"}, {"--nproc", "2", "--log-dir", folder_}));
  umount2(folder_.c_str(), MNT_DETACH);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_EQ(lines_of(result.out).size(), 200'000U);
  const Strings lines = lines_of(result.error);
  ASSERT_EQ(lines.size(), 2U) << result.error;
  EXPECT_THAT(lines[0], HasSubstr("No space left on device"));
  EXPECT_THAT(lines[1], HasSubstr("of 4 files are incomplete"));
}

std::map<std::string, std::string> who_read(const std::string& who, const std::string& input) {
  Command command = ranks_that({"stdin"}, {"--nproc", "3", "--stdin", who});
  command.input = input;
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  std::map<std::string, std::string> bytes;
  for (const std::string& line : lines_of(result.out)) {
    bytes[line.substr(0, 1)] = line.substr(line.find("read ") + 5);
  }
  return bytes;
}

using Bytes = std::map<std::string, std::string>;

TEST(StandardInputOption, GivesItToOneRankToNoneOrACopyToAll) {
  const std::string input(300'000, 'x');
  const std::string all = "300000 bytes";
  const std::string none = "0 bytes";
  EXPECT_EQ(who_read("2", input), (Bytes{{"0", none}, {"1", none}, {"2", all}}));
  EXPECT_EQ(who_read("none", "hello"), (Bytes{{"0", none}, {"1", none}, {"2", none}}));
  EXPECT_EQ(who_read("all", input), (Bytes{{"0", all}, {"1", all}, {"2", all}}));
}

TEST(StandardInputOption, LeavesOutARankThatHasEnded) {
  Command command =
      ranks_that({"only=1", "exit=0", "only=all", "stdin"}, {"--nproc", "2", "--stdin", "all"});
  command.input = std::string(300'000, 'x');
  EXPECT_EQ(run_command(command).out, "0 read 300000 bytes\n");
}

TEST(StandardInputOption, IsWaitedForWhereOthersHaveMadeItNonBlocking) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_NONBLOCK), 0);
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  close_on_exec(writing.get());
  Command command = ranks_that({"out={rank} up", "stdin"}, {"--nproc", "2", "--stdin", "all"});
  command.arguments.insert(command.arguments.begin(),
                           {"/bin/sh", "-c", "exec \"$@\" <&" + std::to_string(ends[0]), "sh"});
  Subprocess ranks(command);
  ASSERT_TRUE(ranks.wait_for_output("0 up\n", soon()));
  ASSERT_TRUE(ranks.wait_for_output("1 up\n", soon()));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // so that it finds nothing at first
  ASSERT_EQ(write(writing.get(), "hello", 5), 5);
  writing.close();
  const auto result = ranks.finish(soon());
  EXPECT_THAT(result.out, HasSubstr("0 read 5 bytes"));
  EXPECT_THAT(result.out, HasSubstr("1 read 5 bytes"));
}

// A FIFO that the reader itself holds open for writing never ends.
Command with_endless_input(Command job) {
  const Strings shell{"/bin/sh", "-c",
                      "f=$(mktemp -u) && mkfifo \"$f\" && exec 0<>\"$f\" && rm \"$f\" && "
                      "exec \"$@\"",
                      "sh"};
  job.arguments.insert(job.arguments.begin(), shell.begin(), shell.end());
  return job;
}

TEST(StandardInputOption, ThatNeverEndsDoesNotHoldUpTheEnd) {
  const auto result =
      run_command(with_endless_input(ranks_that({"out=done"}, {"--nproc", "2", "--stdin", "all"})));
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.out, "done\ndone\n");
}

// Their grace period is longer than the test waits.
TEST(StandardInputOption, ThatNeverEndsHoldsUpNoEarlyEndEither) {
  const auto end_of = [](const Strings& actions, Strings options) {
    options.insert(options.end(), {"--nproc", "2", "--stdin", "all", "--grace", "1000"});
    const auto result = run_command(with_endless_input(ranks_that(actions, options)));
    EXPECT_FALSE(result.timed_out);
    EXPECT_THAT(result.error, Not(HasSubstr("left behind")));
    return result.exit_code;
  };
  EXPECT_EQ(end_of({"only=1", "exit=3", "only=all", "pause"},
                   {"--max-restarts", "1", "--ready-after", "0", "--restart-delay", "0"}),
            3);
  EXPECT_EQ(end_of({"pause"}, {"--timeout", "0.1"}), 124);
}

}  // namespace
}  // namespace dlaunch::testing
