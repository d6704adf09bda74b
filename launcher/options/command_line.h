// What the user asked for: dlaunch's command line as a value. Each group of options is a pair of
// files in launcher/options.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/options/node_options.h"
#include "launcher/options/output_options.h"
#include "launcher/options/placement_options.h"
#include "launcher/options/supervision_options.h"
#include "launcher/options/torchrun_options.h"

namespace dlaunch {

/// What dlaunch does besides starting jobs: `dlaunch COMMAND ...`.
inline constexpr std::array<const char*, 4> kCommands{"doctor", "status", "token", "completion"};

struct JobOptions {
  int ranks = 0;                     // of this node; 0: not said
  bool dry_run = false;              // only say what would be started
  std::vector<std::string> command;  // the program and its arguments, never empty
  OutputOptions output;
  SupervisionOptions supervision;
  NodeOptions nodes;
  PlacementOptions placement;
  TorchrunOptions torchrun;
};

/// There is nothing to launch: print `text` (to stderr if `exit_code` is not 0) and exit.
struct EarlyExit {
  int exit_code;
  std::string text;
};

/// An option as --help shows it.
struct OptionEntry {
  std::vector<std::string> names;  // "--nproc" first, then its other spellings; "-m" last
  std::string value;               // "N|auto|gpu|cpu"; empty: it takes none
  std::string help;
  bool listed = true;  // false: it is taken, but --help leaves it out
};
std::vector<OptionEntry> option_table();

/// Reads the command line. Whatever follows the program, or "--", is the program's.
std::variant<JobOptions, EarlyExit> parse_command_line(int argc, const char* const* argv);

/// Settles how many ranks this node has, `by_manager` where the command line does not say (both as
/// --nproc takes it), and with that their GPUs. `alone`: there is no other node.
std::variant<JobOptions, EarlyExit> settle_ranks(JobOptions options,
                                                 const std::optional<std::string>& by_manager,
                                                 bool alone);

/// Whether the arguments of a command (`argv[0]` is its name) are --help or -h, and nothing else.
bool asks_for_help(int argc, const char* const* argv);

}  // namespace dlaunch
