// dlaunch: starts N ranks of a program, watches them, and leaves nothing behind.
#include <cstdio>
#include <memory>
#include <string_view>
#include <system_error>
#include <variant>

#include <unistd.h>

#include "launcher/doctor/doctor.h"
#include "launcher/job/launch_job.h"
#include "launcher/nodes/cluster_environment.h"
#include "launcher/nodes/node_settings.h"
#include "launcher/nodes/token_command.h"
#include "launcher/options/command_line.h"
#include "launcher/options/completion.h"
#include "launcher/ranks/dry_run.h"
#include "launcher/ranks/program_search.h"
#include "launcher/ranks/spawn.h"
#include "launcher/status/status_command.h"
#include "launcher/supervision/descendants.h"
#include "launcher/supervision/guard.h"
#include "launcher/supervision/signals.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/run_program.h"
#include "runtime/base/standard_descriptors.h"
#include "runtime/base/temporary_folder.h"

namespace dlaunch {
namespace {

// Where this node stands, by the options and the cluster's environment.
Result<NodeSettings> settle_nodes(const NodeOptions& options) {
  const Variables variables = own_variables();
  const auto cluster = detect_cluster(variables, full_host_name);
  const bool alone = options.standalone || options.nodes == "1";
  if (!cluster.ok() && !alone) return cluster.status();
  auto settings = resolve_nodes(options, cluster.ok() ? *cluster : ClusterEnvironment(), variables);
  if (!settings.ok() || !options.explain) return settings;
  for (const std::string& line : settings->explanation) {
    std::fprintf(stderr, "dlaunch: %s\n", line.c_str());
  }
  return settings;
}

// This process's group if stdin is its terminal, else 0. In the background too: it may come to the
// foreground.
pid_t terminal_group() {
  return isatty(STDIN_FILENO) != 0 && tcgetpgrp(STDIN_FILENO) >= 0 ? getpgrp() : 0;
}

// For what ranks record of their errors. None where no folder can be made: that is no reason not to
// run.
std::unique_ptr<TemporaryFolder> make_error_folder() {
  try {
    return std::make_unique<TemporaryFolder>();
  } catch (const std::system_error&) {
    return nullptr;
  }
}

int leave(const EarlyExit& early) {
  std::fputs(early.text.c_str(), early.exit_code == kExitOk ? stdout : stderr);
  return early.exit_code;
}

int run(int argc, const char* const* argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "doctor") return doctor_command(argc - 1, argv + 1);
  if (command == "completion") return completion_command(argc - 1, argv + 1);
  if (command == "status") return status_command(argc - 1, argv + 1);
  if (command == "token") return token_command(argc - 1, argv + 1);
  open_standard_descriptors();
  const std::vector<int> inherited = inherited_descriptors();
  const auto parsed = parse_command_line(argc, argv);
  if (const auto* early = std::get_if<EarlyExit>(&parsed)) return leave(*early);
  for (const std::string& line : std::get<JobOptions>(parsed).torchrun.warnings) {
    std::fprintf(stderr, "dlaunch: %s\n", line.c_str());
  }
  const auto nodes = settle_nodes(std::get<JobOptions>(parsed).nodes);
  if (!nodes.ok()) {
    std::fprintf(stderr, "dlaunch: %s\n", nodes.status().to_string().c_str());
    return kLauncherFailure;
  }
  const auto settled = settle_ranks(std::get<JobOptions>(parsed), nodes->ranks, !nodes->several());
  if (const auto* early = std::get_if<EarlyExit>(&settled)) return leave(*early);
  const auto& options = std::get<JobOptions>(settled);
  const auto program = find_program(options.command.front());
  if (const auto* error = std::get_if<ProgramError>(&program)) {
    std::fprintf(stderr, "dlaunch: %s\n", error->text.c_str());
    return error->exit_code;
  }
  if (options.dry_run) {
    std::fputs(describe_job(options, *nodes, std::get<std::string>(program)).c_str(), stdout);
    return kExitOk;
  }
  if (!can_find_descendants()) {
    std::fputs(
        "dlaunch: what ranks leave behind cannot be found: /proc is not mounted, or is that of "
        "another PID namespace\n",
        stderr);
    return kLauncherFailure;
  }
  const SignalSetup signals = block_signals();
  const pid_t foreground = terminal_group();
  // Here it is the guard's, who removes it whatever becomes of the launcher.
  const std::unique_ptr<TemporaryFolder> errors = make_error_folder();
  return guard(signals, [&](int guard_pipe) {
    return launch_job({.options = options,
                       .nodes = *nodes,
                       .program = std::get<std::string>(program),
                       .signals = signals,
                       .inherited = inherited,
                       .guard_pipe = guard_pipe,
                       .error_folder = errors == nullptr ? "" : errors->path(),
                       .terminal_group = foreground});
  });
}

}  // namespace
}  // namespace dlaunch

int main(int argc, char** argv) {
  return dlaunch::run_program("dlaunch", dlaunch::kLauncherFailure,
                              [&] { return dlaunch::run(argc, argv); });
}
