// OptionHelp: how this project's tools show their options in --help, and a check that CLI11's own
// are too lenient for.
#pragma once

#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

namespace dlaunch {

/// A number within this range; CLI::Range lets NaN through.
inline CLI::Validator number_range(double least, double most) {
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most)
          return std::string();
        std::ostringstream why;
        why << std::setprecision(10) << "Value " << text << " not in range " << least << " to "
            << most;
        return why.str();
      },
      "FLOAT in [...]");  // make_option_opts() leaves it out
}

/// What a value is called: "N" for CLI11's "INT:INT in [1 - 4096]", to which it has appended what
/// checks the value.
inline std::string value_name(std::string type) {
  for (const char* check : {":INT in ", ":UINT in ", ":FLOAT in ", ":value in ", ":POSITIVE",
                            ":NONNEGATIVE", ":SIZE ", ":FILE"}) {
    type = type.substr(0, type.find(check));
  }
  return type == "INT" || type == "UINT" ? "N" : type;
}

/// "--nproc N  Ranks to start (default 2)", in lines of 80 columns, instead of CLI11's
/// "--nproc INT:INT in [1 - 4096]=2". What a value has to be is said where one is refused.
class OptionHelp : public CLI::Formatter {
 public:
  OptionHelp() { column_width(kColumn); }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(CLI::Formatter::make_description(app), kLine);
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || !option->nonpositional()) return "";
    const std::string kind = value_name(option->get_type_name());
    const bool several = option->get_expected_max() > 1 && option->get_delimiter() != '\0';
    return " " + kind + (several ? ",..." : "");
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    if (!option->get_default_str().empty()) text += " (default " + option->get_default_str() + ")";
    return wrapped(std::move(text), kLine - kColumn);
  }

  std::string make_subcommand(const CLI::App* command) const override {
    std::ostringstream text;
    CLI::detail::format_help(text, command->get_name(),
                             wrapped(command->get_description(), kLine - kColumn), kColumn);
    return text.str();
  }

 private:
  static constexpr std::size_t kColumn = 30;
  static constexpr std::size_t kLine = 80;

  static std::string wrapped(std::string text, std::size_t width) {
    std::size_t begin = 0;
    while (text.size() - begin > width) {
      const std::size_t space = text.rfind(' ', begin + width);
      if (space == std::string::npos || space <= begin) break;  // a word longer than a line
      text[space] = '\n';
      begin = space + 1;
    }
    return text;
  }
};

}  // namespace dlaunch
