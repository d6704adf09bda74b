// Ending a job: signals, grace period, leftover processes, and dlaunch itself being killed.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/exit_codes.h"
#include "runtime/base/temporary_folder.h"
#include "tests/launcher/launcher_runs.h"
#include "tests/support/sanitized.h"

namespace dlaunch::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

std::string number(int signal) {
  return std::to_string(signal);
}

TEST(GracePeriod, EndsRanksThatIgnoreSigterm) {
  const std::string go = number(SIGUSR1);
  Subprocess job(ranks_that({"only=1", "await=" + go, "exit=5", "only=all", "ignore=" + go,
                             "ignore=" + number(SIGTERM), "out={rank} is deaf", "pause"},
                            {"--nproc", "3", "--grace", "0.2"}));
  for (const char* text : {"0 is deaf\n", "1 waits\n", "2 is deaf\n"}) {
    ASSERT_TRUE(job.wait_for_output(text, soon()));
  }
  job.send_signal(SIGUSR1);
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.error,
              HasSubstr("0, 2 ended by SIGKILL (collateral) (the grace period was not enough)"));
}

TEST(GracePeriod, EndsRanksThatHaveLeftTheirProcessGroup) {
  Subprocess job(ranks_that({"leave-group", "only=1", "ignore=" + number(SIGTERM), "only=all",
                             "out={rank} is up", "pause"},
                            {"--nproc", "2", "--grace", "2"}));
  ASSERT_TRUE(job.wait_for_output("0 is up\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 is up\n", soon()));
  job.send_signal(SIGTERM);
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.error,
              ::testing::AllOf(HasSubstr("0 ended by SIGTERM"), HasSubstr("1 ended by SIGKILL")));
}

TEST(GracePeriod, LetsAStoppedRankTidyUp) {
  const TemporaryFolder folder;
  const std::string pid = folder.path() + "/pid";
  const std::string script =
      "if [ $RANK = 0 ]; then echo $$ > " + pid +
      "; trap 'echo tidied up >&2; exit 0' TERM; kill -STOP $$; while :; do sleep 0.1; done; fi\n"
      "until grep -q '^State:.T' /proc/$(cat " +
      pid +
      ")/status; do sleep 0.1; done\n"
      "exit 5";
  const auto result = run_command({.arguments = {built_program("dlaunch"), "--nproc", "2",
                                                 "--grace", "50", "--", "/bin/sh", "-c", script}});
  EXPECT_EQ(result.exit_code, 5) << result.error;
  EXPECT_THAT(result.error, HasSubstr("[rank 0] tidied up\n"));
}

// A shell that dies of the signal, and leaves its program behind.
class BehindAShell : public ::testing::Test {
 protected:
  static CompletedProcess finish(Subprocess& job) {
    auto result = job.finish(soon());
    EXPECT_FALSE(result.timed_out);
    return result;
  }
  // What the launcher has started, which the guard has.
  static std::vector<pid_t> shells_of(const Subprocess& job) {
    const auto launchers = children_of(job.pid());
    return launchers.size() == 1 ? children_of(launchers[0]) : std::vector<pid_t>();
  }
  static Strings one_rank(const char* grace) { return {"--nproc", "1", "--grace", grace}; }
  // In which it is certain that the grace period was not waited for.
  const Strings long_grace_ = one_rank("1000");
  const std::string terminate_ = number(SIGTERM);
};

TEST_F(BehindAShell, AProgramHasTheGracePeriod) {
  Subprocess job(ranks_in_a_script(
      kOnlyTheProgram, {"await=" + terminate_, "await=" + number(SIGUSR1)}, long_grace_));
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  const auto shells = shells_of(job);
  ASSERT_EQ(shells.size(), 1U);
  job.send_signal(SIGTERM);
  ASSERT_TRUE(job.wait_for_output("0 got " + terminate_ + "\n0 waits\n", soon()));
  // Of two signals at once the shell would die of the one with the lower number.
  ASSERT_TRUE(becomes_true([&] { return kill(shells[0], 0) != 0; }, soon()));
  job.send_signal(SIGUSR1);
  const auto result = finish(job);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.out, HasSubstr("0 got " + number(SIGUSR1)));
  EXPECT_EQ(result.error, "dlaunch: ended by SIGTERM; ranks: 0 ended by SIGTERM\n");
}

