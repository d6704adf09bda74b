// What the main() of a program that runs as a rank does: run it, and turn what it throws into one
// line and the exit code by which dlaunch tells the rank that failed from those that lost it.
#pragma once

#include <cstdio>
#include <utility>

#include "runtime/base/exit_codes.h"
#include "runtime/base/run_program.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// The code that docs/exit-codes.md has for a failure of a communicator or of the environment that
/// describes the job.
inline ExitCode exit_code_of(const Status& status) {
  if (status.ok()) return kExitOk;
  return status.code() == StatusCode::kInvalidArgument ? kExitUsage : kExitCommunication;
}

/// Returns what `body` does: kExitOk, or why it failed. If it throws, stderr says why under `name`,
/// and the code is that of the Status of a StatusError, else kExitFailure.
///
///   int main() {
///     return dlaunch::run_rank("my_program", [] {
///       const auto world = dlaunch::connect_world().value_or_throw();
///       ...
///       return dlaunch::kExitOk;
///     });
///   }
template <typename Body>
int run_rank(const char* name, Body&& body) {
  return run_program(name, kExitFailure, [&]() -> int {
    try {
      return std::forward<Body>(body)();
    } catch (const StatusError& error) {
      std::fprintf(stderr, "%s: %s\n", name, error.what());
      return exit_code_of(error.status());
    }
  });
}

}  // namespace dlaunch
