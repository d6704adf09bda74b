#include "launcher/command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "launcher/binding.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/nearest_name.h"

namespace dlaunch {
namespace {

constexpr int kMostRanks = 4096;
constexpr double kLongestSeconds = 366.0 * 24 * 3600;

constexpr const char* kFooter =
    "Examples:\n"
    "  dlaunch --nproc 4 ./prog --its-own-option     four ranks of ./prog\n"
    "  dlaunch --nproc auto dtrain config.json       as many ranks as there are cores\n"
    "  dlaunch --nproc 2 --timeout 60 -- ./test -v   ended after a minute\n"
    "\n"
    "stdout is the ranks' own, untouched. stderr has '[rank N] ' before each line. stdin goes to\n"
    "rank 0. The first rank that fails ends the job and gives the exit code (128 + signal if "
    "killed);\n"
    "124: --timeout passed, 125: dlaunch itself failed, 126 and 127: the program cannot be run or\n"
    "does not exist.";

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: dlaunch --nproc N [options] [--] PROGRAM [ARGS...]\n";
  }
};

int parse_ranks(const std::string& text) {
  if (text == "auto" || text == "cpu") return usable_cores();
  int ranks = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ranks);
  if (error != std::errc() || stop != end || ranks < 1 || ranks > kMostRanks) {
    throw CLI::ValidationError("--nproc", "'" + text + "' is not a number of ranks from 1 to " +
                                              std::to_string(kMostRanks) + ", 'auto' or 'cpu'");
  }
  return ranks;
}

std::uint16_t parse_port(const std::string& text) {
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, port);
  if (error != std::errc() || stop != end || port == 0) {
    throw CLI::ValidationError("--port", "'" + text + "' is not a port from 1 to 65535");
  }
  return port;
}

std::chrono::nanoseconds parse_seconds(const char* option, const std::string& text,
                                       bool zero_allowed) {
  double seconds = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  if (error != std::errc() || stop != end || !(seconds >= 0) || seconds > kLongestSeconds ||
      (seconds == 0 && !zero_allowed)) {
    throw CLI::ValidationError(
        option, "'" + text + "' is not a number of seconds" + (zero_allowed ? "" : " above 0"));
  }
  return std::chrono::nanoseconds(std::llround(seconds * 1e9));
}

std::string unknown_option(const CLI::App& app, const std::string& given) {
  const std::string name = given.substr(0, given.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  }
  const std::string nearest = nearest_name(name, known);
  std::string text = "unknown option " + name;
  if (!nearest.empty()) text += "; did you mean " + nearest + "?";
  return text + " (options of the program go after it)";
}

EarlyExit refuse(const std::string& why) {
  return {kLauncherFailure, "dlaunch: " + why + "; try dlaunch --help\n"};
}

}  // namespace

std::variant<JobOptions, EarlyExit> parse_command_line(int argc, const char* const* argv) {
  CLI::App app("Starts N ranks of a program, watches them, and leaves nothing behind.", "dlaunch");
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kFooter);
  app.set_version_flag("--version", "dlaunch " DLAUNCH_VERSION);
  app.set_help_flag("-h,--help", "Show this and exit");
  app.prefix_command();
  app.get_formatter()->column_width(38);

  std::string ranks;
  std::string timeout;
  std::string grace = "5";
  std::string port;
  std::string bind = "cores";
  JobOptions options;
  app.add_option("--nproc,--nproc-per-node,--nproc_per_node", ranks, "Number of ranks, auto or cpu")
      ->type_name("N");
  app.add_option("--timeout", timeout, "End the job after this time (exit code 124)")
      ->type_name("SECONDS");
  app.add_option("--grace", grace, "From SIGTERM to SIGKILL when the job is ended (default 5)")
      ->type_name("SECONDS");
  app.add_option("--port", port, "Port of the rendezvous store (default: any)")->type_name("PORT");
  app.add_option("--bind", bind, "cores: each rank to its share of the cores (default); or none")
      ->type_name("WHAT")
      ->check(CLI::IsMember({"cores", "none"}));
  try {
    app.parse(argc, argv);
    options.command = app.remaining();
    if (!options.command.empty() && options.command.front() == "--") {
      options.command.erase(options.command.begin());
    } else if (!options.command.empty() && options.command.front().starts_with("-")) {
      return refuse(unknown_option(app, options.command.front()));
    }
    if (ranks.empty()) return refuse("how many ranks? (--nproc N)");
    options.ranks = parse_ranks(ranks);
    options.grace = parse_seconds("--grace", grace, true);
    options.bind_to_cores = bind == "cores";
    if (!port.empty()) options.store_port = parse_port(port);
    if (!timeout.empty()) options.timeout = parse_seconds("--timeout", timeout, false);
    if (options.command.empty()) return refuse("which program?");
  } catch (const CLI::CallForHelp&) {
    return EarlyExit{kExitOk, app.help()};
  } catch (const CLI::CallForVersion& version) {
    return EarlyExit{kExitOk, std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return refuse(error.what());
  }
  return options;
}

}  // namespace dlaunch
