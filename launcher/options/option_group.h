// OptionGroup: a group of dlaunch's options under one heading of --help, each with the function
// that takes its value. The order of groups and options is that of --help.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace dlaunch {

class OptionGroup {
 public:
  /// `app` outlives the parsing; it keeps what is added.
  OptionGroup(CLI::App& app, std::string heading) : app_(app), heading_(std::move(heading)) {}

  /// An option with a value. `names`: "--node-rank", or several with commas, of which the first is
  /// the one that --help shows; each is also known with underscores, as torchrun has it. `take` is
  /// given the text and throws BadValue (values.h) if it is none; the option's name is put before
  /// its message.
  /// `variable`: the environment variable that gives the value where the command line does not.
  void add(const std::string& names, const std::string& value_name, const std::string& help,
           const std::function<void(const std::string&)>& take,
           const std::string& variable = "") const;

  /// An option without a value.
  void add_flag(const std::string& names, const std::string& help,
                const std::function<void()>& take) const;

 private:
  CLI::App& app_;
  std::string heading_;
};

}  // namespace dlaunch
