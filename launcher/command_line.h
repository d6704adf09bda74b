// What the user asked for: dlaunch's command line as a value.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dlaunch {

struct JobOptions {
  int ranks = 0;
  std::optional<std::chrono::nanoseconds> timeout;  // of the whole job
  std::chrono::nanoseconds grace = std::chrono::seconds(5);
  std::uint16_t store_port = 0;      // 0: chosen by the system
  bool bind_to_cores = true;         // where there are enough of them
  std::vector<std::string> command;  // the program and its arguments, never empty
};

/// There is nothing to launch: print `text` (to stderr if `exit_code` is not 0) and exit.
struct EarlyExit {
  int exit_code;
  std::string text;
};

/// Reads the command line. Whatever follows the program, or "--", is the program's.
std::variant<JobOptions, EarlyExit> parse_command_line(int argc, const char* const* argv);

}  // namespace dlaunch
