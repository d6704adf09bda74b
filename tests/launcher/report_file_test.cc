// --report: everything about a job as JSON.
#include <csignal>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/failure/failure.h"
#include "launcher/failure/json_report.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/temporary_folder.h"
#include "tests/launcher/launcher_runs.h"
#include "tests/launcher/node_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

class ReportFile : public ::testing::Test {
 protected:
  std::string path() const { return folder_ + "/report.json"; }
  nlohmann::json content() const { return nlohmann::json::parse(std::ifstream(path())); }

  const TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path();
};

TEST_F(ReportFile, IsWrittenAlsoIfTheSystemHasNotEnoughForTheJob) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need all address space";
  const TokenFile token;
  const std::vector<Strings> jobs{{"--nproc", "2"},
                                  {"--nnodes", "2", "--nproc", "1", "--token-file", token.path(),
                                   "--rdzv-endpoint", free_endpoint()}};
  for (Strings options : jobs) {
    options.insert(options.end(), {"--report", path()});
    const auto result = run_command(with_room_for_threads(0, ranks_that({}, options)));
    EXPECT_EQ(result.exit_code, 125);
    const std::string why = "no thread could be started: Resource temporarily unavailable";
    EXPECT_THAT(result.error, AllOf(HasSubstr("dlaunch: "), HasSubstr(why)));
    const auto report = content();
    EXPECT_EQ(report["exit_code"], 125);
    EXPECT_THAT(report["launcher_error"].get<std::string>(), HasSubstr(why));
    EXPECT_EQ(report["attempts"].size(), 0U);
  }
}

TEST_F(ReportFile, TellsOfEveryRankOfASuccessfulJob) {
  const auto result =
      run_command(ranks_that({"hog=30", "err=hello"}, {"--nproc", "3", "--report", path()}));
  EXPECT_EQ(result.exit_code, 0) << result.error;
  const auto report = content();
  EXPECT_EQ(report["format"], 1);
  EXPECT_EQ(report["exit_code"], 0);
  EXPECT_TRUE(report["first_failure"].is_null());
  EXPECT_EQ(report["command"].back(), "err=hello");
  ASSERT_EQ(report["attempts"].size(), 1U);
  const auto& ranks = report["attempts"][0]["ranks"];
  ASSERT_EQ(ranks.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const auto& rank = ranks[static_cast<std::size_t>(i)];
    EXPECT_EQ(rank["rank"], i);
    EXPECT_EQ(rank["role"], "finished");
    EXPECT_EQ(rank["exit_code"], 0);
    EXPECT_TRUE(rank["signal"].is_null());
    EXPECT_GT(rank["peak_memory_bytes"].get<double>(), 30e6);
    EXPECT_LT(rank["peak_memory_bytes"].get<double>(), 30e9);
    EXPECT_GT(rank["user_seconds"].get<double>() + rank["system_seconds"].get<double>(), 0);
    const auto& start_up = rank["start_up"];
    EXPECT_LE(start_up["spawned"].get<double>(), start_up["executed"].get<double>());
    EXPECT_LE(start_up["executed"].get<double>(), rank["seconds"].get<double>());
    EXPECT_EQ(rank["last_lines"].back(), "hello");
  }
}

TEST_F(ReportFile, TellsOfManyRanksInTheirOrder) {
  const auto result =
      run_command(ranks_that({"err={rank} was here"}, {"--nproc", "24", "--report", path()}));
  EXPECT_EQ(result.exit_code, 0) << result.error;
  const auto report = content();
  const auto& ranks = report["attempts"][0]["ranks"];
  ASSERT_EQ(ranks.size(), 24U);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    EXPECT_EQ(ranks[i]["rank"], i);
    EXPECT_EQ(ranks[i]["last_lines"].back(), std::to_string(i) + " was here");
  }
}

TEST_F(ReportFile, MarksTheFirstFailureAndItsCollateral) {
  const auto result = run_command(
      ranks_that({"only=2", "exit=0", "only=1", "err=it broke", "exit=7", "only=all", "pause"},
                 {"--nproc", "3", "--report", path()}));
  EXPECT_EQ(result.exit_code, 7);
  const auto report = content();
  EXPECT_EQ(report["exit_code"], 7);
  EXPECT_EQ(report["first_failure"]["rank"], 1);
  EXPECT_EQ(report["first_failure"]["exit_code"], 7);
  EXPECT_EQ(report["first_failure"]["last_lines"], nlohmann::json({"it broke"}));
  const auto& ranks = report["attempts"][0]["ranks"];
  EXPECT_EQ(ranks[0]["role"], "collateral");
  EXPECT_EQ(ranks[0]["signal_name"], "SIGTERM");
  EXPECT_EQ(ranks[0]["told_to_end"], true);
  EXPECT_EQ(ranks[1]["role"], "first failure");
}

