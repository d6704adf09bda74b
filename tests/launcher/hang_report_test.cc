// What dlaunch tells of a job that does not move: by itself, at Ctrl-\, and to `dlaunch status`.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/temporary_folder.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kNoStall = "0";
const std::string kStop = "raise=" + std::to_string(SIGSTOP);

// On a loaded machine a debugger may need all of the time that dlaunch gives it for each rank.
Deadline when_debuggers_are_slow() {
  return Deadline::after(std::chrono::seconds(100));
}

Command communicating_ranks(const Strings& actions, int ranks, const char* stall_after,
                            const Strings& more = {}) {
  Strings options = {"--nproc", std::to_string(ranks), "--stall-after", stall_after, "--grace",
                     "0.2"};
  options.insert(options.end(), more.begin(), more.end());
  return ranks_of("comm_rank", actions, options);
}

// The same without a debugger. While ranks connect a loaded machine may stand still long enough for
// a report, too; one that still attaches to a rank would change what the next report tells of it.
Command stalling_ranks(const Strings& actions, int ranks) {
  Command command = communicating_ranks(actions, ranks, "0.5");
  command.environment = {{"PATH", "/nowhere"}};
  return command;
}

// A job that is killed if the test gives up.
class HangReport : public ::testing::Test {
 protected:
  // What the job says up to and including `text`.
  static std::string wait_for(Subprocess& job, const std::string& text) {
    EXPECT_TRUE(job.wait_for_error(text, soon())) << job.error();
    return job.error();
  }
  static void end(Subprocess& job) {
    job.send_signal(SIGTERM);
    EXPECT_FALSE(job.finish(soon()).timed_out);
  }
};

TEST_F(HangReport, NamesTheCollectiveAndTheRankThatIsMissing) {
  Subprocess job(
      stalling_ranks({"connect", "barrier", "only=2", "pause", "only=all", "all_reduce=1000"}, 4));
  wait_for(job, "dlaunch: ranks 0, 1, 3: in all_reduce #");
  const auto text = wait_for(job, "of world/1: rank 2\n");
  EXPECT_THAT(text, HasSubstr("dlaunch: no rank has made progress for "));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "dlaunch: ranks 0, 1, 3: in all_reduce #[0-9]+ f32.1000. .4000 bytes. of "
                        "world/1(, for [0-9.]+ s)?\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex(
                        "dlaunch: rank 2: in no collective; the last one was barrier #[0-9]+ of "
                        "world/1\n"));
  end(job);
}

TEST_F(HangReport, BlamesNoRankThatIsThroughWithAnAsynchronousCollective) {
  Subprocess job(
      stalling_ranks({"connect", "only=3", "pause", "only=all", "gather=0", "pause"}, 4));
  const auto text = wait_for(job, "of world/1, asynchronous: rank 3\n");
  EXPECT_THAT(text, HasSubstr("dlaunch: rank 0: in gather #1 f32[4] (16 bytes) of world/1, "));
  EXPECT_THAT(text, HasSubstr("dlaunch: ranks 1, 2: in no collective; the last one was gather #1 "
                              "of world/1, asynchronous\n"));
  end(job);
}

TEST_F(HangReport, KnowsAStoppedProcess) {
  Subprocess job(stalling_ranks({"connect", "only=1", kStop, "only=all", "barrier"}, 3));
  EXPECT_TRUE(job.wait_for_error("the process is stopped by a signal\n", soon())) << job.error();
  EXPECT_TRUE(job.wait_for_error("of world/1: rank 1\n", soon())) << job.error();
  end(job);
}

pid_t pid_of(Subprocess& job, const std::string& rank) {
  EXPECT_TRUE(job.wait_for_output(rank + " pid ", soon()));
  const std::string name = rank + " pid ";
  return std::stoi(job.output().substr(job.output().find(name) + name.size()));
}

// Rank 1 does not come; by the time it is there rank 0 has been stopped for longer than it waits.
TEST(StoppedJob, GoesOnAfterMoreThanItsTimeout) {
  Command command = communicating_ranks(
      {"pid", "connect", "only=1", kStop, "only=0", "out=waits", "only=all", "barrier"}, 2,
      kNoStall);
  command.environment.emplace_back("DLAUNCH_TIMEOUT", "3");
  Subprocess job(command);
  const pid_t first = pid_of(job, "0"), second = pid_of(job, "1");
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until it is in the barrier
  kill(first, SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(4500));
  kill(first, SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(second, SIGCONT);
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 0) << result.error;
}