// As `timeout` does, or a shell with job control.
TEST_F(BehindAShell, AProgramIsToldAlsoInAGroupOfItsOwn) {
  Subprocess job(ranks_in_a_script(kOnlyTheProgram,
                                   {"own-group", "await=" + terminate_, "err=saved"}, long_grace_));
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  job.send_signal(SIGTERM);
  const auto result = finish(job);
  EXPECT_THAT(result.out, HasSubstr("0 got " + terminate_));
  EXPECT_THAT(result.error, HasSubstr("[rank 0] saved\n"));
}

TEST_F(BehindAShell, AProgramIsToldWhoseShellWasKilled) {
  Subprocess job(ranks_in_a_script(kOnlyTheProgram, {"await=" + terminate_}, long_grace_));
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  const auto shells = shells_of(job);
  ASSERT_EQ(shells.size(), 1U);
  kill(shells[0], SIGKILL);
  const auto result = finish(job);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.out, HasSubstr("0 got " + terminate_));
}

TEST_F(BehindAShell, AProgramIsKilledAfterTheGracePeriod) {
  Subprocess job(ranks_in_a_script(kOnlyTheProgram, {"ignore=" + terminate_, "out=deaf", "pause"},
                                   one_rank("1")));
  ASSERT_TRUE(job.wait_for_output("deaf\n", soon()));
  job.send_signal(SIGTERM);
  const auto result = finish(job);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(result.error,
            "dlaunch: ended by SIGTERM; ranks: 0 ended by SIGTERM\n"
            "dlaunch: what ranks had left behind was killed: the grace period was not enough\n");
}

TEST_F(BehindAShell, AProgramIsKilledAtOnceWithoutAGracePeriod) {
  Subprocess job(ranks_in_a_script(kOnlyTheProgram, {"ignore=" + terminate_, "out=deaf", "pause"},
                                   one_rank("0")));
  ASSERT_TRUE(job.wait_for_output("deaf\n", soon()));
  job.send_signal(SIGTERM);
  EXPECT_THAT(finish(job).exit_code, ::testing::AnyOf(128 + SIGTERM, 128 + SIGKILL));
}

TEST_F(BehindAShell, AProgramIsKilledAtTheSecondSigint) {
  const std::string mark = fresh_mark();
  Subprocess job(ranks_in_a_script(
      kOnlyTheProgram,
      {mark, "ignore=" + terminate_, "ignore=" + number(SIGINT), "out=deaf", "pause"},
      long_grace_));
  ASSERT_TRUE(job.wait_for_output("deaf\n", soon()));
  job.send_signal(SIGTERM);
  const Deadline deadline = soon();
  while (!processes_with(mark).empty()) {  // for half a second it is the same one
    job.send_signal(SIGINT);
    ASSERT_FALSE(deadline.expired());
  }
  EXPECT_THAT(finish(job).error, Not(HasSubstr("grace")));
}

TEST_F(BehindAShell, NothingIsWaitedForWhenAllRanksHaveFinished) {
  const auto result =
      run_command(ranks_in_a_script("\"$@\" &", {"ignore=" + terminate_, "pause"}, long_grace_));
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 0);
}

TEST_F(BehindAShell, DaemonsAreNotWaitedFor) {
  const std::string mark = fresh_mark();
  Subprocess job(ranks_that(
      {mark, "ignore=" + terminate_, "family", "default=" + terminate_, "out=up", "pause"},
      long_grace_));
  ASSERT_TRUE(job.wait_for_output("up\n", soon()));
  job.send_signal(SIGTERM);
  EXPECT_EQ(finish(job).exit_code, 128 + SIGTERM);
  EXPECT_TRUE(processes_with(mark).empty());
}

