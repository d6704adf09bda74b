#include "launcher/options/supervision_options.h"

#include "launcher/options/option_group.h"
#include "launcher/options/values.h"
#include "runtime/base/job_environment.h"

namespace dlaunch {
namespace {

constexpr int kMostRestarts = 1'000'000;

int parse_restarts(const std::string& text) {
  const auto restarts = parse_integer(text, 0, kMostRestarts);
  if (!restarts) throw BadValue("'" + text + "' is not a number of restarts");
  return *restarts;
}

// Well before the ranks' waits end by themselves, with time to take stacks. Whether the variable is
// right, ranks say that read it.
std::chrono::nanoseconds default_stall_after() {
  const auto timeout = read_timeout();
  return (timeout.ok() ? *timeout : kDefaultTimeout) * 2 / 5;
}

}  // namespace

void add_supervision_options(CLI::App& app, SupervisionOptions& options) {
  options.stall_after = default_stall_after();
  const OptionGroup group(app, "Supervision");
  group.add(
      "--timeout", "SECONDS", "End the job after this time (exit code 124)",
      [&](const std::string& text) { options.timeout = parse_seconds(text, Zero::kRefused); });
  group.add(
      "--grace,--shutdown-timeout", "SECONDS",
      "Between SIGTERM and SIGKILL to end a job (default 5)",
      [&](const std::string& text) { options.grace = parse_seconds(text, Zero::kAllowed); },
      "PET_SHUTDOWN_TIMEOUT");
  group.add(
      "--max-restarts", "N", "Restart all ranks when one fails, up to N times (0)",
      [&](const std::string& text) { options.max_restarts = parse_restarts(text); },
      "PET_MAX_RESTARTS");
  group.add("--restart-delay", "SECONDS", "Delay before the first restart; doubles (default 1)",
            [&](const std::string& text) {
              options.restart_delay = parse_seconds(text, Zero::kAllowed);
            });
  group.add(
      "--ready-after", "SECONDS", "Restart only a job that ran this long (default 10)",
      [&](const std::string& text) { options.ready_after = parse_seconds(text, Zero::kAllowed); });
  group.add(
      "--stall-after", "SECONDS", "Report who waits for whom after no progress (120)",
      [&](const std::string& text) { options.stall_after = parse_seconds(text, Zero::kAllowed); });
  group.add("--report", "FILE", "Write the outcome of every rank to FILE, as JSON",
            [&](const std::string& text) { options.report = parse_text(text, "file"); });
}

}  // namespace dlaunch
