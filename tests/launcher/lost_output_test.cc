// Readers of dlaunch's output that are slow or gone, and disks that are full: nothing is lost
// silently.
#include <csignal>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/store_logger.h"
#include "launcher/output/output_sink.h"
#include "runtime/base/temporary_folder.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// The job as "$@" of a shell script.
Command in_shell(const std::string& script, const Command& job) {
  Command shell{.arguments = {"/bin/sh", "-c", script, "sh"}};
  shell.arguments.insert(shell.arguments.end(), job.arguments.begin(), job.arguments.end());
  return shell;
}

Command prefixed(const Strings& actions, int ranks, Strings options = {}) {
  options.insert(options.end(), {"--nproc", std::to_string(ranks), "--output", "prefix"});
  return ranks_that(actions, options);
}

constexpr const char* kTellsItsCode = "{ \"$@\"; echo code $? >&2; }";

// With a stderr that nobody reads and that has no room left, though one that may block.
[[noreturn]] void log_into_a_full_pipe() {
  alarm(20);  // ends a log that waits
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) _exit(2);
  const std::string some(4096, 'x');
  while (write(ends[1], some.data(), some.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, 0);
  dup2(ends[1], STDERR_FILENO);
  make_store_logger()->warn("refused a stranger");
  _exit(0);
}

TEST(StoreLogger, DoesNotWaitForAReader) {
  EXPECT_EXIT(log_into_a_full_pipe(), ::testing::ExitedWithCode(0), "");
}

TEST(StoreLogger, WritesWholeLines) {
  EXPECT_EXIT(
      {
        make_store_logger()->warn("refused a stranger");
        _exit(0);
      },
      ::testing::ExitedWithCode(0), "\\[dlaunch\\] \\[warning\\] refused a stranger\n");
}

// Whoever pauses because of pending() must hear of every way in which it becomes less.
TEST(OutputSink, TellsWhenAnybodyHasMadeItWriteSomething) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  EventLoop loop;
  int told = 0;
  {
    OutputSink sink(loop, ends[1], [&] { ++told; });
    sink.add_bytes(std::string(1 << 20, 'x'));
    sink.write();
    EXPECT_EQ(told, 1);
    EXPECT_GT(sink.pending(), 0U);
    std::string buffer(1 << 20, ' ');
    while (sink.pending() > 0) {
      while (read(ends[0], buffer.data(), buffer.size()) > 0) {
      }
      const int before = told;
      sink.write();  // though the loop would have done it
      EXPECT_EQ(told, before + 1);
    }
    EXPECT_EQ(sink.error(), 0);
  }
  close(ends[0]);
  close(ends[1]);
}

// No more than dlaunch keeps for a slow reader, so that the ranks have ended when it comes; and it
// comes later than a writer with a time limit would have waited.
TEST(OutputSink, FitsCharactersAsTerminalsCountThem) {
  EXPECT_EQ(fitting("12345", 3), "123");
  EXPECT_EQ(fitting("\u2588\u2588\u2588", 2), "\u2588\u2588");
  EXPECT_EQ(fitting("\u4e2d\u6587\u5b57", 5), "\u4e2d\u6587") << "two columns each";
  EXPECT_EQ(fitting("e\u0301f", 1), "e\u0301") << "an accent takes none";
  EXPECT_EQ(fitting("\x1b[32m12\x1b[0m3", 2), "\x1b[32m12\x1b[0m");
  EXPECT_EQ(fitting("\xff\xfe"
                    "34",
                    3),
            "\xff\xfe"
            "3")
      << "what is no character";
  EXPECT_EQ(fitting("\x1b[3", 2), "\x1b[3");
  EXPECT_EQ(fitting("", 0), "");
}

TEST(LateReader, GetsAllOfBothStreams) {
  Subprocess to_stdout(in_shell(std::string(kTellsItsCode) + " | { sleep 6; wc -l; }",
                                prefixed({"out-chunks=8000"}, 2)));
  Subprocess to_stderr(
      in_shell("{ \"$@\"; } 2>&1 >/dev/null | { sleep 6; grep -c -e some.more -e 'rank 0 (pid'; }",
               ranks_that({"chunks=15000", "exit=3"}, 1)));
  const auto out = to_stdout.finish(soon());
  EXPECT_EQ(out.out, "16000\n");
  EXPECT_THAT(out.error, HasSubstr("code 0"));
  EXPECT_EQ(to_stderr.finish(soon()).out, "15001\n");
}

