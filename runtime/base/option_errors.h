// What is wrong with a command line, in one line that says what to do; the same of every program.
#pragma once

#include <string>

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

/// `text` with "; try dbench allreduce --help" behind it, or whatever `app` is called.
std::string with_help(const CLI::App& app, const std::string& text);

}  // namespace dlaunch