TEST_F(ReportFile, HasEveryAttempt) {
  const auto result = run_command(
      ranks_that({"fail-before=2"}, {"--nproc", "2", "--max-restarts", "2", "--ready-after", "0",
                                     "--restart-delay", "0", "--report", path()}));
  EXPECT_EQ(result.exit_code, 0);
  const auto report = content();
  EXPECT_EQ(report["restarts"]["used"], 2);
  EXPECT_EQ(report["restarts"]["allowed"], 2);
  ASSERT_EQ(report["attempts"].size(), 3U);
  EXPECT_EQ(report["attempts"][0]["ended_by"], "rank failed");
  EXPECT_EQ(report["attempts"][2]["ended_by"], "finished");
  EXPECT_TRUE(report["first_failure"].is_null());  // of the last attempt
}

TEST_F(ReportFile, TellsOfTimeoutsAndSignals) {
  run_command(ranks_that({"pause"}, {"--nproc", "2", "--timeout", "0.1", "--report", path()}));
  EXPECT_EQ(content()["attempts"][0]["ended_by"], "timeout");
  EXPECT_EQ(content()["exit_code"], 124);
  EXPECT_EQ(content()["attempts"][0]["ranks"][1]["role"], "ended");

  Subprocess job(ranks_that({"out=up", "pause"}, {"--nproc", "1", "--report", path()}));
  ASSERT_TRUE(job.wait_for_output("up\n", soon()));
  job.send_signal(SIGHUP);
  job.finish(soon());
  EXPECT_EQ(content()["attempts"][0]["ended_by"], "signal");
  EXPECT_EQ(content()["attempts"][0]["signal_name"], "SIGHUP");
}

TEST_F(ReportFile, IsJsonWhateverARankWrites) {
  run_command(
      ranks_that({"err=\xff\xfe \"quoted\" \x01", "exit=3"}, {"--nproc", "1", "--report", path()}));
  EXPECT_THAT(content()["first_failure"]["last_lines"][0].get<std::string>(),
              HasSubstr("\"quoted\" \x01"));
}

TEST_F(ReportFile, ThatCannotBeWrittenIsOneLineBeforeAnythingStarts) {
  const auto result = run_command(
      ranks_that({"out=started"}, {"--nproc", "2", "--report", folder_ + "/no/such/report"}));
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.error,
            "dlaunch: --report " + folder_ + "/no/such/report: No such file or directory\n");
}

TEST_F(ReportFile, OfAnEarlierJobIsGoneThoughDlaunchIsKilled) {
  const std::string path = folder_ + "/report";
  std::ofstream(path) << "of an earlier job";
  Subprocess job(ranks_that({"out=up", "pause"}, {"--nproc", "1", "--report", path}));
  ASSERT_TRUE(job.wait_for_output("up", soon()));
  const auto launchers = children_of(job.pid());
  ASSERT_EQ(launchers.size(), 1U);
  kill(launchers[0], SIGKILL);
  EXPECT_EQ(job.finish(soon()).exit_code, 125);
  EXPECT_EQ(std::filesystem::file_size(path), 0U);
}

// The shell's own lines, before and after, go through the descriptor that dlaunch has from it.
TEST_F(ReportFile, FollowsTheOutputInTheFileThatThatGoesTo) {
  const std::string log = folder_ + "/log";
  for (const char* const redirection : {">>\"$0\"", ">\"$0\""}) {
    for (const std::string& report : {log, std::string("/dev/stdout")}) {
      std::ofstream(log) << "of an earlier job\n";
      Command job = ranks_that({"out=hi"}, {"--nproc", "2", "--report", report});
      const Strings shell{"/bin/sh", "-c",
                          "{ echo before; \"$@\"; echo after; } " + std::string(redirection), log};
      job.arguments.insert(job.arguments.begin(), shell.begin(), shell.end());
      const auto result = run_command(job);
      EXPECT_EQ(result.error, "");
      std::string text(std::istreambuf_iterator<char>(std::ifstream(log).rdbuf()), {});
      std::string head = "before\nhi\nhi\n";
      if (redirection[1] == '>') head.insert(0, "of an earlier job\n");
      ASSERT_THAT(text, AllOf(StartsWith(head), EndsWith("after\n"))) << redirection << report;
      text.erase(0, head.size()).resize(text.rfind("after\n"));
      EXPECT_EQ(nlohmann::json::parse(text)["exit_code"], 0);
    }
  }
}

