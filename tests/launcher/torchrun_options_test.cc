// Command lines that were written for torchrun: what each of its options does here.
#include <chrono>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/options/command_line.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::variant<JobOptions, EarlyExit> parse(Strings words) {
  words.insert(words.begin(), "dlaunch");
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return parse_command_line(static_cast<int>(pointers.size()), pointers.data());
}

JobOptions taken(const Strings& words) {
  auto parsed = parse(words);
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) {
    ADD_FAILURE() << early->text;
    return {};
  }
  return std::get<JobOptions>(std::move(parsed));
}

std::string refusal(const Strings& words) {
  const auto parsed = parse(words);
  const auto* early = std::get_if<EarlyExit>(&parsed);
  if (early == nullptr) return "(taken)";
  EXPECT_EQ(early->exit_code, 125);
  return early->text;
}

TEST(TorchrunOptions, WithoutAnEffectLeadToAWarningEach) {
  const Strings options = {"--monitor-interval=5",
                           "--start-method=spawn",
                           "--event_log_handler=null",
                           "--log-line-prefix-template=[x]",
                           "--duplicate-stdout-filters=a,b",
                           "--duplicate_stderr_filters=a",
                           "--numa-binding=node",
                           "--signals-to-handle=SIGTERM,SIGUSR1",
                           "--redirects=3",
                           "--tee=0:1,1:2"};
  Strings words = options;
  words.insert(words.end(), {"--nproc", "2", "program"});
  const JobOptions job = taken(words);
  EXPECT_EQ(job.command, Strings{"program"});
  EXPECT_EQ(job.torchrun.warnings.size(), options.size());
  for (const std::string& warning : job.torchrun.warnings) {
    EXPECT_THAT(warning, HasSubstr(" has no effect: "));
  }
}

TEST(TorchrunOptions, AreKnownByTheirLettersToo) {
  EXPECT_THAT(taken({"-r", "1", "-t", "2", "program"}).torchrun.warnings,
              ElementsAre(StartsWith("--redirects "), StartsWith("--tee ")));
}

TEST(TorchrunOptions, ThatChooseNoStreamsAreTakenWithoutAWord) {
  EXPECT_THAT(taken({"-r", "0", "--tee", "0:0,1:0", "program"}).torchrun.warnings, IsEmpty());
  for (const char* wrong : {"4", "both", "0:", "x:1", ""}) {
    EXPECT_THAT(refusal({"--tee", wrong, "program"}), HasSubstr("0:1,1:2")) << wrong;
  }
}

TEST(TorchrunOptions, OfTheRendezvousAreOursWhereThereIsOne) {
  const JobOptions job =
      taken({"--rdzv-conf", "last_call_timeout=7, timeout=800,join_timeout=900", "program"});
  EXPECT_EQ(job.nodes.join_timeout, 900s);
  EXPECT_EQ(job.nodes.last_call, 7s);
  EXPECT_THAT(job.torchrun.warnings, IsEmpty());
  EXPECT_EQ(taken({"--rdzv_conf=timeout=800", "program"}).nodes.join_timeout, 800s);
}

TEST(TorchrunOptions, OfTheRendezvousYieldToOurs) {
  for (const Strings& words :
       {Strings{"--rdzv-conf=timeout=800", "--rdzv-timeout=60", "program"},
        Strings{"--rdzv-timeout=60", "--rdzv-conf=timeout=800", "program"}}) {
    EXPECT_EQ(taken(words).nodes.join_timeout, 60s);
  }
}

TEST(TorchrunOptions, OfTheRendezvousThatMeanNothingHereAreNamedInOneLine) {
  EXPECT_THAT(
      taken({"--rdzv-conf=is_host=1,timeout=9,read_timeout=60", "program"}).torchrun.warnings,
      ElementsAre(StartsWith("--rdzv-conf: no effect of is_host, read_timeout: ")));
  EXPECT_THAT(refusal({"--rdzv-conf=timeout", "program"}), HasSubstr("'timeout' is not KEY=VALUE"));
  EXPECT_THAT(refusal({"--rdzv-conf=timeout=soon", "program"}), HasSubstr("'soon'"));
}

