// What dlaunch says about itself: --help, the man page, completion, doctor, token. All of them know
// all options.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/options/command_line.h"
#include "runtime/base/temporary_folder.h"
#include "runtime/base/token.h"
#include "tests/launcher/launcher_runs.h"
#include "tests/support/manual_page.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string output_of(const Strings& arguments) {
  Command command{.arguments = {built_program("dlaunch")}};
  command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  return result.out;
}

TEST(Help, FitsTwoScreensAndHasAllOptions) {
  const std::string help = output_of({"--help"});
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 2 * 24);
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  for (const OptionEntry& option : option_table()) {
    EXPECT_EQ(help.find(option.names.front() + " ") != std::string::npos, option.listed)
        << option.names.front();
  }
}

TEST(Help, OfEveryCommandIsItsUsage) {
  for (const std::string command : kCommands) {
    for (const char* help : {"--help", "-h"}) {
      EXPECT_THAT(output_of({command, help}), HasSubstr("dlaunch " + command)) << help;
    }
  }
}

std::string man_page() {
  return manual_page(DLAUNCH_MAN_PAGE);
}

TEST(ManPage, HasAllVariablesOfARank) {
  const std::string text = man_page();
  const auto result = run_command({.arguments = {"/usr/bin/env", "-i", built_program("dlaunch"),
                                                 "--nproc", "2", "/usr/bin/env"}});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find('='));
    EXPECT_THAT(text, ::testing::ContainsRegex("[^A-Z_]" + name + "[^A-Z_]"));
  }
}

TEST(ManPage, HasAllSignals) {
  for (const char* name :
       {"SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT"}) {
    EXPECT_THAT(man_page(), HasSubstr(name));
  }
}

TEST(ManPage, HasAllOptions) {
  const std::string text = man_page();
  for (const OptionEntry& option : option_table()) {
    EXPECT_THAT(text, HasSubstr(option.names.front()));
  }
}

TEST(Completion, OfEveryShellHasAllOptions) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string script = output_of({"completion", shell});
    for (const OptionEntry& option : option_table()) {
      const std::string name = option.names.front();
      if (!option.listed && option.value.empty()) continue;  // not offered, and with nothing behind
      const bool offered = shell == "fish" && option.listed;
      EXPECT_THAT(script, HasSubstr(offered ? "-l " + name.substr(2) : name));
    }
  }
}

// What bash would offer for the last of `words`.
std::string offered(const std::string& words) {
  const std::string script =
      "source <(\"$1\" completion bash); COMP_WORDS=(dlaunch " + words +
      "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _dlaunch; printf '%s\\n' \"${COMPREPLY[@]}\"";
  const auto result =
      run_command({.arguments = {"/bin/bash", "-c", script, "bash", built_program("dlaunch")}});
  return result.out;
}

TEST(Completion, OfBashKnowsAllSpellingsAndFilesWithBlanks) {
  for (const char* before : {"--role x", "-r 3", "--nproc_per_node 2", "--log-dir = d"}) {
    EXPECT_EQ(offered(std::string(before) + " --bi"), "--bind\n") << before;
  }
  EXPECT_EQ(offered("--nproc 1 -- --n"), "\n");
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/my logs");
  std::filesystem::create_directory(folder.path() + "/more");
  EXPECT_EQ(offered("--log-dir '" + folder.path() + "/my'"), folder.path() + "/my logs\n");
}

