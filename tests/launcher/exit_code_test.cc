// How dlaunch ends, and what it says then.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/failure/outcome.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/temporary_folder.h"
#include "runtime/base/usable_cores.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

TEST(ExitCode, IsZeroWithoutAReportWhenAllRanksSucceed) {
  const auto result = run_command(ranks_that({"only=1", "exit=0"}, 3));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.error, "");
}

TEST(ExitCode, IsThatOfTheRankThatFailedFirst) {
  const auto result = run_command(ranks_that({"only=2", "exit=7", "only=all", "pause"}, 4));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_THAT(
      result.error,
      MatchesRegex("dlaunch: rank 2 \\(pid [0-9]+ on [^ ]+\\) failed with exit code 7 after "
                   "[0-9.]+ s\ndlaunch: the other ranks: 0, 1, 3 ended by SIGTERM "
                   "\\(collateral\\)\n"));
}

TEST(ExitCode, Is128PlusTheSignalThatKilledARank) {
  const auto result = run_command(
      ranks_that({"only=0", "raise=" + std::to_string(SIGKILL), "only=all", "pause"}, 2));
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 0 (pid "));
  EXPECT_THAT(result.error, HasSubstr("was killed by SIGKILL"));
}

// Its connections are closed, and its peer sees that, long before all of its memory is given back.
TEST(ExitCode, IsThatOfARankThatTakesLongToEndNotOfThoseThatLostIt) {
  const std::string killed = "raise=" + std::to_string(SIGKILL);
  Command command = ranks_of("comm_rank",
                             {"only=1", "hold=1024", "only=all", "connect", "barrier", "only=1",
                              killed, "only=all", "barrier"},
                             {"--nproc", "3"});
  command.environment = {{"DLAUNCH_TRANSPORT", "tcp"}};
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.error;
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 1 (pid ")) << result.error;
}

TEST(ExitCode, OfAnEarlySuccessDoesNotEndTheOthers) {
  Subprocess job(
      ranks_that({"only=1", "await=" + std::to_string(SIGUSR1), "only=0", "pid", "exit=0"}, 2));
  ASSERT_TRUE(job.wait_for_output("1 waits\n", soon()));
  const std::string said = "0 pid ";
  ASSERT_TRUE(job.wait_for_output(said, soon()));
  const std::string& out = job.output();
  const pid_t early = std::stoi(out.substr(out.find(said) + said.size()));
  ASSERT_TRUE(becomes_true([&] { return kill(early, 0) != 0; }, soon())) << "rank 0 is still there";
  job.send_signal(SIGUSR1);
  const auto result = job.finish(soon());
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("1 got "));
}

TEST(ExitCode, IsThatOfLostPeersIfThereIsNoOtherCause) {
  const auto result = run_command(
      ranks_that({"only=0", "exit=" + std::to_string(kExitCommunication), "only=all", "pause"}, 2));
  EXPECT_EQ(result.exit_code, kExitCommunication);
}

// Stuck in the kernel, which a test cannot have a process be.
TEST(ExitCode, IsThatOfTheSignalToTheJobIfARankCouldNotBeKilled) {
  AttemptOutcome attempt{.cause = AttemptOutcome::Cause::kSignal, .signal = SIGTERM};
  attempt.ranks = {{.rank = 0, .running = false}, {.rank = 1, .running = true}};
  EXPECT_EQ(attempt.exit_code(), 128 + SIGTERM);
  attempt.ranks[0].wait_status = 7 << 8;
  attempt.first_failed = 0;
  EXPECT_EQ(attempt.exit_code(), 7);
}

TEST(ExitCode, IsZeroAfterASignalToTheJobThatAllRanksHaveHandled) {
  AttemptOutcome attempt{.cause = AttemptOutcome::Cause::kSignal, .signal = SIGTERM};
  attempt.ranks = {{.rank = 0, .running = false}, {.rank = 1, .running = false}};
  EXPECT_EQ(attempt.exit_code(), 0);
}

TEST(Report, RepeatsTheLastLinesOfTheFailedRankIfOthersWroteSince) {
  const std::string one = std::to_string(SIGUSR1);
  const std::string two = std::to_string(SIGUSR2);
  Subprocess job(
      ranks_that({"only=0", "ignore=" + one, "await=" + two, "err=something else", "pause",
                  "only=1", "ignore=" + two, "err=what went wrong", "await=" + one, "exit=3"},
                 2));
  ASSERT_TRUE(job.wait_for_output("0 waits\n", soon()));
  ASSERT_TRUE(job.wait_for_output("1 waits\n", soon()));
  ASSERT_TRUE(job.wait_for_error("what went wrong\n", soon()));
  job.send_signal(SIGUSR2);
  ASSERT_TRUE(job.wait_for_error("something else\n", soon()));
  job.send_signal(SIGUSR1);
  EXPECT_THAT(job.finish(soon()).error,
              HasSubstr("dlaunch: its last lines on stderr:\n  | what went wrong\n"));
}

TEST(Report, DoesNotRepeatLinesThatAreStillTheLast) {
  const auto result = run_command(ranks_that({"err=what went wrong", "exit=3"}, 1));
  EXPECT_THAT(
      result.error,
      MatchesRegex(
          "\\[rank 0\\] what went wrong\n"
          "dlaunch: rank 0 \\(pid [0-9]+ on [^ ]+\\) failed with exit code 3 after .* s\n"));
}

TEST(Timeout, EndsTheJobWith124) {
  const auto result = run_command(ranks_that({"pause"}, {"--nproc", "2", "--timeout", "0.1"}));
  EXPECT_EQ(result.exit_code, 124);
  EXPECT_EQ(result.error, "dlaunch: ended after --timeout 0.10 s; ranks: 0, 1 ended by SIGTERM\n");
}

class RefusedCommandLine : public ::testing::Test {
 protected:
  // One line, with the given exit code, and nothing was started.
  void expect(const Strings& arguments, int exit_code, const std::string& text) {
    Command command{.arguments = {built_program("dlaunch")}};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
    const auto result = run_command(command);
    EXPECT_EQ(result.exit_code, exit_code) << result.error;
    EXPECT_THAT(result.error, HasSubstr(text));
    EXPECT_THAT(result.error, MatchesRegex("dlaunch: [^\n]+\n"));
    EXPECT_EQ(result.out, "");
  }
};

TEST_F(RefusedCommandLine, WithoutAProgramOrANumberOfRanks) {
  expect({}, 125, "--nproc");
  expect({"--nproc", "2"}, 125, "no program is given");
  expect({"--nproc", "2", "--"}, 125, "no program is given");
  expect({"echo", "hello"}, 125, "how many ranks? --nproc N; try dlaunch --help");
  expect({"docter"}, 125, "did you mean dlaunch doctor? (try dlaunch --help)");
  expect({"statsu"}, 125, "did you mean dlaunch status?");
  expect({"help"}, 125, "did you mean dlaunch --help?");
}

TEST_F(RefusedCommandLine, WithAnImpossibleNumber) {
  expect({"--nproc", "0", "echo"}, 125, "'0' is not a number of ranks");
  expect({"--nproc", "-1", "echo"}, 125, "'-1' is not a number of ranks");
  expect({"--nproc", "two", "echo"}, 125, "'two' is not a number of ranks");
  expect({"--nproc", "99999999999999999999", "echo"}, 125, "is not a number of ranks");
  expect({"--nproc", "1", "--timeout", "0", "echo"}, 125, "'0' is not a number of seconds");
  expect({"--nproc", "1", "--timeout", "nan", "echo"}, 125, "'nan' is not a number of seconds");
  expect({"--nproc", "1", "--grace", "soon", "echo"}, 125, "'soon' is not a number of seconds");
  expect({"--nproc", "1", "--port", "65536", "echo"}, 125, "'65536' is not a port");
  expect({"--nproc", "1", "--only", "2-1", "echo"}, 125, "'2-1' is not a list of ranks");
  expect({"--nproc", "1", "--stdin", "me", "echo"}, 125, "'me' is not a rank, 'none' or 'all'");
  expect({"--nproc", "1", "--output", "loud", "echo"}, 125, "'loud' is neither plain nor prefix");
  expect({"--nproc", "1", "--gpus-per-rank", "0", "echo"}, 125, "'0' is not a number of GPUs");
  expect({"--nproc"}, 125, "--nproc needs a value (N|auto|gpu|cpu); try");
  expect({"--nproc", "1", "--report=", "/bin/true"}, 125, "--report= has no value behind it; try");
  expect({"--nproc=", "1", "/bin/true"}, 125, "--nproc= has no value behind it; try");
}

TEST_F(RefusedCommandLine, WithAValueForAnOptionThatTakesNone) {
  for (const char* value : {"=foo", "=3", "=false", "=a = b"}) {
    expect({"--nproc", "1", std::string("--dry-run") + value, "true"}, 125,
           "--dry-run takes no value; try");
  }
  expect({"--help=3"}, 125, "--help takes no value; try");
}

// As from a variable of a script that is not set.
TEST_F(RefusedCommandLine, WithAnEmptyValue) {
  const std::vector<std::pair<std::string, std::string>> options{
      {"--log-dir", "folder"},         {"--report", "file"},      {"--token-file", "file"},
      {"--rdzv-endpoint", "endpoint"}, {"--master-addr", "host"}, {"--nnodes", "number of nodes"},
      {"--node-rank", "node rank"},    {"--rdzv-id", "id"}};
  for (const auto& [option, what] : options) {
    expect({"--nproc", "1", option, "", "echo"}, 125, option + ": '' is no " + what);
  }
}

TEST_F(RefusedCommandLine, WithARankThatThereIsNot) {
  expect({"--nproc", "2", "--only", "0,2", "echo"}, 125,
         "--only: there is no rank 2 in a job of 2");
  expect({"--nproc", "2", "--stdin", "5", "echo"}, 125, "--stdin: there is no rank 5");
}

TEST_F(RefusedCommandLine, WithAWayToGatherThatThereIsNot) {
  expect({"--nproc", "2", "--rdzv-backend", "etcd", "echo"}, 125, "'etcd' is not one of c10d");
}

TEST_F(RefusedCommandLine, WithSomethingThatRanksCannotBeBoundTo) {
  expect({"--nproc", "2", "--bind", "sockets", "echo"}, 125, "sockets");
  expect({"--nproc", "2", "--bind", "", "echo"}, 125, "--bind");
}

TEST_F(RefusedCommandLine, WithAnUnknownOptionAndTheNearestOne) {
  expect({"--nporc", "2", "echo"}, 125, "--nporc; did you mean --nproc?");
  expect({"--nproc", "2", "--time-out=3", "echo"}, 125, "--time-out; did you mean --timeout?");
  expect({"--nproc", "2", "-q", "echo"}, 125, "unknown option -q");
  expect({"--nproc", "2", "-x", "PATH", "echo"}, 125,
         "unknown option -x: leave it out, ranks inherit dlaunch's environment");
  expect({"--hostfile", "hosts", "echo"}, 125, "dlaunch is started on each of the nodes");
  expect({"-np", "2", "echo"}, 125, "the number of ranks is --nproc");
  expect({"--nproc", "2", "--nproc", "3", "echo"}, 125, "--nproc is given more than once");
  expect({"--nproc", "2", "--use_env", "echo"}, 125,
         "unknown option --use_env: leave it out, ranks learn everything from their environment");
}

TEST_F(RefusedCommandLine, WithAProgramThatDoesNotExist) {
  expect({"--nproc", "2", "/no/such/program"}, 127, "/no/such/program: there is no such program");
  expect({"--nproc", "2", "no-such-program"}, 127, "no such program in PATH");
  expect({"--nproc", "2", ""}, 127, "no such program");
  // Not in PATH, but beside dlaunch.
  expect({"--nproc", "2", "sequential_print"}, 127,
         "(did you mean " + built_program("sequential_print") + "?)");
}

TEST_F(RefusedCommandLine, WithTheNumberOfRanksBehindTheProgram) {
  expect({"true", "--nproc", "2"}, 125,
         "how many ranks? --nproc N, before the program: what comes after it is its own");
}

TEST_F(RefusedCommandLine, WithADirectoryOrAFileThatIsNotExecutable) {
  expect({"--nproc", "2", "/tmp"}, 126, "/tmp: is a directory");
  expect({"--nproc", "2", "/etc/passwd"}, 126, "/etc/passwd: is not executable");
}

TEST_F(RefusedCommandLine, WithAFileThatTheSystemCannotRun) {
  if (kVforkIsFork) GTEST_SKIP() << kVforkIsForkText;
  char path[] = "/tmp/dlaunch-test-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  const std::string text = "#!/no/such/interpreter\n";
  ASSERT_EQ(write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  fchmod(file, 0755);
  close(file);
  expect({"--nproc", "3", path}, 127, "interpreter");
  ASSERT_EQ(truncate(path, 0), 0);
  expect({"--nproc", "3", path}, 126, "#! line");
  unlink(path);
}

TEST(CommandLine, GivesWhatFollowsTheProgramToTheProgram) {
  const Strings rest = {"--nproc", "9", "--help", "-x", "--"};
  for (const bool separator : {false, true}) {
    Command command{.arguments = {built_program("dlaunch"), "--nproc=1"}};
    if (separator) command.arguments.emplace_back("--");
    command.arguments.emplace_back("echo");
    command.arguments.insert(command.arguments.end(), rest.begin(), rest.end());
    EXPECT_EQ(run_command(command).out, "--nproc 9 --help -x --\n");
  }
}

TEST(CommandLine, HasTheCurrentFolderWherePathHasAnEmptyOne) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/only-here") << "#!/bin/sh\necho found\n";
  chmod((folder.path() + "/only-here").c_str(), 0755);
  const std::string script = "cd \"$1\" && exec \"$0\" --nproc 1 only-here";
  for (const char* path : {"/nowhere:", ":/nowhere", "/nowhere::/none", ""}) {
    const auto result = run_command(
        {.arguments = {"/bin/sh", "-c", script, built_program("dlaunch"), folder.path()},
         .environment = {{"PATH", path}}});
    EXPECT_EQ(result.out, "found\n") << path << result.error;
  }
}

TEST(CommandLine, LooksOnWherePathHasAFolderThatItMayNotLookInto) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("loop", folder.path() + "/loop");  // root may look into others
  const std::string path = folder.path() + "/loop:/bin";
  const auto search = [&](const char* program) {
    return run_command({.arguments = {built_program("dlaunch"), "--nproc", "1", program},
                        .environment = {{"PATH", path}}});
  };
  EXPECT_EQ(search("true").exit_code, 0);
  const auto missing = search("no-such-program");
  EXPECT_EQ(missing.exit_code, 127);
  EXPECT_EQ(missing.error, "dlaunch: no-such-program: there is no such program in PATH\n");
}