// As a user's debugger does that waits at its prompt.
TEST(TracedRank, WhoseEndItsTracerHoldsKeepsNobodyBusy) {
  Subprocess job(ranks_that({"traceable", "pid", "pause"}, 1));
  ASSERT_TRUE(job.wait_for_output("0 pid ", soon()));
  ASSERT_TRUE(job.wait_for_output("\n", soon()));
  const pid_t rank = std::stoi(job.output().substr(std::string("0 pid ").size()));
  if (ptrace(PTRACE_SEIZE, rank, nullptr, nullptr) != 0) GTEST_SKIP() << "it may not be traced";
  kill(rank, SIGKILL);
  EXPECT_TRUE(job.wait_for_error("dlaunch: rank 0 (pid " + std::to_string(rank) +
                                     ") has ended; this counts when launcher_test (pid " +
                                     std::to_string(getpid()) + "), which traces it, lets go\n",
                                 soon()));
  EXPECT_EQ(waitpid(rank, nullptr, __WALL), rank);
  EXPECT_EQ(job.finish(soon()).exit_code, 128 + SIGKILL);
}

// Two ranks end while the launcher is stopped, so that it sees both ends at once.
class TwoFailures : public ::testing::Test {
 protected:
  // Rank 1 ends with `first`, then rank 0 with `second`.
  static CompletedProcess run(int first, int second) {
    Subprocess job(
        ranks_that({"pid", "only=1", "await=" + number(SIGUSR1), "exit=" + number(first), "only=0",
                    "await=" + number(SIGUSR1), "exit=" + number(second), "only=2", "pause"},
                   3));
    EXPECT_TRUE(job.wait_for_output("0 waits\n", soon()));
    EXPECT_TRUE(job.wait_for_output("1 waits\n", soon()));
    const auto launchers = children_of(job.pid());
    EXPECT_EQ(launchers.size(), 1U);
    for (const pid_t launcher : launchers) kill(launcher, SIGSTOP);
    for (const char* name : {"1 pid ", "0 pid "}) {
      const auto place = job.output().find(name);
      const pid_t pid = std::stoi(job.output().substr(place + 6));
      kill(pid, SIGUSR1);
      EXPECT_TRUE(becomes_zombie(pid, soon()));
    }
    for (const pid_t launcher : launchers) kill(launcher, SIGCONT);
    return job.finish(soon());
  }
};

TEST_F(TwoFailures, AreJudgedInTheOrderInWhichTheRanksEnded) {
  const auto result = run(7, 9);
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 1 "));
}

TEST_F(TwoFailures, AreBlamedOnTheCauseRatherThanOnARankThatLostItsPeer) {
  const auto result = run(kExitCommunication, 9);
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 0 "));
}

TEST(Leftovers, ThatCouldNotBeFoundAreAReasonNotToStart) {
  const std::string in_namespace =
      "exec unshare --user --map-root-user --mount /bin/sh -c 'mount -t tmpfs none /proc || exit "
      "77; "
      "exec \"$@\"' sh \"$@\"";
  Command job = ranks_that({"out=started"}, {"--nproc", "1"});
  const Strings shell{"/bin/sh", "-c", in_namespace, "sh"};
  job.arguments.insert(job.arguments.begin(), shell.begin(), shell.end());
  const auto result = run_command(job);
  if (result.exit_code == 1 || result.exit_code == 77) {
    GTEST_SKIP() << "a /proc that is none needs the right to mount: " << result.error;
  }
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_EQ(result.out, "");
  // ThreadSanitizer's runtime misses /proc, too, and says so first.
  EXPECT_THAT(result.error, EndsWith("dlaunch: what ranks leave behind cannot be found: /proc is "
                                     "not mounted, or is that of another PID namespace\n"));
}

TEST(Leftovers, OfRanksThatSucceededAreEnded) {
  const std::string mark = fresh_mark();
  const auto result = run_command(ranks_that({mark, "family"}, 3));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(processes_with(mark).empty());
}

TEST(Leftovers, InSessionsOfTheirOwnAreEndedWhenARankFails) {
  const std::string mark = fresh_mark();
  const auto result =
      run_command(ranks_that({mark, "family", "only=1", "exit=3", "only=all", "pause"}, 3));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(processes_with(mark).empty());
}

