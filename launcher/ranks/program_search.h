// Finds the program to run, as a shell would, before anything is started.
#pragma once

#include <string>
#include <variant>

namespace dlaunch {

struct ProgramError {
  int exit_code;  // kLauncherNotFound or kLauncherNotExecutable
  std::string text;
};

/// The path of `name`: itself if it has a slash, else the first match in PATH.
std::variant<std::string, ProgramError> find_program(const std::string& name);

}  // namespace dlaunch
