#include "launcher/options/option_group.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <CLI/CLI.hpp>

#include "launcher/options/values.h"

namespace dlaunch {
namespace {

// "--node-rank" becomes "--node-rank,--node_rank".
std::string with_underscores(const std::string& names) {
  std::istringstream stream(names);
  std::string all;
  for (std::string name; std::getline(stream, name, ',');) {
    std::string twin = name;
    std::replace(twin.begin() + 2, twin.end(), '-', '_');
    all += (all.empty() ? "" : ",") + name;
    if (twin != name) all += "," + twin;
  }
  return all;
}

}  // namespace

void OptionGroup::add(const std::string& names, const std::string& value_name,
                      const std::string& help, const std::function<void(const std::string&)>& take,
                      const std::string& variable) const {
  const std::string shown = names.substr(0, names.find(','));
  const auto guarded = [take, shown](const std::string& text) {
    try {
      take(text);
    } catch (const BadValue& error) {
      throw CLI::ValidationError(shown, error.what());
    }
  };
  CLI::Option* option =
      app_.add_option_function<std::string>(with_underscores(names), guarded, help)
          ->type_name(value_name)
          ->group(heading_);
  // A job within a job: the variables were meant for the outer one.
  const bool nested = std::getenv("DLAUNCH_JOB_ID") != nullptr;  // NOLINT(concurrency-mt-unsafe)
  if (!variable.empty() && !nested) option->envname(variable);
}

void OptionGroup::add_flag(const std::string& names, const std::string& help,
                           const std::function<void()>& take) const {
  app_.add_flag_callback(with_underscores(names), take, help)->group(heading_);
}

}  // namespace dlaunch
