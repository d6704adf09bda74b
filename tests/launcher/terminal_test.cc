// dlaunch on a terminal: rank 0 can read it, and Ctrl-C reaches every rank once.
#include <array>
#include <csignal>

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/launcher_runs.h"
#include "tests/launcher/node_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;

// dlaunch as the foreground of a terminal of its own. The test types and sees what is shown.
class TerminalJob {
 public:
  explicit TerminalJob(const Command& command) {
    std::vector<char*> arguments;
    for (const auto& text : command.arguments) {
      arguments.push_back(const_cast<char*>(text.c_str()));
    }
    arguments.push_back(nullptr);
    const winsize size{.ws_row = 24, .ws_col = 72, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      execv(arguments[0], arguments.data());
      _exit(127);
    }
  }
  ~TerminalJob() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(terminal_);
  }
  TerminalJob(const TerminalJob&) = delete;
  TerminalJob& operator=(const TerminalJob&) = delete;

  void type(std::string_view keys) const {
    EXPECT_EQ(write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  /// Waits until there is something to read, and reads nothing.
  bool has_output(Deadline deadline) const {
    pollfd waiting{.fd = terminal_, .events = POLLIN, .revents = 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    return poll(&waiting, 1, static_cast<int>(left)) > 0;
  }
  bool wait_for(std::string_view text) {
    const Deadline deadline = soon();
    while (screen_.find(text) == std::string::npos) {
      if (!read_more(deadline)) return false;
    }
    return true;
  }
  /// The exit code, once the terminal has been closed by all.
  int finish() {
    const Deadline deadline = soon();
    while (read_more(deadline)) {
    }
    if (deadline.expired()) return -1;
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// Waits until Ctrl-Z has stopped dlaunch.
  bool becomes_stopped() const {
    int status = 0;
    return waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
  }
  bool has_ended() {
    const bool ended = waitpid(pid_, nullptr, WNOHANG) == pid_;
    if (ended) pid_ = -1;
    return ended;
  }
  void resize(unsigned short columns) const {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }
  void send_signal(int signal) const { kill(pid_, signal); }
  /// What the shell's fg does.
  void resume() const { kill(-pid_, SIGCONT); }
  pid_t pid() const { return pid_; }
  const std::string& screen() const { return screen_; }

 private:
  bool read_more(Deadline deadline) {
    if (!has_output(deadline)) return false;
    std::array<char, 4096> buffer;
    const ssize_t count = read(terminal_, buffer.data(), buffer.size());
    if (count > 0) screen_.append(buffer.data(), static_cast<std::size_t>(count));
    return count > 0;
  }

  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string screen_;
};

/// Once it has some.
std::vector<pid_t> wait_for_children(pid_t parent) {
  const Deadline deadline = soon();
  std::vector<pid_t> children;
  while (children.empty() && !deadline.expired()) children = children_of(parent);
  return children;
}

class Terminal : public ::testing::Test {
 protected:
  void SetUp() override {
    int master = -1;
    int slave = -1;
    if (openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) {
      GTEST_SKIP() << "this machine gives out no pseudo-terminals (is /dev/pts mounted?)";
    }
    close(master);
    close(slave);
  }
};

TEST_F(Terminal, CanBeReadByRankZero) {
  TerminalJob job(ranks_that({"out={rank} up", "stdin"}, 2));
  ASSERT_TRUE(job.wait_for("0 up"));
  job.type("hello\n\x04");
  EXPECT_EQ(job.finish(), 0) << job.screen();
  EXPECT_THAT(job.screen(), HasSubstr("0 read 6 bytes"));
  EXPECT_THAT(job.screen(), HasSubstr("1 read 0 bytes"));
}

TEST_F(Terminal, SendsCtrlCToEveryRankOnce) {
  // A second SIGINT would end the ranks before they come to their last words.
  TerminalJob job(ranks_that({"await=" + std::to_string(SIGINT),
                              "default=" + std::to_string(SIGINT), "out={rank} goes on"},
                             3));
  for (const char* text : {"0 waits", "1 waits", "2 waits"}) ASSERT_TRUE(job.wait_for(text));
  job.type("\x03");
  EXPECT_EQ(job.finish(), 0) << job.screen();
  for (const char* text : {"0 goes on", "1 goes on", "2 goes on"}) {
    EXPECT_THAT(job.screen(), HasSubstr(text));
  }
}

TEST_F(Terminal, ShowsWhatCtrlCDidBelowAProgressBar) {
  TerminalJob job({.arguments = {built_program("dlaunch"), "--nproc", "2", "/bin/sh", "-c",
                                 "printf '[##..]'; exec sleep 60"}});
  ASSERT_TRUE(job.wait_for("[##..][##..]"));
  job.type("\x03");
  EXPECT_EQ(job.finish(), 128 + SIGINT);
  EXPECT_THAT(job.screen(), HasSubstr("]^C\r\ndlaunch: ended by SIGINT; "));
}

// Rank 0 is started in the terminal's group, and leaves it as `timeout` or `setsid` do.
class RankZeroThatLeavesTheTerminal : public Terminal,
                                      public ::testing::WithParamInterface<const char*> {};

TEST_P(RankZeroThatLeavesTheTerminal, IsEndedWhenAnotherFails) {
  const std::string go = std::to_string(SIGUSR1);
  TerminalJob job(ranks_that({"only=0", "ignore=" + go, GetParam(), "out=0 up", "pause", "only=1",
                              "await=" + go, "exit=3"},
                             2));
  for (const char* text : {"0 up", "1 waits"}) ASSERT_TRUE(job.wait_for(text));
  job.send_signal(SIGUSR1);
  EXPECT_EQ(job.finish(), 3) << job.screen();
  EXPECT_THAT(job.screen(), HasSubstr("dlaunch: the other ranks: 0 ended by SIGTERM (collateral)"));
}

TEST_P(RankZeroThatLeavesTheTerminal, IsToldOfCtrlCOnce) {
  TerminalJob job(ranks_that({"only=0", GetParam(), "only=all", "await=" + std::to_string(SIGINT),
                              "default=" + std::to_string(SIGINT), "out={rank} goes on"},
                             2));
  for (const char* text : {"0 waits", "1 waits"}) ASSERT_TRUE(job.wait_for(text));
  job.type("\x03");
  EXPECT_EQ(job.finish(), 0) << job.screen();
  for (const char* text : {"0 goes on", "1 goes on"}) EXPECT_THAT(job.screen(), HasSubstr(text));
}

TEST_P(RankZeroThatLeavesTheTerminal, IsKilledAfterTheGracePeriod) {
  TerminalJob job(ranks_that({"ignore=" + std::to_string(SIGTERM), "only=0", GetParam(), "only=all",
                              "out={rank} is deaf", "pause"},
                             {"--nproc", "2", "--grace", "0.2"}));
  for (const char* text : {"0 is deaf", "1 is deaf"}) ASSERT_TRUE(job.wait_for(text));
  job.send_signal(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGKILL) << job.screen();
  EXPECT_THAT(job.screen(), HasSubstr("dlaunch: ended by SIGTERM; ranks: 0, 1 ended by SIGKILL"));
}

INSTANTIATE_TEST_SUITE_P(By, RankZeroThatLeavesTheTerminal,
                         ::testing::Values("own-group", "own-session"), [](const auto& test) {
                           return std::string(test.param) == "own-group" ? "AGroup" : "ASession";
                         });

// Whose group is dlaunch's own, so that only processes of it can be told.
TEST_F(Terminal, KeepsNoSignalFromTheProgramBehindTheShellOfRankZero) {
  const std::string terminate = std::to_string(SIGTERM);
  TerminalJob job(ranks_in_a_script("trap : TERM; \"$@\"", {"await=" + terminate},
                                    {"--nproc", "2", "--grace", "50"}));
  for (const char* text : {"0 waits", "1 waits"}) ASSERT_TRUE(job.wait_for(text));
  job.send_signal(SIGTERM);
  job.finish();
  EXPECT_THAT(job.screen(), HasSubstr("0 got " + terminate));
  EXPECT_THAT(job.screen(), HasSubstr("1 got " + terminate));
}

// What is typed reaches rank 0 and the guard at once, and here the launcher sees the end of rank 0
// before the guard's word. (Neither is typed, so that it is certain which comes first.)
TEST_F(Terminal, IsWhatEndedTheJobThoughRankZeroDiedOfCtrlCFirst) {
  TerminalJob job(ranks_that({"only=0", "pid", "out=0 up", "pause", "only=all",
                              "await=" + std::to_string(SIGINT), "out={rank} goes on"},
                             3));
  for (const char* text : {"0 up", "1 waits", "2 waits"}) ASSERT_TRUE(job.wait_for(text));
  const auto launchers = children_of(job.pid());
  ASSERT_EQ(launchers.size(), 1U);
  const pid_t rank_zero = std::stoi(job.screen().substr(job.screen().find("0 pid ") + 6));
  kill(launchers[0], SIGSTOP);
  kill(rank_zero, SIGINT);
  EXPECT_TRUE(becomes_zombie(rank_zero, soon()));
  sigval from_terminal{};
  from_terminal.sival_int = 1;  // as the guard says it
  sigqueue(launchers[0], SIGINT, from_terminal);
  kill(launchers[0], SIGCONT);
  EXPECT_EQ(job.finish(), 128 + SIGINT) << job.screen();
  for (const char* text : {"1 goes on", "2 goes on"}) EXPECT_THAT(job.screen(), HasSubstr(text));
  EXPECT_THAT(job.screen(),
              HasSubstr("dlaunch: ended by SIGINT; ranks: 0 ended by SIGINT; 1, 2 finished"));
}

TEST_F(Terminal, ShowsWhatRanksAreDoingAtCtrlBackslashAndGoesOn) {
  TerminalJob job(ranks_that({"out={rank} up", "await=" + std::to_string(SIGTERM)}, 2));
  for (const char* text : {"0 waits", "1 waits"}) ASSERT_TRUE(job.wait_for(text));
  job.type("\x1c");
  EXPECT_TRUE(job.wait_for("what the ranks are doing (SIGQUIT)"));
  EXPECT_TRUE(job.wait_for("ranks 0, 1: has not come to"));
  job.type("\x03");
  EXPECT_EQ(job.finish(), 130) << job.screen();
}

TEST_F(Terminal, IsTheStderrOfTheFirstRankShown) {
  TerminalJob job(ranks_that({"tty", "err={rank} says this"}, 2));
  EXPECT_EQ(job.finish(), 0) << job.screen();
  EXPECT_THAT(job.screen(), HasSubstr("0 writes to a terminal of 62 columns\r\n"));
  EXPECT_THAT(job.screen(), HasSubstr("1 writes to no terminal\r\n"));
  EXPECT_THAT(job.screen(), HasSubstr("[rank 0] 0 says this\r\n"));
  EXPECT_THAT(job.screen(), HasSubstr("[rank 1] 1 says this\r\n"));
}

// Its colour must not go on in what others write.
TEST_F(Terminal, EndsTheColourOfABarThatDoesNotFit) {
  const std::string one = std::to_string(SIGUSR1);
  TerminalJob job(
      ranks_that({"part=\r\x1b[32m" + std::string(100, '=') + "\x1b[0m", "await=" + one}, 1));
  ASSERT_TRUE(job.wait_for("[rank 0] \x1b[32m" + std::string(62, '=') + "\x1b[0m"));
  ASSERT_TRUE(job.wait_for("0 waits"));
  job.send_signal(SIGUSR1);
  EXPECT_EQ(job.finish(), 0) << job.screen();
}

// Without stdin, rank 0 is in no group that the terminal tells: dlaunch does, when the size is set.
TEST_F(Terminal, TellsTheFirstRankShownWhenItsSizeChanges) {
  TerminalJob job(ranks_that({"only=0", "await=" + std::to_string(SIGWINCH), "tty"},
                             {"--nproc", "2", "--stdin", "none"}));
  ASSERT_TRUE(job.wait_for("0 waits"));
  job.resize(131);
  EXPECT_EQ(job.finish(), 0) << job.screen();
  EXPECT_THAT(job.screen(), HasSubstr("0 writes to a terminal of 121 columns\r\n"));
}

// More than a terminal holds at a time, and the rank is gone before all is read.
TEST_F(Terminal, LosesNothingOfTheStderrOfTheFirstRank) {
  TerminalJob job(ranks_that({"chunks=500"}, {"--nproc", "1"}));
  EXPECT_EQ(job.finish(), 0) << job.screen().size();
  for (int line = 0; line < 500; ++line) {
    ASSERT_THAT(job.screen(), HasSubstr("[rank 0] line " + std::to_string(line) + " of rank 0"));
  }
}

// A terminal that polls as writable may have room for a byte, and a write then waits for more.
TEST_F(Terminal, ThatNobodyReadsHoldsUpNeitherTheTimeoutNorTheGuard) {
  const Command job = ranks_that({"only=0", "chunks=100000", "only=1", "pause"},
                                 {"--nproc", "2", "--timeout", "0.3", "--grace", "0.1"});
  std::vector<std::string> words = job.arguments;
  {
    TerminalJob unread({.arguments = words});
    const auto launchers = wait_for_children(unread.pid());
    ASSERT_EQ(launchers.size(), 1U);
    const Deadline deadline = soon();
    ASSERT_TRUE(unread.has_output(deadline));  // so the ranks have begun
    while (!children_of(launchers[0]).empty()) ASSERT_FALSE(deadline.expired());
    // Now it waits for its reader, and is killed; the guard must not wait, too.
    kill(launchers[0], SIGKILL);
    while (!unread.has_ended()) ASSERT_FALSE(deadline.expired());
  }
}

TEST_F(Terminal, StopsNoRankThatWritesToIt) {
  const Command job = ranks_that({"out={rank} wrote"}, 2);
  std::string line = "stty tostop; exec";
  for (const std::string& word : job.arguments) line += " '" + word + "'";
  TerminalJob terminal({.arguments = {"/bin/sh", "-c", line}});
  EXPECT_EQ(terminal.finish(), 0) << terminal.screen();
  EXPECT_THAT(terminal.screen(), HasSubstr("0 wrote"));
  EXPECT_THAT(terminal.screen(), HasSubstr("1 wrote"));
}

TEST_F(Terminal, StopsAndContinuesTheJob) {
  TerminalJob job(ranks_that({"await=" + std::to_string(SIGCONT)}, 2));
  ASSERT_TRUE(job.wait_for("0 waits"));
  ASSERT_TRUE(job.wait_for("1 waits"));
  job.type("\x1a");
  EXPECT_TRUE(job.becomes_stopped());
  job.resume();
  EXPECT_EQ(job.finish(), 0) << job.screen();
  EXPECT_THAT(job.screen(), HasSubstr("0 got "));
  EXPECT_THAT(job.screen(), HasSubstr("1 got "));
}

TEST_F(Terminal, ShowsTheProgressBarOfRankZeroBelowTheLinesOfOthers) {
  const std::string one = std::to_string(SIGUSR1);
  const std::string two = std::to_string(SIGUSR2);
  TerminalJob job(
      ranks_that({"only=0", "ignore=" + two, "part=\r 10%", "part=\r 20%", "await=" + one,
                  "part=\r 99%", "err=", "only=1", "ignore=" + one, "await=" + two, "err=a line"},
                 2));
  ASSERT_TRUE(job.wait_for("[rank 0]  20%"));  // though rank 0 has not ended the line
  ASSERT_TRUE(job.wait_for("0 waits"));
  ASSERT_TRUE(job.wait_for("1 waits"));
  job.send_signal(SIGUSR2);
  EXPECT_TRUE(job.wait_for("\r\x1b[K[rank 1] a line\r\n[rank 0]  20%"));
  job.send_signal(SIGUSR1);
  EXPECT_EQ(job.finish(), 0) << job.screen();
  EXPECT_THAT(job.screen(), HasSubstr("\r\x1b[K[rank 0]  99%\r\n"));
}

// The node before this one is lost, and one with more ranks takes its place.
TEST_F(Terminal, ShowsTheProgressBarOfItsFirstRankWhateverItsNumber) {
  Nodes nodes("2");
  TerminalJob job(nodes.command({"--nproc", "1", "--node-rank", "1", "--max-restarts", "1",
                                 "--ready-after", "0", "--restart-delay", "0"},
                                {built_program("test_rank"), "part=\r {rank}0 %", "pause"}));
  ASSERT_TRUE(job.wait_for("waiting for 1 of 2 nodes"));
  nodes.start_ranks({"--nproc", "1", "--node-rank", "0"}, {"out=up", "pause"});
  ASSERT_TRUE(job.wait_for("[rank 1]  10 %")) << job.screen();
  nodes[0].send_signal(SIGKILL);
  ASSERT_TRUE(job.wait_for("once 1 more node has come")) << job.screen();  // its rank is free
  nodes.start_ranks({"--nproc", "3", "--node-rank", "0"}, {"pause"});
  EXPECT_TRUE(job.wait_for("[rank 3]  30 %")) << job.screen();
  job.send_signal(SIGTERM);
  EXPECT_EQ(job.finish(), 128 + SIGTERM) << job.screen();
}

TEST_F(Terminal, CanBeReadByAllRanks) {
  TerminalJob job(ranks_that({"out={rank} up", "stdin"}, {"--nproc", "2", "--stdin", "all"}));
  ASSERT_TRUE(job.wait_for("0 up"));
  ASSERT_TRUE(job.wait_for("1 up"));
  job.type("hello\n\x04");
  EXPECT_EQ(job.finish(), 0) << job.screen();
  EXPECT_THAT(job.screen(), HasSubstr("0 read 6 bytes"));
  EXPECT_THAT(job.screen(), HasSubstr("1 read 6 bytes"));
}

}  // namespace
}  // namespace dlaunch::testing
