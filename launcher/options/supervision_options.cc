#include "launcher/options/supervision_options.h"

#include "launcher/options/option_group.h"
#include "launcher/options/values.h"

namespace dlaunch {

void add_supervision_options(CLI::App& app, SupervisionOptions& options) {
  const OptionGroup group(app, "Supervision");
  group.add(
      "--timeout", "SECONDS", "End the job after this time (exit code 124)",
      [&](const std::string& text) { options.timeout = parse_seconds(text, Zero::kRefused); });
  group.add("--grace", "SECONDS", "From SIGTERM to SIGKILL when a job is ended (default 5)",
            [&](const std::string& text) { options.grace = parse_seconds(text, Zero::kAllowed); });
}

}  // namespace dlaunch