// Nothing waits in it before it is stopped; then one rank alone is let go, into a barrier.
TEST_F(HangReport, IsNotWrittenWhileTheUserHasStoppedTheJob) {
  Subprocess job(
      stalling_ranks({"connect", "pid", kStop, "only=0", "barrier", "only=1", "pause"}, 2));
  const pid_t first = pid_of(job, "0");
  pid_of(job, "1");
  job.send_signal(SIGTSTP);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // until the ranks have it
  kill(first, SIGCONT);
  EXPECT_FALSE(job.wait_for_error("in barrier", Deadline::after(std::chrono::milliseconds(1500))));
  job.send_signal(SIGCONT);
  wait_for(job, "dlaunch: rank 0: in barrier");
  end(job);
}

TEST_F(HangReport, KnowsRanksThatNeverConnect) {
  Subprocess job(stalling_ranks({"only=1", "pause", "only=all", "connect"}, 3));
  wait_for(job, "dlaunch: rank 1: has not come to dlaunch's communicator");
  wait_for(job, "dlaunch: ranks 0, 2: in a wait for the store, which has no value for 'world/1/");
  end(job);
}

TEST_F(HangReport, NamesTheKeysThatTheStoreHasNot) {
  Subprocess job(stalling_ranks({"only=1", "pause", "only=0", "set=step/0", "only=2", "set=step/2",
                                 "only=all", "wait=step/0,step/1,step/2"},
                                3));
  wait_for(job, "dlaunch: ranks 0, 2: in a wait for the store, which has no value for 'step/1'");
  wait_for(job, "dlaunch: rank 1: has not come to dlaunch's communicator");
  end(job);
}

TEST_F(HangReport, KnowsMessages) {
  Subprocess job(stalling_ranks({"connect", "only=0", "recv=1", "only=1", "pause"}, 2));
  EXPECT_TRUE(job.wait_for_error("rank 0: in recv f32[1] (4 bytes) from rank 1 of world/1", soon()))
      << job.error();
  end(job);
}

TEST_F(HangReport, KnowsMessagesOfAnyRank) {
  Subprocess job(stalling_ranks({"connect", "only=0", "recv=-1", "only=1", "pause"}, 2));
  wait_for(job, "rank 0: in recv f32[1] (4 bytes) from any rank of world/1");
  end(job);
}

TEST_F(HangReport, KnowsCollectivesInTheBackground) {
  Subprocess job(stalling_ranks({"connect", "only=1", "pause", "only=0", "start=7", "pause"}, 2));
  EXPECT_TRUE(job.wait_for_error(
      "rank 0: in all_reduce #1 f32[7] (28 bytes) of world/1, asynchronous", soon()))
      << job.error();
  end(job);
}

TEST_F(HangReport, ComesOnceForAStandstill) {
  // There may be another one while the ranks connect, but rank 1 moves no more when it has.
  Subprocess job(stalling_ranks(
      {"connect", "only=1", "set=paused", "pause", "only=0", "wait=paused", "barrier"}, 2));
  const std::string barrier = "rank 0: in barrier";
  wait_for(job, barrier);
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));  // in which two more could come
  end(job);
  const auto first = job.error().find(barrier);
  EXPECT_EQ(job.error().find(barrier, first + 1), std::string::npos) << job.error();
}

TEST_F(HangReport, DoesNotComeWhileRanksMoveOrOnlyCompute) {
  Subprocess moving(communicating_ranks({"connect", "barrier", "out=up", "repeat=5"}, 2, "3"));
  Subprocess computing(communicating_ranks({"connect", "barrier", "out=up", "pause"}, 2, "3"));
  // Before that they may stand still for long enough on a machine that has much to do.
  std::size_t before[2];
  for (Subprocess* const job : {&moving, &computing}) {
    for (const char* up : {"0 up\n", "1 up\n"}) ASSERT_TRUE(job->wait_for_output(up, soon()));
    before[job == &computing ? 1 : 0] = job->error().size();
  }
  const auto moved = moving.finish(soon());
  EXPECT_EQ(moved.exit_code, 0) << moved.error;
  EXPECT_THAT(moved.error.substr(before[0]), Not(HasSubstr("progress")));
  end(computing);  // after as long a time
  EXPECT_THAT(computing.error().substr(before[1]), Not(HasSubstr("progress")));
}

