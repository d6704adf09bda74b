#include "runtime/base/option_errors.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <CLI/CLI.hpp>

#include "runtime/base/nearest_name.h"
#include "runtime/base/option_help.h"

namespace dlaunch {
namespace {

std::vector<const CLI::App*> subcommands(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* given_subcommand(const CLI::App& app) {
  for (const CLI::App* sub : subcommands(app)) {
    if (sub->parsed()) return sub;
  }
  return nullptr;
}

bool is_option(std::string_view word) {
  return word.size() > 1 && word.front() == '-';
}

void add_options(const CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
}

std::string suggestion(const std::string& dashes, const std::string& word,
                       const std::vector<std::string>& names) {
  const std::string nearest = nearest_name(word, names);
  return nearest.empty() ? "" : "; did you mean " + dashes + nearest + "?";
}

// Of what is there beside `words`, which are empty if nothing is.
std::string missing_subcommand(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const CLI::App* sub : subcommands(app)) names.push_back(sub->get_name());
  return words.empty() ? fmt::format("a command is missing: one of {}", fmt::join(names, ", "))
                       : none_of(words.front(), names);
}

bool lacks_subcommand(const CLI::App& app) {
  return app.get_require_subcommand_min() > 0 && given_subcommand(app) == nullptr;
}

// The library has its own way to say this of all options: "--nproc: At Most 1 required but received
// 2", "--nproc: 1 required N missing", "dry-run was given a disallowed flag override".
std::string reworded(const std::string& text) {
  const auto split_at = [&](std::string_view infix) {
    const auto place = text.find(infix);
    return place == std::string::npos
               ? std::nullopt
               : std::optional(std::pair(text.substr(0, place), text.substr(place + infix.size())));
  };
  if (const auto twice = split_at(": At Most 1 ")) return twice->first + " is given more than once";
  if (const auto none = split_at(": 1 required ")) {
    const std::string value = none->second.substr(0, none->second.rfind(" missing"));
    return none->first + " needs a value (" + value_name(value) + ")";
  }
  if (const auto value = split_at("Could not convert: ")) {
    const std::size_t equals = value->second.find(" = ");
    return value->second.substr(0, equals) + " cannot be '" +
           value->second.substr(equals + std::string_view(" = ").size()) + "'";
  }
  if (const auto flag = split_at(" was given a disallowed flag override")) {
    return "--" + flag->first + " takes no value";
  }
  return text;
}

}  // namespace

std::string unknown_option(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  add_options(app, names);
  if (const CLI::App* sub = given_subcommand(app)) {
    // It has been given on the wrong side of the subcommand.
    if (sub->get_option_no_throw(name) != nullptr) return name + " goes after " + sub->get_name();
    if (app.get_option_no_throw(name) != nullptr) return name + " goes before " + sub->get_name();
    add_options(*sub, names);
  }
  const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  return "unknown option " + name + suggestion("--", bare, names);
}

std::string in_words(const CLI::App& app, const CLI::ParseError& error) {
  // Words that nobody has taken; behind the options of a launcher they are a program's.
  const std::vector<std::string> words =
      app.get_prefix_command() ? std::vector<std::string>() : app.remaining(true);
  // Whatever the library has found, such as a value that is missing, may come of it.
  if (const auto option = std::find_if(words.begin(), words.end(), is_option);
      option != words.end()) {
    return unknown_option(app, option->substr(0, option->find('=')));
  }
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && lacks_subcommand(app)) {
    return missing_subcommand(app, words);
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    return "unexpected argument '" + words.front() + "'";
  }
  return reworded(error.what());
}

std::string with_help(const std::string& text, const std::string& command) {
  const std::string advice = "try " + command + " --help";
  return text + (text.ends_with('?') ? " (" + advice + ")" : "; " + advice);
}

std::string refusal(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = app.get_name();
  if (const CLI::App* sub = given_subcommand(app)) command.append(" ").append(sub->get_name());
  return with_help(in_words(app, error), command);
}

std::string none_of(const std::string& word, const std::vector<std::string>& names) {
  return fmt::format("'{}' is none of {}{}", word, fmt::join(names, ", "),
                     suggestion("", word, names));
}

}  // namespace dlaunch
