// dbench: times collectives, point-to-point messages and, through dbench_training, training; see
// docs/benchmarks.md.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>

#include <CLI/CLI.hpp>

#include "runtime/base/exit_codes.h"
#include "runtime/base/job_environment.h"
#include "runtime/base/json_reader.h"
#include "runtime/base/standard_descriptors.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "tools/bench/explain.h"
#include "tools/bench/machine.h"
#include "tools/bench/options.h"
#include "tools/bench/pair.h"
#include "tools/bench/relaunch.h"
#include "tools/bench/report.h"
#include "tools/bench/sweep.h"
#include "tools/bench/tune.h"

namespace dlaunch::bench {
namespace {

constexpr const char* kTooLarge =
    "out of memory; use smaller sizes (--max-bytes, --counts, --bytes)";

int fail(const std::string& message, int code) {
  std::fprintf(stderr, "dbench: %s\n", message.c_str());
  return code;
}

// What is wrong with the options for a job of this kind, or nothing.
std::string objection(const Options& options, const JobEnvironment& job) {
  if (options.root >= job.world_size) {
    return "--root: there is no rank " + std::to_string(options.root) + " among " +
           std::to_string(job.world_size);
  }
  if (options.subject == Subject::kPointToPoint && job.world_size != 2) {
    return "p2p needs two ranks, not " + std::to_string(job.world_size);
  }
  if (options.subject == Subject::kTune && job.world_size < 2) return "tune needs two ranks";
  return {};
}

int measure(const Options& options, const JobEnvironment& job) {
  const auto world = connect_world().value_or_throw();
  if (options.subject == Subject::kPointToPoint) {
    run_pair(*world, options);
    return kExitOk;
  }
  if (options.subject == Subject::kMachine) {
    measure_machine(*world, options);
    return kExitOk;
  }
  if (options.subject == Subject::kTune) {
    tune(*world, job, options);
    return kExitOk;
  }
  return run_sweep(*world, options) ? kExitOk : kExitFailure;
}

int run(const Options& options, int argc, char** argv) {
  const auto job = read_job_environment();
  if (!job.ok()) return fail(job.status().to_string(), kExitUsage);
  if (options.subject == Subject::kExplain) {
    explain(options, options.model_path.empty() ? job->cost_model : options.model_path);
    return kExitOk;
  }
  if (job->rank == 0) {  // which alone writes
    refuse_unless_writable("--json", options.json_path);
    if (options.subject == Subject::kTune) refuse_unless_writable("--model", options.model_path);
  }
  if (!job->launched()) {
    relaunch_under_dlaunch(options.nproc, argc, argv);
    return fail(Status::from_errno("cannot start dlaunch", errno).to_string(), kExitFailure);
  }
  const std::string wrong = objection(options, *job);
  return wrong.empty() ? measure(options, *job) : fail(wrong, kExitUsage);
}

}  // namespace
}  // namespace dlaunch::bench

int main(int argc, char** argv) {
  using namespace dlaunch;  // NOLINT(google-build-using-namespace)
  open_standard_descriptors();
  if (bench::is_for_training_program(argc, argv)) {
    bench::become_training_program(argc, argv);
    return bench::fail(Status::from_errno("cannot start dbench_training", errno).to_string(),
                       kExitFailure);
  }
  std::string help;
  try {
    const bench::Options options = bench::parse_command_line(argc, argv, help);
    // Before there are threads, and inherited by the ranks that dlaunch starts.
    if (!options.transport.empty()) {
      setenv("DLAUNCH_TRANSPORT", options.transport.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    }
    return bench::run(options, argc, argv);
  } catch (const CLI::Success&) {
    std::fputs(help.c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    return bench::fail(error.what(), kExitUsage);
  } catch (const StatusError& error) {
    return bench::fail(error.what(), error.status().code() == StatusCode::kInvalidArgument
                                         ? kExitUsage
                                         : kExitCommunication);
  } catch (const ConfigError& error) {
    return bench::fail(error.what(), kExitUsage);
  } catch (const std::bad_alloc&) {
    return bench::fail(bench::kTooLarge, kExitFailure);
  } catch (const std::length_error&) {  // more than a vector can have
    return bench::fail(bench::kTooLarge, kExitFailure);
  } catch (const std::exception& error) {
    return bench::fail(error.what(), kExitFailure);
  }
}