TEST(CommandLine, KnowsTheSpellingsOfTorchrun) {
  for (const char* option : {"--nproc-per-node", "--nproc_per_node"}) {
    const auto result = run_command(ranks_that({"only=0", "env=WORLD_SIZE"}, {option, "2"}));
    EXPECT_EQ(result.out, "0 WORLD_SIZE=2\n");
  }
}

TEST(CommandLine, TakesTheMasterAndTheRunIdOfTorchrun) {
  const auto result = run_command(
      ranks_that({"only=1", "env=MASTER_ADDR", "env=MASTER_PORT", "env=TORCHELASTIC_RUN_ID"},
                 {"--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_id=run7",
                  "--master_addr=localhost", "--master_port=29617"}));
  EXPECT_EQ(result.out,
            "1 MASTER_ADDR=localhost\n1 MASTER_PORT=29617\n1 TORCHELASTIC_RUN_ID=run7\n");
}

TEST(CommandLine, TakesWhatIsNotSaidFromTheVariablesOfTorchrun) {
  Command command = ranks_that(
      {"only=0", "env=WORLD_SIZE", "env=TORCHELASTIC_MAX_RESTARTS", "env=TORCHELASTIC_RUN_ID"},
      Strings{});
  command.environment = {
      {"PET_NPROC_PER_NODE", "3"}, {"PET_MAX_RESTARTS", "5"}, {"PET_RDZV_ID", "run8"}};
  EXPECT_EQ(run_command(command).out,
            "0 WORLD_SIZE=3\n0 TORCHELASTIC_MAX_RESTARTS=5\n0 TORCHELASTIC_RUN_ID=run8\n");
  command = ranks_that({"only=0", "env=WORLD_SIZE"}, {"--nproc", "2"});
  command.environment = {{"PET_NPROC_PER_NODE", "3"}};
  EXPECT_EQ(run_command(command).out, "0 WORLD_SIZE=2\n");
  command.arguments.erase(command.arguments.begin() + 1, command.arguments.begin() + 3);
  command.environment = {{"PET_NPROC_PER_NODE", "many"}};
  EXPECT_THAT(run_command(command).error, HasSubstr("'many' is not a number of ranks"));
}

