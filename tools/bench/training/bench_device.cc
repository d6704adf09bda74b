#include "tools/bench/training/bench_device.h"

#include <utility>

#include "nn/cpu/cpu_backend.h"
#include "nn/cuda/cuda_backend.h"
#include "runtime/base/job_environment.h"
#include "runtime/base/json_reader.h"
#include "runtime/base/logging.h"
#include "runtime/base/status.h"
#include "runtime/cuda/cuda_communicator.h"

namespace dlaunch::bench {

BenchDevice::BenchDevice(std::unique_ptr<Communicator> host, BenchDeviceKind kind,
                         DevicePathKind path)
    : world_(std::move(host)) {
  if (kind == BenchDeviceKind::kCpu) {
    if (path != DevicePathKind::kAuto)
      throw ConfigError("--device-path: it is of GPUs; give --device cuda as well");
    backend_ = nn::make_cpu_backend();
    return;
  }
  if (const std::string why = nn::why_no_cuda(); !why.empty())
    throw ConfigError("--device cuda: " + why);
  const JobEnvironment job = read_job_environment().value_or_throw();
  auto backend = nn::make_cuda_backend({.device = job.local_rank % nn::cuda_devices()});
  timer_ = nn::make_device_timer(backend->stream());
  auto world =
      make_cuda_communicator(std::move(world_), backend->device(), backend->stream(),
                             {.path = path, .timeout = job.timeout, .logger = make_logger("comm")})
          .value_or_throw();
  if (world->size() > 1) {
    path_ = to_string(world->path());
    why_path_ = world->reason();
  }
  device_world_ = world.get();
  world_ = std::move(world);
  backend_ = std::move(backend);
}

Operation BenchDevice::timed(std::function<void(std::uint64_t)> prepare,
                             std::function<void()> run) const {
  Operation operation{
      .prepare = std::move(prepare), .run = std::move(run), .check = {}, .seconds = {}};
  if (timer_ == nullptr) return operation;
  operation.run = [run = std::move(operation.run), timer = timer_.get()] {
    timer->start();
    run();
    timer->stop();
  };
  operation.seconds = [timer = timer_.get()] { return timer->seconds(); };
  return operation;
}

}  // namespace dlaunch::bench