// A shell script that becomes dlaunch leaves it the children that it had.
class ExecutedByAShell : public ::testing::Test {
 protected:
  ~ExecutedByAShell() override {
    for (const pid_t pid : processes_with(sidecar_)) kill(pid, SIGKILL);
  }

  // The test rank, paused, in the background, and the job in the shell's place.
  Command with_sidecar(const Command& job) const {
    const std::string script = "\"$0\" " + sidecar_ + " pause > /dev/null 2>&1 & exec \"$@\"";
    Command shell{.arguments = {"/bin/sh", "-c", script, built_program("test_rank")}};
    shell.arguments.insert(shell.arguments.end(), job.arguments.begin(), job.arguments.end());
    return shell;
  }

  const std::string sidecar_ = fresh_mark();
};

TEST_F(ExecutedByAShell, LeavesItsOtherChildrenAlone) {
  const std::string mark = fresh_mark();
  const auto result = run_command(with_sidecar(ranks_that({mark, "family", "exit=3"}, 2)));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(processes_with(mark).empty());
  EXPECT_EQ(processes_with(sidecar_).size(), 1U);
}

TEST_F(ExecutedByAShell, LeavesThemAloneAlsoIfItsLauncherIsKilled) {
  const std::string mark = fresh_mark();
  Subprocess job(with_sidecar(ranks_that({mark, "family", "out=up", "pause"}, 1)));
  ASSERT_TRUE(job.wait_for_output("up\n", soon()));
  for (const pid_t child : children_of(job.pid())) {
    const auto others = processes_with(sidecar_);
    if (std::ranges::find(others, child) == others.end()) kill(child, SIGKILL);
  }
  EXPECT_EQ(job.finish(soon()).exit_code, 125);
  EXPECT_TRUE(processes_with(mark).empty());
  EXPECT_EQ(processes_with(sidecar_).size(), 1U);
}

// As with `exec > >(tee log)`: the reader is a child, too, and reads on after dlaunch's end.
TEST_F(ExecutedByAShell, LosesNoOutputThatAChildOfTheShellReads) {
  const TemporaryFolder temporary;
  const std::string log = temporary.path() + "/log";
  const Command job = ranks_that({"out-chunks=20000"}, 2);
  Command shell{.arguments = {"/bin/sh", "-c",
                              "f=\"$0.fifo\"; mkfifo \"$f\"; "
                              "{ cat > \"$0\"; sleep 0.2; echo all >> \"$0\"; } < \"$f\" & "
                              "exec \"$@\" > \"$f\"",
                              log}};
  shell.arguments.insert(shell.arguments.end(), job.arguments.begin(), job.arguments.end());
  EXPECT_EQ(run_command(shell).exit_code, 0);
  const auto content = [&] {
    std::ifstream file(log);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  EXPECT_TRUE(becomes_true([&] { return content().ends_with("all\n"); }, soon()));
  const std::string text = content();
  EXPECT_EQ(std::ranges::count(text, '\n'), 2 * 20000 + 1);
}

class ForwardedSignal : public ::testing::TestWithParam<int> {};

TEST_P(ForwardedSignal, ReachesEveryRank) {
  const std::string signal = number(GetParam());
  Subprocess job(ranks_that({"await=" + signal}, 2));
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 waits\n", soon()));
  job.send_signal(GetParam());
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("0 got " + signal));
  EXPECT_THAT(result.out, HasSubstr("1 got " + signal));
}

INSTANTIATE_TEST_SUITE_P(All, ForwardedSignal,
                         ::testing::Values(SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2));

TEST(SignalToTheJob, GivesTheExitCodeIfRanksDieOfIt) {
  Subprocess job(ranks_that({"out={rank} up", "pause"}, 2));
  ASSERT_TRUE(job.wait_for_output("0 up\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 up\n", soon()));
  job.send_signal(SIGINT);
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_EQ(result.error, "dlaunch: ended by SIGINT; ranks: 0, 1 ended by SIGINT\n");
}

