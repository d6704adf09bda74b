// The short report that dlaunch writes to stderr when an attempt did not simply succeed.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/failure/outcome.h"

namespace dlaunch {

/// The report's lines; none if all went well. `repeat_last_lines`: the failed rank's last lines on
/// stderr belong to it, because the user has them no longer before his eyes.
std::vector<std::string> make_report(const AttemptOutcome& outcome, bool repeat_last_lines);

/// "dlaunch: rank 1 (pid 4711 on host1) failed with exit code 3 after 0.21 s", its probable cause,
/// and if asked for its last lines on stderr.
std::vector<std::string> describe_failure(const FailureRecord& failure, bool with_last_lines);

/// "1.50 s", "35 s".
std::string seconds(std::chrono::nanoseconds time);

}  // namespace dlaunch