TEST_F(ReportFile, FollowsWhatIsSaidOnStderrInTheFileThatThatGoesTo) {
  Command job = ranks_that({"err=hi"}, {"--nproc", "1", "--report", "/dev/stderr"});
  const Strings shell{"/bin/sh", "-c", "exec \"$@\" 2>\"$0\"", path()};
  job.arguments.insert(job.arguments.begin(), shell.begin(), shell.end());
  EXPECT_EQ(run_command(job).exit_code, 0);
  std::ifstream log(path());
  std::string line;
  std::getline(log, line);
  EXPECT_EQ(line, "[rank 0] hi");
  EXPECT_EQ(nlohmann::json::parse(log)["exit_code"], 0);
}

TEST_F(ReportFile, ThatIsAFifoIsRefusedIfNobodyReadsItAndWrittenIfSomebodyDoes) {
  const std::string fifo = folder_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const Command job = ranks_that({"out=started"}, {"--nproc", "1", "--report", fifo});
  const auto refused = run_command(job);
  EXPECT_EQ(refused.exit_code, 125);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.error, "dlaunch: --report " + fifo + ": nobody reads it\n");
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_EQ(run_command(job).exit_code, 0);
  std::string text(1 << 16, ' ');
  text.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, read(reader, text.data(), text.size()))));
  close(reader);
  EXPECT_EQ(nlohmann::json::parse(text)["exit_code"], 0);
}

// A report of more than a pipe holds, where stderr has less: each of these bytes takes six in JSON.
class ReportInAFifo : public ReportFile {
 protected:
  ReportInAFifo() {
    EXPECT_EQ(mkfifo(path().c_str(), 0600), 0);
    // Also for writing, so that it does not end before the job opens it.
    reader_ = Descriptor(open(path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  }
  Command job() const {
    return ranks_that(Strings(20, "err=" + std::string(2000, '\x01')),
                      {"--nproc", "1", "--report", path()});
  }
  std::string read_all() const {
    std::string text;
    std::string buffer(1 << 12, ' ');
    const Deadline deadline = soon();
    while (!text.ends_with("\n}\n") && !deadline.expired()) {
      const ssize_t count = read(reader_.get(), buffer.data(), buffer.size());
      if (count > 0) text.append(buffer, 0, static_cast<std::size_t>(count));
      if (count <= 0) usleep(1000);
    }
    return text;
  }

  Descriptor reader_;
};

TEST_F(ReportInAFifo, IsWrittenAsFastAsItIsRead) {
  Subprocess running(job());
  EXPECT_EQ(nlohmann::json::parse(read_all())["exit_code"], 0);
  EXPECT_EQ(running.finish(soon()).exit_code, 0);
}

TEST_F(ReportInAFifo, DoesNotKeepDlaunchFromASignal) {
  Subprocess running(job());
  const Deadline deadline = soon();
  int bytes = 0;
  while (bytes == 0 && !deadline.expired()) ASSERT_EQ(ioctl(reader_.get(), FIONREAD, &bytes), 0);
  running.send_signal(SIGTERM);
  const auto result = running.finish(soon());
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.error,
              HasSubstr("dlaunch: --report " + path() + ": nobody reads all of it\n"));
}

TEST_F(ReportFile, OnAFullDiskIsOneLineAndAnExitCodeUnlessTheJobHadOne) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  auto result = run_command(ranks_that({"exit=0"}, {"--nproc", "2", "--report", "/dev/full"}));
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_EQ(result.error, "dlaunch: --report /dev/full: No space left on device\n");
  result = run_command(ranks_that({"exit=3"}, {"--nproc", "1", "--report", "/dev/full"}));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.error, HasSubstr("dlaunch: --report /dev/full: No space left on device\n"));
}