TEST(SignalToTheJob, KillsAtTheSecondSigint) {
  Subprocess job(ranks_that({"await=" + number(SIGINT), "out={rank} goes on", "pause"},
                            {"--nproc", "2", "--grace", "50"}));
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 waits\n", soon()));
  job.send_signal(SIGINT);
  ASSERT_TRUE(job.wait_for_output("0 goes on\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 goes on\n", soon()));
  std::this_thread::sleep_for(std::chrono::seconds(1));  // or it is taken for the first one
  job.send_signal(SIGINT);
  EXPECT_EQ(job.finish(soon()).exit_code, 128 + SIGKILL);
}

// As that of `timeout --signal INT` or of `pkill -INT dlaunch`: with one for the process and one
// for its thread, both are there when it looks.
TEST(SignalToTheJob, ThatComesTwiceAtOnceIsOne) {
  Subprocess job(ranks_that({"await=" + number(SIGINT), "out={rank} tidies up"},
                            {"--nproc", "2", "--grace", "50"}));
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 waits\n", soon()));
  const auto launchers = children_of(job.pid());
  ASSERT_EQ(launchers.size(), 1U);
  kill(launchers[0], SIGSTOP);
  kill(launchers[0], SIGINT);
  tgkill(launchers[0], launchers[0], SIGINT);
  kill(launchers[0], SIGCONT);
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("0 tidies up\n"));
  EXPECT_THAT(result.out, HasSubstr("1 tidies up\n"));
}

TEST(SignalToTheJob, ThatTheUserHasIgnoredStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);  // as nohup does
  Subprocess job(ranks_that({"await=" + number(SIGUSR1)}, 1));
  std::signal(SIGHUP, SIG_DFL);
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  job.send_signal(SIGHUP);
  job.send_signal(SIGUSR1);
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.error, "");
}

// Whichever of dlaunch's two processes is killed, and whenever: nothing stays.
class KilledLauncher : public ::testing::TestWithParam<bool> {
 protected:
  static void kill_one(const Subprocess& job, bool the_guard) {
    if (the_guard) return job.send_signal(SIGKILL);
    for (const pid_t launcher : children_of(job.pid())) kill(launcher, SIGKILL);
  }
};

TEST_P(KilledLauncher, LeavesNothingOfARunningJob) {
  constexpr int kRanks = 9;  // started by several threads
  const std::string mark = fresh_mark();
  Subprocess job(
      ranks_that({mark, "ignore=" + number(SIGTERM), "family", "out={rank} up", "pause"}, kRanks));
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(job.wait_for_output(std::to_string(rank) + " up\n", soon()));
  }
  kill_one(job, GetParam());
  EXPECT_TRUE(all_gone(mark, Deadline::after(kPromptly)));
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, GetParam() ? 128 + SIGKILL : 125);
  EXPECT_THAT(result.error, HasSubstr("was killed"));
}

TEST_P(KilledLauncher, LeavesNothingAtRandomMoments) {
  constexpr int kMoments = 50;  // for each of the two processes
  std::random_device seed;
  std::mt19937 random(seed());
  // From before there is a launcher to after its ranks have begun.
  std::uniform_int_distribution<int> microseconds(0, 30'000 * (kSanitized ? 10 : 1));
  for (int i = 0; i < kMoments; ++i) {
    const std::string mark = fresh_mark();
    const auto delay = std::chrono::microseconds(microseconds(random));
    const char* ranks = i % 5 == 0 ? "12" : "3";
    Subprocess job(ranks_that({mark, "family", "pause"}, {"--nproc", ranks, "--grace", "1"}));
    std::this_thread::sleep_for(delay);  // the random moment itself
    kill_one(job, GetParam());
    // A launcher that was not there yet could not be killed: then the job runs, and is ended here.
    if (!GetParam()) job.send_signal(SIGTERM);
    EXPECT_TRUE(all_gone(mark, soon()))  // by itself nothing goes for five minutes
        << "killed after " << delay.count() << " us";
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, KilledLauncher, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Guard" : "Launcher"; });

TEST(FailingRank, EndsAJobOf32WithoutWaitingForTheGracePeriod) {
  const auto result = run_command(
      ranks_that({"only=31", "exit=2", "only=all", "pause"}, {"--nproc", "32", "--grace", "200"}));
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.error, Not(HasSubstr("SIGKILL")));
}

}  // namespace
}  // namespace dlaunch::testing
