// `dlaunch token`: prints a new secret for a job of several nodes, as --token-file takes it.
#pragma once

namespace dlaunch {

/// `argv[0]` is "token". Returns the exit code: 0, 125 for a wrong command line or a lost output.
int token_command(int argc, const char* const* argv);

}  // namespace dlaunch