// A FIFO that is open for reading, and that nobody reads.
TEST(AbsentReader, IsWaitedForUntilASignalAndThenTheLossIsTold) {
  Subprocess job(
      in_shell("f=$(mktemp -u) && mkfifo \"$f\" && exec 1<>\"$f\" && rm \"$f\" && "
               "exec \"$@\"",
               prefixed({"err=up", "out-chunks=3000"}, 1)));
  ASSERT_TRUE(job.wait_for_error("up\n", soon()));
  const auto launchers = children_of(job.pid());
  ASSERT_EQ(launchers.size(), 1U);
  const Deadline deadline = soon();
  while (!children_of(launchers[0]).empty()) ASSERT_FALSE(deadline.expired());
  job.send_signal(SIGTERM);
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.error, ::testing::ContainsRegex(
                                "dlaunch: [0-9]+ bytes of output are dropped: nobody reads them"));
}

TEST(GoneReader, EndsARankThatWritesForNobodyElse) {
  const Command job = prefixed({"default=" + std::to_string(SIGPIPE), "out-chunks=100000"}, 1);
  const auto result = run_command(in_shell(std::string(kTellsItsCode) + " | head -1", job));
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.out, "[rank 0] line 0 of rank 0 with some more text\n");
  EXPECT_THAT(result.error, HasSubstr("was killed by SIGPIPE"));
  EXPECT_THAT(result.error, HasSubstr("code 141"));
}

TEST(GoneReader, LeavesARankAloneWhoseOutputIsKept) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  const auto result =
      run_command(in_shell(std::string(kTellsItsCode) + " | head -1",
                           prefixed({"out-chunks=50000"}, 1, {"--log-dir", folder})));
  EXPECT_THAT(result.error, HasSubstr("code 0"));
  std::ifstream kept(folder + "/attempt-0/rank-0/stdout");
  const std::string text{std::istreambuf_iterator<char>(kept), {}};
  EXPECT_THAT(text, EndsWith("line 49999 of rank 0 with some more text\n"));
}

TEST(FullDisk, UnderStdoutIsOneLineAndAnExitCodeUnlessTheJobHadOne) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  const std::string script = "exec \"$@\" > /dev/full";
  auto result = run_command(in_shell(script, prefixed({"out-chunks=1000"}, 2)));
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_EQ(result.error,
            "dlaunch: stdout: No space left on device; the job goes on, what cannot be written is "
            "lost\n");
  result = run_command(in_shell(script, prefixed({"out=something", "exit=3"}, 1)));
  EXPECT_EQ(result.exit_code, 3);
}

TEST(FullDisk, IsAFailureOfCommandsThatOnlyPrint) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  for (Strings words : {Strings{"--help"},
                        {"completion", "bash"},
                        {"doctor"},
                        {"--nproc", "1", "--dry-run", "true"}}) {
    SCOPED_TRACE(words.front());
    words.insert(words.begin(), built_program("dlaunch"));
    const auto result = run_command(in_shell("exec \"$@\" >/dev/full", {.arguments = words}));
    EXPECT_EQ(result.exit_code, 125);
    EXPECT_EQ(result.error, "dlaunch: cannot write to standard output: No space left on device\n");
  }
}

TEST(FileSizeLimit, CostsALineAndNotTheJob) {
  const TemporaryFolder temporary;
  const std::string& folder = temporary.path();
  const auto result =
      run_command(in_shell("ulimit -f 10; exec \"$@\"",
                           ranks_that({"out-chunks=1000"}, {"--nproc", "1", "--log-dir", folder})));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 1000);
  EXPECT_THAT(result.error, HasSubstr("File too large; the job goes on"));
  EXPECT_THAT(result.error, HasSubstr("1 of 2 files are incomplete"));
}

}  // namespace
}  // namespace dlaunch::testing
