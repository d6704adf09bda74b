// The manual pages of the tools know all that --help does (dlaunch's:
// tests/launcher/manual_test.cc).
#include <unistd.h>

#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/manual_page.h"
#include "tests/support/subprocess.h"

namespace dlaunch::testing {
namespace {

using Words = std::set<std::string>;

Words words_like(const std::string& pattern, const std::string& text) {
  const std::regex expression(pattern, std::regex::multiline);
  Words found;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    found.insert((*match)[1]);
  return found;
}

std::string help_of(const std::string& program, const std::vector<std::string>& command) {
  Command line{.arguments = {built_program(program)}};
  line.arguments.insert(line.arguments.end(), command.begin(), command.end());
  line.arguments.emplace_back("--help");
  const auto result = run_command(line);
  EXPECT_EQ(result.exit_code, 0) << program << ": " << result.error;
  return result.out;
}

const std::string kOption = "(?:^|[ ,\"])(--[a-z][a-z-]*)";

class ManualPage : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (access(built_program(GetParam()).c_str(), X_OK) != 0)
      GTEST_SKIP() << GetParam() << " is not built";
  }
};

// What the program's help and those of its commands name.
std::pair<Words, Words> options_and_commands(const std::string& program) {
  const std::string help = help_of(program, {});
  Words options = words_like(kOption, help);
  const std::size_t list = help.find("\nSubcommands:\n");
  if (list == std::string::npos) return {options, {}};
  const Words commands = words_like("^  ([a-z0-9]+) ", help.substr(list));
  for (const std::string& command : commands)
    options.merge(words_like(kOption, help_of(program, {command})));
  return {options, commands};
}

TEST_P(ManualPage, HasTheOptionsAndCommandsOfTheProgramAndNoOthers) {
  const std::string page = manual_page(std::string(SOURCE_ROOT) + "/docs/man/" + GetParam() + ".1");
  const auto [options, commands] = options_and_commands(GetParam());
  EXPECT_TRUE(options.contains("--help"));
  const std::size_t begin = page.find(".SH OPTIONS");
  const std::size_t end = page.find(".SH E", begin);  // of ENVIRONMENT or EXIT STATUS
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(words_like(kOption, page.substr(begin, end - begin)), options);
  for (const std::string& command : commands) {
    EXPECT_TRUE(std::regex_search(page, std::regex("[ \"]" + command + "[ \",\n]"))) << command;
  }
}

INSTANTIATE_TEST_SUITE_P(Tools, ManualPage, ::testing::Values("dbench", "dstore", "dtrain"),
                         [](const auto& program) { return program.param; });

}  // namespace
}  // namespace dlaunch::testing
