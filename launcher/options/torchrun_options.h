// Options of torchrun beside those that dlaunch has too: command lines that were written for it
// need not be edited. What has no effect here leads to a line on stderr. docs/launcher.md lists
// them all.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace dlaunch {

struct TorchrunOptions {
  bool module = false;           // the program is a module of Python
  bool no_python = false;        // the program is a program, as it is anyway
  std::string role = "default";  // the ranks' ROLE_NAME
  std::optional<std::chrono::nanoseconds> join_timeout;  // by --rdzv-conf, as is
  std::optional<std::chrono::nanoseconds> last_call;     // how long a job that could begin waits
  std::optional<std::vector<int>> local_ranks;           // of this node, that are shown; ascending
  std::vector<std::string> warnings;                     // of what has no effect; a line each
};

/// All but --module are left out of --help.
void add_torchrun_options(CLI::App& app, TorchrunOptions& options);

/// What --module starts: the interpreter, by PYTHON_EXEC as with torchrun, with the module and its
/// arguments.
std::vector<std::string> module_command(const std::vector<std::string>& module);

}  // namespace dlaunch
