// `dlaunch status [JOB]`: lists this user's running jobs, or asks one what its ranks are doing.
#pragma once

namespace dlaunch {

inline constexpr const char* kNoStacksHelp = "Do not stop the ranks for a look at their stacks";

/// `argv[0]` is "status". Returns the exit code: 0, 1 if there is no such job or none can be asked,
/// 125 for a wrong command line.
int status_command(int argc, const char* const* argv);

}  // namespace dlaunch
