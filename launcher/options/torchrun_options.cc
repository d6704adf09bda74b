#include "launcher/options/torchrun_options.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "launcher/base/number_list.h"
#include "launcher/options/option_group.h"
#include "launcher/options/values.h"

namespace dlaunch {
namespace {

constexpr int kHighestLocalRank = 1 << 20;

// Taken, and left without an effect.
struct IdleOption {
  const char* names;
  const char* value;
  const char* why;
};
constexpr std::array kIdleOptions{
    IdleOption{"--monitor-interval", "SECONDS", "the end of a rank is noticed at once"},
    IdleOption{"--start-method", "METHOD", "ranks are programs of their own"},
    IdleOption{"--event-log-handler", "NAME", "--report FILE tells what became of every rank"},
    IdleOption{"--log-line-prefix-template", "TEXT",
               "--output prefix puts [rank N] before all lines"},
    IdleOption{"--duplicate-stdout-filters", "WORDS", "--log-dir DIR keeps all output"},
    IdleOption{"--duplicate-stderr-filters", "WORDS", "--log-dir DIR keeps all output"},
    IdleOption{"--numa-binding", "MODE", "--bind core, numa or none says where ranks run"},
    IdleOption{"--signals-to-handle", "SIGNALS",
               "SIGINT, SIGTERM and SIGHUP end the job, SIGUSR1 and SIGUSR2 are passed on"},
};

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// "join_timeout=900,read_timeout=60"
void take_configuration(const std::string& text, TorchrunOptions& options) {
  std::optional<std::chrono::nanoseconds> timeout;
  std::string idle;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto equals = std::min(part.find('='), part.size());
    const std::string key(trimmed(std::string_view(part).substr(0, equals)));
    const std::string value(
        trimmed(std::string_view(part).substr(std::min(equals + 1, part.size()))));
    if (key.empty() || value.empty()) throw BadValue("'" + part + "' is not KEY=VALUE");
    if (key == "join_timeout") {
      options.join_timeout = parse_seconds(value, Zero::kRefused);
    } else if (key == "timeout") {  // the same, with another of torchrun's backends
      timeout = parse_seconds(value, Zero::kRefused);
    } else if (key == "last_call_timeout") {
      options.last_call = parse_seconds(value, Zero::kAllowed);
    } else {
      idle += (idle.empty() ? "" : ", ") + key;
    }
  }
  if (!options.join_timeout) options.join_timeout = timeout;
  if (idle.empty()) return;
  options.warnings.push_back("--rdzv-conf: no effect of " + idle +
                             ": only join_timeout, timeout and last_call_timeout have one");
}

// --redirects and --tee: "3", or "0:1,1:2" by local rank; 1 is stdout, 2 stderr, 3 both, 0 none.
bool names_a_stream(const std::string& text) {
  std::istringstream parts(text);
  bool any = false;
  bool some = false;
  for (std::string part; std::getline(parts, part, ',');) {
    const auto colon = part.find(':');
    const bool has_rank = colon != std::string::npos;
    const auto streams = parse_integer(has_rank ? part.substr(colon + 1) : part, 0, 3);
    const bool rank_ok = !has_rank || parse_integer(part.substr(0, colon), 0, kHighestLocalRank);
    if (!streams || !rank_ok) {
      throw BadValue("'" + text + "' is neither a number from 0 to 3 nor a list such as 0:1,1:2");
    }
    some = true;
    any = any || *streams > 0;
  }
  if (!some) throw BadValue("'' is neither a number from 0 to 3 nor a list such as 0:1,1:2");
  return any;
}

void add_stream_options(const OptionGroup& group, TorchrunOptions& options) {
  const auto add = [&](const std::string& names, const std::string& warning) {
    group.add(names, "STREAMS", "", [&options, warning](const std::string& text) {
      if (names_a_stream(text)) options.warnings.push_back(warning);
    });
  };
  add("--redirects,-r",
      "--redirects has no effect: --log-dir DIR keeps all output, --only says whose is shown");
  add("--tee,-t", "--tee has no effect: --log-dir DIR keeps all output, and shows it");
}

}  // namespace

void add_torchrun_options(CLI::App& app, TorchrunOptions& options) {
  OptionGroup(app, "Job")
      .add_flag("--module,-m", "PROGRAM is a Python module: python3 -u -m PROGRAM",
                [&] { options.module = true; });
  const OptionGroup unlisted(app, "");
  unlisted.add_flag("--no-python", "", [&] { options.no_python = true; });
  unlisted.add(
      "--role", "NAME", "",
      [&](const std::string& text) { options.role = parse_text(text, "role"); }, "PET_ROLE");
  unlisted.add(
      "--rdzv-conf", "KEY=VALUE,...", "",
      [&](const std::string& text) { take_configuration(text, options); }, "PET_RDZV_CONF");
  unlisted.add("--local-ranks-filter", "RANKS", "", [&](const std::string& text) {
    options.local_ranks = parse_number_list(text, kHighestLocalRank);
    if (!options.local_ranks) throw BadValue("'" + text + "' is not a list of ranks such as 0,2");
  });
  add_stream_options(unlisted, options);
  for (const IdleOption& idle : kIdleOptions) {
    const std::string warning = std::string(idle.names) + " has no effect: " + idle.why;
    unlisted.add(idle.names, idle.value, "",
                 [&options, warning](const std::string&) { options.warnings.push_back(warning); });
  }
}

std::vector<std::string> module_command(const std::vector<std::string>& module) {
  const char* named = std::getenv("PYTHON_EXEC");  // NOLINT(concurrency-mt-unsafe): one thread
  std::vector<std::string> command{named == nullptr ? "python3" : named, "-u", "-m"};
  command.insert(command.end(), module.begin(), module.end());
  return command;
}

}  // namespace dlaunch