TEST_F(HangReport, ComesBeforeTheRanksGiveUpWaiting) {
  Command command = ranks_of("comm_rank", {"connect", "only=0", "barrier", "only=1", "pause"},
                             {"--nproc", "2", "--grace", "0.2"});
  command.environment = {{"PATH", "/nowhere"}, {"DLAUNCH_TIMEOUT", "10"}};
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 4) << result.error;
  const auto report = result.error.find("dlaunch: no rank has made progress for ");
  ASSERT_NE(report, std::string::npos) << result.error;
  EXPECT_LT(report, result.error.find("timed out after 10")) << result.error;
  EXPECT_THAT(result.error, HasSubstr("rank 0: in barrier"));
}

TEST_F(HangReport, ShowsStacks) {
  Subprocess job(
      communicating_ranks({"connect", "only=1", "out=up", "pause", "only=0", "barrier"}, 2, "0.5"));
  ASSERT_TRUE(job.wait_for_output("1 up\n", soon()));
  ASSERT_TRUE(job.wait_for_error("stack of rank 1", when_debuggers_are_slow())) << job.error();
  ASSERT_TRUE(job.wait_for_error("stack of rank 0", when_debuggers_are_slow())) << job.error();
  // Without a debugger the ranks print them themselves, after these lines.
  EXPECT_TRUE(job.error().find("pause") != std::string::npos ||
              job.wait_for_error("comm_rank", soon()))
      << job.error();
  end(job);
}

// Without a debugger the runtime prints it.
TEST_F(HangReport, ShowsTheRuntimesOwnStacksIfThereIsNoDebugger) {
  Subprocess job(stalling_ranks({"connect", "only=1", "pause", "only=0", "barrier"}, 2));
  EXPECT_TRUE(job.wait_for_error(
      "see its stderr, to which it was asked to print it; with eu-stack or gdb", soon()))
      << job.error();
  EXPECT_TRUE(job.wait_for_error("comm_rank(", soon())) << job.error();
  end(job);
}

TEST_F(HangReport, IsPrintedAtSigquitAndEndsNothing) {
  Subprocess job(communicating_ranks({"connect", "barrier", "out=up", "pause"}, 2, kNoStall));
  ASSERT_TRUE(job.wait_for_output("0 up\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 up\n", soon()));
  job.send_signal(SIGQUIT);
  EXPECT_TRUE(job.wait_for_error("dlaunch: what the ranks are doing (SIGQUIT):\n", soon()));
  EXPECT_TRUE(job.wait_for_error("dlaunch: ranks 0, 1: in no collective; the last one was barrier ",
                                 soon()))
      << job.error();
  end(job);
}

TEST_F(HangReport, AsksNobodyForAStackWhomARankHasNotStarted) {
  Subprocess bystander(
      {.arguments = {built_program("test_rank"), "await=" + std::to_string(SIGUSR1)}});
  ASSERT_TRUE(bystander.wait_for_output("waits\n", soon()));
  Command command = ranks_that({"publish=" + std::to_string(bystander.pid()), "pid", "pause"}, 1);
  command.environment = {{"PATH", "/nowhere"}};
  Subprocess job(command);
  ASSERT_TRUE(job.wait_for_output("\n", soon()));
  const std::string own = job.output().substr(6, job.output().find('\n') - 6);
  job.send_signal(SIGQUIT);
  EXPECT_TRUE(job.wait_for_error("no stack of rank 0 (pid " + own + ")", soon())) << job.error();
  end(job);
  bystander.send_signal(SIGUSR1);
  EXPECT_EQ(bystander.finish(soon()).exit_code, 0);
}

// The test's own debugger: a shell script that is called with -p PID.
class WithDebugger : public HangReport {
 protected:
  // A job of one test rank that does this.
  Command looked_at_by(const std::string& script, const Strings& actions) const {
    const std::string debugger = temporary_.path() + "/eu-stack";
    std::ofstream(debugger) << "#!/bin/sh\n" << script << '\n';
    std::filesystem::permissions(debugger, std::filesystem::perms::owner_all);
    Command command = ranks_that(actions, 1);
    const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): one thread
    command.environment = {{"PATH", temporary_.path() + ":" + (path == nullptr ? "" : path)}};
    return command;
  }

  const TemporaryFolder temporary_;
};

// One that has told the rank to stop, and then says more than anybody wants to know.
constexpr const char* kStopsAndIsKilled = "kill -STOP $2; head -c 1100000 /dev/zero; sleep 100";

