#include "launcher/job/launch_job.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "launcher/failure/json_report.h"
#include "launcher/job/attempt_runner.h"
#include "launcher/job/several_nodes.h"
#include "launcher/job/single_node.h"
#include "launcher/output/rank_logs.h"
#include "launcher/ranks/exec_check.h"
#include "launcher/ranks/free_port.h"
#include "runtime/base/descriptor_room.h"
#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

// Three per rank, and a connection of each to the store. As measured with ranks that connect to
// each other: each of them opens about as many as dlaunch, which may keep two files for each
// besides.
std::int64_t enough_descriptors(const JobOptions& options) {
  const std::int64_t per_rank = options.output.log_dir.empty() ? 5 : 6;
  return 16 + per_rank * options.ranks;
}

// Says so if there are too few: what fails then, here or in a rank, cannot say how many it takes.
void make_room_for_descriptors(const JobOptions& options) {
  const std::int64_t limit = raise_descriptor_limit(kUsualDescriptors);
  const std::int64_t enough = std::min(enough_descriptors(options), kUsualDescriptors);
  if (limit >= enough) return;
  std::fprintf(stderr,
               "dlaunch: a process may open only %s files, %d rank%s can need %s; raise the hard "
               "limit (ulimit -Hn)\n",
               std::to_string(limit).c_str(), options.ranks, options.ranks == 1 ? "" : "s",
               std::to_string(enough).c_str());
}

JobEnd run_on_one(AttemptRunner& runner, const LaunchContext& context) {
  const Status launched = run_on_single_node(runner, context);
  if (!launched.ok()) return JobEnd::not_launched(launched);
  return {.exit_code = runner.outcome().attempts.back().exit_code()};
}

// A running job would start again with a node that cannot start its ranks, and once more without
// it. Where all nodes are needed the others are to be told, so such a node does join.
Status check_before_joining(const LaunchContext& context) {
  if (context.nodes.least == context.nodes.most) return {};
  if (const std::string& logs = context.options.output.log_dir; !logs.empty()) {
    DLAUNCH_RETURN_IF_ERROR(make_log_folder(logs));
  }
  return check_exec(context.program, context.options.command);
}

// `nodes` is the caller's: it leaves the others only when the user has been told.
JobEnd run_on_several(AttemptRunner& runner, const LaunchContext& context,
                      std::optional<SeveralNodes>& nodes) {
  const Status can_start = check_before_joining(context);
  if (!can_start.ok()) return JobEnd::not_launched(can_start);
  const auto master_port = find_free_port();
  if (!master_port.ok()) return JobEnd::not_launched(master_port.status());
  nodes.emplace(runner, context, *master_port);
  return nodes->run();
}

// What the system has not enough of ends the job, but not what is told of it.
JobEnd run_job(AttemptRunner& runner, const LaunchContext& context,
               std::optional<SeveralNodes>& nodes) {
  try {
    if (!context.nodes.several()) return run_on_one(runner, context);
    return run_on_several(runner, context, nodes);
  } catch (const std::exception& error) {
    return {.exit_code = kLauncherFailure, .error = error.what()};
  }
}

// Tells the user what is wrong, and everything to the report.
int finish(AttemptRunner& runner, std::optional<ReportFile>& report, JobEnd end) {
  OutputRelay& relay = runner.relay();
  if (runner.guard_gone()) {
    end = {.exit_code = kLauncherFailure,
           .error = "its guarding process was killed; all ranks were ended"};
  }
  // Otherwise the guard removes it, in every case.
  std::error_code ignored;
  if (runner.guard_gone()) std::filesystem::remove_all(runner.error_folder(), ignored);
  if (!runner.all_ended())
    relay.write_line("dlaunch: some processes of the job could not be killed");
  if (!end.error.empty()) relay.write_line("dlaunch: " + end.error);
  if (!runner.finish_output() && end.exit_code == kExitOk) end.exit_code = kLauncherFailure;
  if (report) {
    const Status written =
        report->write(json_report(runner.outcome(), end.exit_code, end.error),
                      [&](int descriptor) { return runner.wait_for_reader(descriptor); });
    if (!written.ok()) {
      relay.write_line("dlaunch: " + written.to_string());
      if (end.exit_code == kExitOk) end.exit_code = kLauncherFailure;
      runner.finish_output();
    }
  }
  return end.exit_code;
}

}  // namespace

int launch_job(const LaunchContext& context) {
  make_room_for_descriptors(context.options);
  AttemptRunner runner(context);
  std::optional<ReportFile> report;
  std::optional<SeveralNodes> nodes;
  if (const std::string& path = context.options.supervision.report; !path.empty()) {
    auto opened = ReportFile::open(path);
    if (!opened.ok()) return finish(runner, report, JobEnd::not_launched(opened.status()));
    report = *std::move(opened);
  }
  return finish(runner, report, run_job(runner, context, nodes));
}

}  // namespace dlaunch
