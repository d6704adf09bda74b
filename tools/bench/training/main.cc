// dbench_training: dbench's subcommands train, syncbn and device, which need nn. A program of its
// own, so that the memory that dbench reports for collectives is not that of a training library.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>

#include <omp.h>
#include <CLI/CLI.hpp>

#include "nn/data/dataset.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/job_environment.h"
#include "runtime/base/json_reader.h"
#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/cuda/environment.h"
#include "tools/bench/relaunch.h"
#include "tools/bench/report.h"
#include "tools/bench/training/bench_device.h"
#include "tools/bench/training/device_limits.h"
#include "tools/bench/training/options.h"
#include "tools/bench/training/sync_batch_norm.h"
#include "tools/bench/training/train.h"
#include "trainers/training/machine.h"

namespace dlaunch::bench {
namespace {

int fail(const std::string& message, int code) {
  std::fprintf(stderr, "dbench: %s\n", message.c_str());
  return code;
}

int run(const TrainingOptions& options, int argc, char** argv) {
  const auto job = read_job_environment();
  if (!job.ok()) return fail(job.status().to_string(), kExitUsage);
  if (job->rank == 0) refuse_unless_writable("--json", options.json_path);  // which alone writes
  if (!job->launched()) {
    if (options.threads > 0) {  // before there are threads, and inherited by the ranks
      const std::string threads = std::to_string(options.threads);
      setenv("OMP_NUM_THREADS", threads.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    }
    relaunch_under_dlaunch(options.nproc, argc, argv);
    return fail(Status::from_errno("cannot start dlaunch", errno).to_string(), kExitFailure);
  }
  if (options.threads > 0) {
    omp_set_num_threads(options.threads);  // dlaunch was called by hand
  } else {
    use_threads(read_machine(*job));  // as dtrain does
  }
  auto world = connect_world().value_or_throw();
  if (options.subject == TrainingSubject::kTrain) {
    measure_training(*world, options);
    return kExitOk;
  }
  BenchDevice device(std::move(world), options.device, options.device_path);
  if (options.subject == TrainingSubject::kDevice) {
    measure_device(device, options);
  } else {
    measure_sync_batch_norm(device, options);
  }
  return kExitOk;
}

}  // namespace
}  // namespace dlaunch::bench

int main(int argc, char** argv) {
  using namespace dlaunch;  // NOLINT(google-build-using-namespace)
  set_gpu_environment();
  std::string help;
  try {
    return bench::run(bench::parse_training_options(argc, argv, help), argc, argv);
  } catch (const CLI::Success&) {
    std::fputs(help.c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    return bench::fail(error.what(), kExitUsage);
  } catch (const StatusError& error) {
    const bool refused = error.status().code() == StatusCode::kInvalidArgument;  // a variable
    return bench::fail(error.what(), refused ? kExitUsage : kExitCommunication);
  } catch (const ConfigError& error) {
    return bench::fail(error.what(), kExitUsage);
  } catch (const nn::DataError& error) {
    return bench::fail(error.what(), kExitBadData);
  } catch (const std::bad_alloc&) {
    return bench::fail("out of memory; use smaller batches", kExitFailure);
  } catch (const std::exception& error) {
    return bench::fail(error.what(), kExitFailure);
  }
}