TEST(CommandLine, CountsTheCoresThatHaveTimeForAuto) {
  Command command = ranks_that({"only=0", "env=WORLD_SIZE"}, {"--nproc", "auto"});
  command.environment = {{"CUDA_VISIBLE_DEVICES", ""}};  // GPUs would count instead
  EXPECT_EQ(run_command(command).out, "0 WORLD_SIZE=" + std::to_string(cores_with_time()) + "\n");
}

TEST(StorePort, ThatIsTakenIsOneLine) {
  Subprocess holder(ranks_that({"env=DLAUNCH_STORE", "pause"}, 1));
  ASSERT_TRUE(holder.wait_for_output("\n", soon()));
  const std::string store = holder.output();
  const std::string port = store.substr(store.rfind(':') + 1, store.size() - store.rfind(':') - 2);
  const auto result = run_command(ranks_that({"out=started"}, {"--nproc", "1", "--port", port}));
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_EQ(result.error,
            "dlaunch: store on 127.0.0.1 port " + port +
                ": Address already in use; take another --port, or none for any free one\n");
  EXPECT_EQ(result.out, "");
}

Command with_open_files(int most, const Command& command) {
  Command limited = command;
  limited.arguments = {"/bin/sh", "-c", "ulimit -n " + std::to_string(most) + "; exec \"$@\"",
                       "sh"};
  limited.arguments.insert(limited.arguments.end(), command.arguments.begin(),
                           command.arguments.end());
  return limited;
}

TEST(OpenFiles, AreAskedForIfThereAreTooFew) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need open files themselves";
  const auto few = run_command(with_open_files(12, ranks_that({"out=started"}, 2)));
  EXPECT_EQ(few.exit_code, 125);
  EXPECT_THAT(few.error, StartsWith("dlaunch: a process may open only 12 files, 2 ranks can need "
                                    "26; raise the hard limit (ulimit -Hn)\n"));
  const auto enough = run_command(with_open_files(26, ranks_that({"only=0", "out=started"}, 2)));
  EXPECT_EQ(enough.exit_code, 0);
  EXPECT_EQ(enough.error, "");
  EXPECT_EQ(enough.out, "started\n");
  const TemporaryFolder kept;
  const auto with_files = run_command(
      with_open_files(26, ranks_that({"out=started"}, {"--nproc", "2", "--log-dir", kept.path()})));
  EXPECT_THAT(with_files.error, HasSubstr("2 ranks can need 28;"));
}

}  // namespace
}  // namespace dlaunch::testing
