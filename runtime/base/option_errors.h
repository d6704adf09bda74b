// What is wrong with a command line, in one line that says what to do; the same of every program.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace dlaunch {

/// "unknown option --count; did you mean --counts?", of an option that neither `app` nor the
/// subcommand that was given has.
std::string unknown_option(const CLI::App& app, const std::string& name);

/// What `error`, which `app` has thrown while it parsed, says.
std::string in_words(const CLI::App& app, const CLI::ParseError& error);

/// `text` with "; try COMMAND --help" behind it.
std::string with_help(const std::string& text, const std::string& command);

/// Both: in_words(), with the help of `app` or of the subcommand that was given.
std::string refusal(const CLI::App& app, const CLI::ParseError& error);

/// "'plus' is none of sum, avg, prod", and which of these may be meant.
std::string none_of(const std::string& word, const std::vector<std::string>& names);

}  // namespace dlaunch