TEST_F(WithDebugger, LetsARankGoOnWhoseDebuggerWasKilled) {
  Subprocess job(looked_at_by(kStopsAndIsKilled, {"await=" + std::to_string(SIGUSR1)}));
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  job.send_signal(SIGQUIT);
  ASSERT_TRUE(job.wait_for_error("could not look at it", soon())) << job.error();
  job.send_signal(SIGUSR1);
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("0 got "));
}

TEST_F(WithDebugger, LeavesARankStoppedThatWasSoBefore) {
  Subprocess job(
      looked_at_by(kStopsAndIsKilled, {"out=up", "raise=" + std::to_string(SIGSTOP), "out=on"}));
  ASSERT_TRUE(job.wait_for_output("up\n", soon()));
  const Command status{
      .arguments = {built_program("dlaunch"), "status", "--no-stacks", std::to_string(job.pid())}};
  const Deadline deadline = soon();
  while (run_command(status).out.find("stopped by a signal") == std::string::npos) {
    ASSERT_FALSE(deadline.expired());
  }
  job.send_signal(SIGQUIT);
  ASSERT_TRUE(job.wait_for_error("could not look at it", soon())) << job.error();
  ASSERT_TRUE(all_gone(temporary_.path(), soon()));  // the debugger
  EXPECT_THAT(run_command(status).out, HasSubstr("stopped by a signal"));
  EXPECT_EQ(job.output(), "up\n");
  end(job);
}

// One that takes its time.
TEST_F(WithDebugger, IsNotBegunAgainWhileItIsWritten) {
  const std::string go_on = temporary_.path() + "/go-on";
  Subprocess job(
      looked_at_by("while [ ! -e '" + go_on + "' ]; do sleep 0.05; done; echo '#0 somewhere'",
                   {"out=up", "pause"}));
  ASSERT_TRUE(job.wait_for_output("up\n", soon()));
  const auto launchers = children_of(job.pid());
  ASSERT_EQ(launchers.size(), 1U);
  kill(launchers[0], SIGQUIT);
  ASSERT_TRUE(job.wait_for_error("(SIGQUIT):\n", soon()));
  std::this_thread::sleep_for(std::chrono::seconds(1));  // longer than for the same signal twice
  kill(launchers[0], SIGQUIT);
  std::ofstream(go_on) << "now";
  ASSERT_TRUE(job.wait_for_error("#0 somewhere\n", soon())) << job.error();
  const auto first = job.error().find("(SIGQUIT)");
  EXPECT_EQ(job.error().find("(SIGQUIT)", first + 1), std::string::npos) << job.error();
  end(job);
}

TEST_F(HangReport, IsThereForProgramsThatKnowNothingOfDlaunch) {
  Subprocess job(ranks_that({"out={rank} up", "pause"}, 2));
  ASSERT_TRUE(job.wait_for_output("0 up\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 up\n", soon()));
  job.send_signal(SIGQUIT);
  EXPECT_TRUE(
      job.wait_for_error("ranks 0, 1: has not come to dlaunch's communicator, or does not "
                         "use it\n",
                         soon()))
      << job.error();
  end(job);
}

// Jobs of these tests have a folder of their own.
class JobStatus : public HangReport {
 protected:
  JobStatus() {
    char folder[] = "/tmp/dlaunch-status-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~JobStatus() override { std::filesystem::remove_all(folder_); }

  Command with_folder(Command command) const {
    command.environment.emplace_back("DLAUNCH_STATUS_DIR", folder_ + "/dlaunch");
    return command;
  }
  CompletedProcess status(const Strings& arguments) const {
    Command command{.arguments = {built_program("dlaunch"), "status"}};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    return run_command(with_folder(command), when_debuggers_are_slow());
  }

  std::string folder_;
};

TEST_F(JobStatus, ListsRunningJobs) {
  EXPECT_EQ(status({}).out, "no job of this user is running on this machine\n");
  Subprocess one(with_folder(ranks_that({"out=up", "env=DLAUNCH_JOB_ID", "pause"}, 1)));
  Subprocess two(with_folder(ranks_that({"out=up", "pause"}, 1)));
  ASSERT_TRUE(one.wait_for_output("DLAUNCH_JOB_ID=", soon()));
  ASSERT_TRUE(two.wait_for_output("up\n", soon()));
  const auto list = status({});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.out, HasSubstr(" " + std::to_string(one.pid()) + " "));
  EXPECT_THAT(list.out, HasSubstr(" " + std::to_string(two.pid()) + " "));
  EXPECT_THAT(list.out, HasSubstr("test_rank out=up env=DLAUNCH_JOB_ID pause\n"));
  end(two);
  EXPECT_THAT(status({}).out, Not(HasSubstr(" " + std::to_string(two.pid()) + " ")));
  end(one);
}