TEST(TorchrunOptions, NameTheProgramAsAModuleOfPython) {
  EXPECT_THAT(taken({"--nproc=2", "-m", "package.train", "--lr", "3"}).command,
              ElementsAre("python3", "-u", "-m", "package.train", "--lr", "3"));
  EXPECT_THAT(taken({"--module", "--", "train"}).command,
              ElementsAre("python3", "-u", "-m", "train"));
  EXPECT_THAT(taken({"--no-python", "train", "-m"}).command, ElementsAre("train", "-m"));
  EXPECT_THAT(refusal({"-m", "--no-python", "train"}), HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"--nproc=2", "-m"}), HasSubstr("no program is given"));
}

TEST(TorchrunOptions, NameTheInterpreterOfAModuleByAVariable) {
  Command command{.arguments = {built_program("dlaunch"), "--nproc", "1", "-m", "module", "x"}};
  command.environment = {{"PYTHON_EXEC", "/bin/echo"}};
  EXPECT_EQ(run_command(command).out, "-u -m module x\n");
}

TEST(TorchrunOptions, ChooseTheRanksThatAreShownOnOneNode) {
  const JobOptions job = taken({"--nproc=4", "--local-ranks-filter=2,0", "program"});
  const auto alone = settle_ranks(job, std::nullopt, true);
  EXPECT_EQ(std::get<JobOptions>(alone).output.only, (std::vector<int>{0, 2}));
  const auto several = settle_ranks(job, std::nullopt, false);
  EXPECT_THAT(std::get<EarlyExit>(several).text, HasSubstr("on several --only"));
  EXPECT_THAT(refusal({"--local-ranks-filter=0", "--only=0", "program"}), HasSubstr("one of them"));
  EXPECT_THAT(refusal({"--local-ranks-filter=first", "program"}), HasSubstr("'first'"));
}

TEST(TorchrunOptions, GiveTheRanksARole) {
  EXPECT_EQ(
      run_command(ranks_that({"only=1", "env=ROLE_NAME"}, {"--nproc=2", "--role=trainer"})).out,
      "1 ROLE_NAME=trainer\n");
}

TEST(TorchrunOptions, AreReadFromItsVariables) {
  Command command = ranks_that({"env=ROLE_NAME"}, {"--nproc=1"});
  command.environment = {{"PET_RDZV_CONF", "join_timeout=900,is_host=1"}, {"PET_ROLE", "judge"}};
  const auto result = run_command(command);
  EXPECT_EQ(result.out, "0 ROLE_NAME=judge\n");
  EXPECT_THAT(result.error, StartsWith("dlaunch: --rdzv-conf: no effect of is_host: "));
}

TEST(TorchrunOptions, LimitTheShutdownAsOurGrace) {
  EXPECT_EQ(taken({"--shutdown-timeout=30", "program"}).supervision.grace, 30s);
}

TEST(TorchrunOptions, ThatCannotBeFollowedAreRefusedWithAdvice) {
  EXPECT_THAT(refusal({"--run-path", "/train.py"}), HasSubstr("python3 SCRIPT"));
  EXPECT_THAT(refusal({"--logs_specs=mine", "program"}), HasSubstr("--log-dir DIR"));
  EXPECT_THAT(refusal({"--virtual-local-rank", "program"}), HasSubstr("--gpus-per-rank 1"));
  EXPECT_THAT(refusal({"--print-completion", "zsh"}), HasSubstr("dlaunch completion SHELL"));
  EXPECT_THAT(refusal({"--rdzv-backend=etcd-v2", "program"}), HasSubstr("dlaunch's own store"));
}

}  // namespace
}  // namespace dlaunch::testing
