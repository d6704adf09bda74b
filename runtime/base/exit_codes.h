// Exit codes of the project's programs, as docs/exit-codes.md lists them.
#pragma once

namespace dlaunch {

/// Of programs that run as ranks (dtrain, sequential_print, dbench) and of anything built on them.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,        // anything not listed here
  kExitUsage = 2,          // command line or configuration refused
  kExitBadData = 3,        // data files or a checkpoint missing, truncated, wrong or of another run
  kExitCommunication = 4,  // a peer died or left, a deadline passed, ranks disagreed
  kExitDiverged = 5,       // training has left the numbers: a loss or a gradient is not finite
  kExitSignalled = 128,    // + the signal after which training has ended in good order
};

/// dlaunch's own, in the manner of timeout(1) and env(1). Otherwise it exits with the code of the
/// rank that failed first, 128 + signal if a signal ended it.
enum LauncherExitCode : int {
  kLauncherNodeLost = 122,       // a node of the job, or the one that hosts its store, was lost
  kLauncherRendezvous = 123,     // the nodes of the job did not come together
  kLauncherTimeout = 124,        // --timeout passed
  kLauncherFailure = 125,        // usage error, or the launcher itself failed
  kLauncherNotExecutable = 126,  // the program was found but cannot be run
  kLauncherNotFound = 127,       // there is no such program
};

}  // namespace dlaunch