TEST_F(JobStatus, TellsWhatRanksAreDoingByJobIdOrProcessId) {
  Subprocess job(with_folder(communicating_ranks(
      {"connect", "barrier", "only=1", "out=up", "pause", "only=0", "out=up", "barrier"}, 2,
      kNoStall)));
  ASSERT_TRUE(job.wait_for_output("0 up\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 up\n", soon()));
  const std::string pid = std::to_string(job.pid());
  const Deadline deadline = soon();
  auto quick = status({"--no-stacks", pid});
  // Rank 0 says that it is up before it is in the barrier.
  while (quick.out.find("rank 0: in barrier") == std::string::npos && !deadline.expired())
    quick = status({"--no-stacks", pid});
  EXPECT_EQ(quick.exit_code, 0) << quick.error;
  EXPECT_THAT(quick.out, HasSubstr("rank 1: in no collective; the last one was barrier #1"));
  EXPECT_THAT(quick.out, Not(HasSubstr("stack")));
  const std::string id = quick.out.substr(0, quick.out.find(' '));
  const auto by_id = status({id});
  EXPECT_THAT(by_id.out, HasSubstr("stack of rank 1"));
  EXPECT_THAT(by_id.out, HasSubstr("stack of rank 0"));
  end(job);
}

TEST_F(JobStatus, RefusesAJobThatIsNotThere) {
  const auto result = status({"4711471"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.error,
            "dlaunch: no running job of this user is called '4711471'; see dlaunch status\n");
  EXPECT_EQ(status({"--nonsense"}).exit_code, 125);
}

// As jobs of cron, of Slurm and of a user's session have.
TEST_F(JobStatus, FindsAJobThatWasStartedWithAnotherRuntimeFolder) {
  Command elsewhere = ranks_that({"out=up", "pause"}, 1);
  elsewhere.environment.emplace_back("XDG_RUNTIME_DIR", folder_);
  elsewhere.unset = {"DLAUNCH_STATUS_DIR"};
  Subprocess job(elsewhere);
  ASSERT_TRUE(job.wait_for_output("up\n", soon()));
  const auto list = run_command({.arguments = {built_program("dlaunch"), "status"},
                                 .unset = {"DLAUNCH_STATUS_DIR", "XDG_RUNTIME_DIR"}},
                                soon());
  EXPECT_THAT(list.out, HasSubstr(" " + std::to_string(job.pid()) + " "));
  end(job);
}

TEST_F(JobStatus, ShowsNoControlCharactersOfACommand) {
  Subprocess job(with_folder(ranks_that({"out=up", "err=\x1b[31m\n\xc2\x9b", "pause"}, 1)));
  ASSERT_TRUE(job.wait_for_output("up\n", soon()));
  EXPECT_THAT(status({}).out, HasSubstr("out=up err=?[31m?? pause\n"));
  end(job);
}

TEST_F(JobStatus, AJobThatItCannotFindSaysSo) {
  Command command = ranks_that({"out=up"}, 1);
  command.environment.emplace_back("DLAUNCH_STATUS_DIR", "/proc/none");
  const auto job = run_command(command, soon());
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_THAT(job.error, ::testing::StartsWith(
                             "dlaunch: dlaunch status will not find this job: /proc/none: "));
}

TEST_F(JobStatus, IsNotOpenToOthers) {
  Subprocess job(with_folder(ranks_that({"out=up", "pause"}, 1)));
  ASSERT_TRUE(job.wait_for_output("up\n", soon()));
  const auto mode = std::filesystem::status(folder_ + "/dlaunch").permissions();
  EXPECT_EQ(mode, std::filesystem::perms::owner_all);
  end(job);
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/dlaunch"));
}

TEST_F(JobStatus, DoesNotUseAFolderThatOthersCanWrite) {
  std::filesystem::create_directory(folder_ + "/dlaunch");
  std::filesystem::permissions(folder_ + "/dlaunch", std::filesystem::perms::all);
  const auto result = run_command(with_folder(ranks_that({"out=fine"}, 1)));
  EXPECT_EQ(result.out, "fine\n");
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/dlaunch"));
  const auto refused = status({});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.error, HasSubstr("/dlaunch: is not a folder of this user that is closed"));
}

