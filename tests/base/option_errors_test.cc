#include "runtime/base/option_errors.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

namespace dlaunch {
namespace {

// As a program with commands, of which one has an option and a positional argument.
std::string said_of(std::vector<std::string> reversed_words) {
  CLI::App app("", "program");
  app.require_subcommand(1);
  app.add_flag("--version");
  CLI::App* const get = app.add_subcommand("get");
  int count = 0;
  int pid = 0;
  std::string key;
  get->add_option("--counts", count)->check(CLI::Range(1, 9));
  get->add_option("--pid", pid);
  get->add_option("KEY", key)->required();
  app.add_subcommand("list");
  try {
    app.parse(std::move(reversed_words));
  } catch (const CLI::ParseError& error) {
    return refusal(app, error);
  }
  return "";
}

std::string refusal_of(std::vector<std::string> words) {
  return said_of({words.rbegin(), words.rend()});  // in which order CLI11 takes them
}

TEST(OptionErrors, AreSilentWhereNothingIsWrong) {
  EXPECT_EQ(refusal_of({"get", "--counts", "3", "key"}), "");
}

TEST(OptionErrors, NameTheOptionThatIsNone) {
  EXPECT_EQ(refusal_of({"get", "--count", "3", "key"}),
            "unknown option --count; did you mean --counts? (try program get --help)");
  EXPECT_EQ(refusal_of({"get", "--count=3", "key"}),
            "unknown option --count; did you mean --counts? (try program get --help)");
  EXPECT_EQ(refusal_of({"get", "--zzz", "key"}), "unknown option --zzz; try program get --help");
  EXPECT_EQ(refusal_of({"--versoin", "list"}),
            "unknown option --versoin; did you mean --version? (try program list --help)");
}

TEST(OptionErrors, NameItBeforeWhatComesOfIt) {
  EXPECT_EQ(refusal_of({"get", "--couns"}),  // KEY is missing, too
            "unknown option --couns; did you mean --counts? (try program get --help)");
  EXPECT_EQ(refusal_of({"get", "--counts", "0", "key", "--zzz"}),
            "unknown option --zzz; try program get --help");
}

TEST(OptionErrors, SayWhereAnOptionOfACommandGoes) {
  EXPECT_EQ(refusal_of({"--counts", "3", "get", "key"}),
            "--counts goes after get; try program get --help");
  EXPECT_EQ(refusal_of({"list", "--version"}),
            "--version goes before list; try program list --help");
}

TEST(OptionErrors, ListTheCommands) {
  EXPECT_EQ(refusal_of({}), "a command is missing: one of get, list; try program --help");
  EXPECT_EQ(refusal_of({"lits"}),
            "'lits' is none of get, list; did you mean list? (try program --help)");
  EXPECT_EQ(refusal_of({"--counts"}), "unknown option --counts; try program --help");
}

TEST(OptionErrors, SayWhatIsTooMuchOrMissing) {
  EXPECT_EQ(refusal_of({"list", "more"}), "unexpected argument 'more'; try program list --help");
  EXPECT_EQ(refusal_of({"get"}), "KEY is required; try program get --help");
  EXPECT_EQ(refusal_of({"get", "key", "--counts", "x"}),
            "--counts: Value x not in range 1 to 9; try program get --help");
  EXPECT_EQ(refusal_of({"get", "key", "--pid", "x"}),
            "--pid cannot be 'x'; try program get --help");
  EXPECT_EQ(refusal_of({"get", "key", "--counts"}),
            "--counts needs a value (N); try program get --help");
  EXPECT_EQ(refusal_of({"get", "key", "--counts", "1", "--counts", "2"}),
            "--counts is given more than once; try program get --help");
}

TEST(OptionErrors, LeaveTheWordsBehindALaunchersOptionsAlone) {
  CLI::App app("", "launcher");
  app.prefix_command();
  int ranks = 0;
  app.add_option("--ranks", ranks)->check(CLI::Range(1, 9));
  std::vector<std::string> reversed = {"--zzz", "program", "10", "--ranks"};
  try {
    app.parse(reversed);
    FAIL() << "10 is not in range";
  } catch (const CLI::ParseError& error) {
    EXPECT_EQ(in_words(app, error), "--ranks: Value 10 not in range 1 to 9");
  }
}

}  // namespace
}  // namespace dlaunch