TEST(ReportOfANode, LeavesOutLastLinesIfItIsTooLongForTheStore) {
  AttemptOutcome attempt;
  attempt.ranks = {{.rank = 0, .last_lines = {std::string(1000, 'x')}},
                   {.rank = 1, .last_lines = {std::string(1000, 'y')}}};
  const auto whole = nlohmann::json::parse(attempt_report(attempt, "here", 1 << 20));
  EXPECT_EQ(whole["ranks"][1]["last_lines"][0], std::string(1000, 'y'));
  const std::string text = attempt_report(attempt, "here", 2000);
  EXPECT_LE(text.size(), 2000U);
  const auto shorter = nlohmann::json::parse(text);
  ASSERT_EQ(shorter["ranks"].size(), 2U);
  EXPECT_EQ(shorter["ranks"][1]["last_lines"], nlohmann::json::array());
}

TEST(ReportOfAJob, CallsANodeLostOnlyIfItWas) {
  AttemptOutcome attempt;
  attempt.others = {{.node = 1, .host = "silent", .first_rank = 1, .ranks = 1},
                    {.node = 2, .host = "gone", .first_rank = 2, .ranks = 1, .lost = true}};
  const auto report = nlohmann::json::parse(json_report({.attempts = {attempt}}, 0, ""));
  const auto& nodes = report["attempts"][0]["nodes"];
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[1]["lost"], false);
  EXPECT_EQ(nodes[2]["lost"], true);
}

TEST(ReportOfAJob, LeavesOutWhatIsNoAccountOfANode) {
  AttemptOutcome attempt;
  attempt.ranks = {{.rank = 0}};
  for (const char* text :
       {R"({"ranks": 1})", R"({"ranks": ["x"]})", R"({"ranks": [{"role": "x"}]})",
        R"({"ranks": [{"rank": 1}]})", "[]", "x"}) {
    attempt.others = {{.node = 1, .host = "odd", .first_rank = 1, .ranks = 1, .text = text}};
    const auto report = nlohmann::json::parse(json_report({.attempts = {attempt}}, 0, ""));
    EXPECT_EQ(report["attempts"][0]["ranks"].size(), 1U) << text;
    EXPECT_EQ(report["attempts"][0]["nodes"].size(), 2U) << text;
  }
}

std::vector<std::string> keys_of(const nlohmann::ordered_json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(ReportOfAJob, HasItsFieldsInTheOrderInWhichTheyAreDocumented) {
  AttemptOutcome attempt;
  attempt.ranks = {{.rank = 0}};
  attempt.failure = FailureRecord{};
  const auto report = nlohmann::ordered_json::parse(json_report({.attempts = {attempt}}, 1, ""));
  EXPECT_THAT(keys_of(report),
              ElementsAre("format", "dlaunch", "job", "host", "command", "exit_code",
                          "launcher_error", "restarts", "first_failure", "attempts"));
  EXPECT_THAT(keys_of(report["attempts"][0]),
              ElementsAre("number", "started", "seconds", "got_ready", "ended_by", "first_failure",
                          "ranks"));
  EXPECT_THAT(keys_of(report["attempts"][0]["ranks"][0]),
              ElementsAre("rank", "host", "pid", "role", "exit_code", "signal", "signal_name",
                          "told_to_end", "seconds", "peak_memory_bytes", "user_seconds",
                          "system_seconds", "start_up", "last_lines"));
  EXPECT_THAT(keys_of(report["first_failure"]),
              ElementsAre("rank", "host", "pid", "attempt", "when_ns", "after_seconds", "exit_code",
                          "signal", "signal_name", "core_dumped", "probable_cause", "last_lines"));
}

TEST(FailureRecord, SurvivesTheWayToAnotherNode) {
  const FailureRecord by_signal{.rank = 7,
                                .host = "far",
                                .pid = 4711,
                                .attempt = 2,
                                .when_ns = 1'700'000'000'123'456'789,
                                .after_seconds = 1.5,
                                .signal = SIGSEGV,
                                .core_dumped = true,
                                .probable_cause = "a segmentation fault",
                                .last_lines = {"one", "two \"quoted\""}};
  FailureRecord by_code = by_signal;
  by_code.signal = 0;
  by_code.exit_code = 3;
  by_code.probable_cause = "";
  for (const FailureRecord& record : {by_signal, by_code}) {
    const auto parsed = parse_failure(serialize(record));
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(*parsed, record);
  }
  EXPECT_EQ(parse_failure("{\"rank\": 1}").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(parse_failure("nonsense").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace dlaunch::testing