TEST(Completion, OfFishOffersNothingOfItsOwnBehindTheProgram) {
  if (access("/usr/bin/fish", X_OK) != 0) GTEST_SKIP() << "fish is not installed";
  const auto offered_by_fish = [](const std::string& line) {
    const std::string script = "\"$argv[1]\" completion fish | source; complete -C '" + line + "'";
    return run_command({.arguments = {"/usr/bin/fish", "--no-config", "-c", script,
                                      built_program("dlaunch")}})
        .out;
  };
  EXPECT_THAT(offered_by_fish("dlaunch --nproc 2 --ti"), HasSubstr("--timeout"));
  EXPECT_THAT(offered_by_fish("dlaunch --nproc-per-node 2 --ti"), HasSubstr("--timeout"));
  EXPECT_THAT(offered_by_fish("dlaunch --nproc 2 ./a.py --ti"), Not(HasSubstr("--timeout")));
  EXPECT_THAT(offered_by_fish("dlaunch --nproc 2 -- --ti"), Not(HasSubstr("--timeout")));
  EXPECT_EQ(offered_by_fish("dlaunch completion "), "bash\nfish\nzsh\n");
  EXPECT_THAT(offered_by_fish("dlaunch status --"), HasSubstr("--no-stacks"));
  EXPECT_THAT(offered_by_fish("dlaunch docto"), HasSubstr("doctor"));
}

TEST(Completion, OfBashOffersOptionsAndTheirValues) {
  EXPECT_EQ(offered("--bi"), "--bind\n");
  EXPECT_EQ(offered("--bind n"), "numa\nnone\n");
  EXPECT_EQ(offered("--output = pre"), "prefix\n");
  EXPECT_EQ(offered("--nproc 2 ./program --bi"), "\n");
}

TEST(Completion, OfBashOffersCommandsAndWhatTheyTake) {
  EXPECT_EQ(offered("docto"), "doctor\n");
  const std::string first = offered("''");
  for (const char* const command : kCommands) EXPECT_THAT(first, HasSubstr(command));
  EXPECT_THAT(first, Not(HasSubstr("esac"))) << "all that can be run";
  EXPECT_EQ(offered("completion ''"), "bash\nzsh\nfish\n");
  EXPECT_EQ(offered("status --n"), "--no-stacks\n");
}

TEST(Token, IsAFreshSecretThatATokenFileMayHold) {
  const std::string one = output_of({"token"});
  const std::string other = output_of({"token"});
  EXPECT_NE(one, other);
  for (const std::string& text : {one, other}) {
    EXPECT_THAT(text, MatchesRegex("[0-9a-f]*\n"));
    const auto token = token_from_hex(text);
    ASSERT_TRUE(token.ok()) << token.status().to_string();
    EXPECT_EQ(token->size(), kTokenBytes);
  }
}

TEST(Token, TakesNoArguments) {
  const auto result = run_command({.arguments = {built_program("dlaunch"), "token", "mine"}});
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.error, HasSubstr("token takes no arguments"));
  EXPECT_EQ(result.out, "");
}

TEST(Token, ThatCannotBeWrittenIsAFailure) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "there is no /dev/full";
  const auto result = run_command(
      {.arguments = {"/bin/sh", "-c", "\"$0\" token > /dev/full", built_program("dlaunch")}});
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.error, HasSubstr("standard output"));
}

TEST(Doctor, SaysOfEverythingThatItIsGoodOrWhatToDo) {
  const auto result = run_command({.arguments = {built_program("dlaunch"), "doctor"}});
  const bool warns = ("\n" + result.out).find("\nwarn  ") != std::string::npos;
  EXPECT_EQ(result.exit_code, warns ? 1 : 0) << result.out;
  EXPECT_EQ(result.error, "");
  bool warned = false;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const std::string head = line.substr(0, 6);
    const bool advice = std::exchange(warned, head == "warn  " || head == "note  ");
    if (advice) {
      EXPECT_EQ(line.substr(0, 9), "      -> ") << line;
    } else if (!warned && head != "ok    ") {
      EXPECT_THAT(line, HasSubstr(" warning")) << line;
    }
  }
  for (const char* subject :
       {"open files", "cores", "ports", "/proc", "memfd", "process_vm_readv", "GPUs"}) {
    EXPECT_THAT(result.out, HasSubstr(subject));
  }
}

TEST(Doctor, TakesNoArguments) {
  const auto result = run_command({.arguments = {built_program("dlaunch"), "doctor", "house"}});
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.error, HasSubstr("house"));
}

}  // namespace
}  // namespace dlaunch::testing