TEST_F(JobStatus, SaysThatAPathIsTooLongForASocket) {
  folder_ += "/" + std::string(100, 'x');
  const auto refused = status({});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.error, HasSubstr("too long for a socket"));
  folder_.resize(folder_.find('/', std::string("/tmp/").size()));
}

TEST_F(JobStatus, ForgetsJobsWhoseLauncherWasKilled) {
  Subprocess job(with_folder(ranks_that({"out=up", "pause"}, 1)));
  ASSERT_TRUE(job.wait_for_output("up\n", soon()));
  for (const pid_t launcher : children_of(job.pid())) kill(launcher, SIGKILL);
  job.finish(soon());
  EXPECT_EQ(status({}).out, "no job of this user is running on this machine\n");
  EXPECT_FALSE(std::filesystem::is_empty(folder_ + "/dlaunch"));
  run_command(with_folder(ranks_that({"out=next"}, 1)));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/dlaunch"));
}

// Somebody's own folder, with a socket that is not a job's and a file that is called like a job.
TEST_F(JobStatus, LeavesAloneWhatIsNoJob) {
  const std::string folder = folder_ + "/dlaunch";
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
  std::ofstream(folder + "/thesis.txt") << "text";
  std::ofstream(folder + "/0123456789ab") << "text";
  const Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string agent = folder + "/agent";
  agent.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(run_command(with_folder(ranks_that({"out=fine"}, 1))).out, "fine\n");
  for (const char* name : {"/thesis.txt", "/0123456789ab", "/agent"}) {
    EXPECT_TRUE(std::filesystem::exists(folder + name)) << name;
  }
  EXPECT_EQ(status({}).out, "no job of this user is running on this machine\n");
}

// More jobs than the stopped one has room for connections that it does not take.
TEST_F(JobStatus, DoesNotKeepJobsFromStartingBesideAStoppedOne) {
  Subprocess stopped(with_folder(ranks_that({"out=up", "pause"}, 1)));
  ASSERT_TRUE(stopped.wait_for_output("up\n", soon()));
  const auto launchers = children_of(stopped.pid());
  ASSERT_EQ(launchers.size(), 1U);
  kill(launchers[0], SIGSTOP);
  for (int job = 0; job < 25; ++job) {
    ASSERT_EQ(run_command(with_folder(ranks_that({"out=fine"}, 1))).out, "fine\n") << job;
  }
  const std::string list = status({}).out;
  EXPECT_THAT(list, HasSubstr(" - does not answer: its dlaunch is stopped\n"));
  const std::string id = list.substr(list.find('\n') + 1, 12);
  for (const std::string& name : {id, std::to_string(stopped.pid())}) {
    const auto asked = status({name});
    EXPECT_EQ(asked.exit_code, 1);
    EXPECT_THAT(asked.error, HasSubstr("job " + id + " does not answer"));
  }
  kill(launchers[0], SIGCONT);
  const std::string entry = " " + std::to_string(stopped.pid()) + " ";
  const Deadline deadline = soon();  // until it has taken the connections that have gathered
  while (status({}).out.find(entry) == std::string::npos) ASSERT_FALSE(deadline.expired());
  end(stopped);
}

TEST(Readiness, OfACommunicatorAllowsARestartAtOnce) {
  const auto result = run_command(ranks_of(
      "comm_rank", {"connect", "barrier", "only=1", "fail-before=1", "only=all", "barrier"},
      {"--nproc", "2", "--max-restarts", "1", "--ready-after", "50", "--restart-delay", "0"}));
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.error, HasSubstr("dlaunch: restart 1 of 1"));
}

TEST(Readiness, OfAJobThatUsesTheStoreAloneIsAMatterOfTime) {
  const auto result = run_command(ranks_of(
      "comm_rank", {"set=key", "fail-before=1"},
      {"--nproc", "2", "--max-restarts", "1", "--ready-after", "0", "--restart-delay", "0"}));
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.error, HasSubstr("dlaunch: restart 1 of 1"));
}

TEST(Readiness, IsMissingIfOneRankNeverConnects) {
  const auto result =
      run_command(ranks_of("comm_rank", {"only=1", "fail-before=1", "only=all", "connect"},
                           {"--nproc", "2", "--max-restarts", "1", "--ready-after", "50"}));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: no restart: the job never got ready"));
}

}  // namespace
}  // namespace dlaunch::testing
