// The short report that dlaunch writes to stderr when a job did not simply succeed.
#pragma once

#include <string>
#include <vector>

#include "launcher/outcome.h"

namespace dlaunch {

/// The report's lines; none if all went well. `last_lines` are the failed rank's last lines on
/// stderr, empty if the user has them before his eyes.
std::vector<std::string> make_report(const JobOutcome& outcome,
                                     const std::vector<std::string>& last_lines);

/// "SIGSEGV".
std::string signal_name(int signal);

}  // namespace dlaunch
