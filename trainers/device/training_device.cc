#include "trainers/device/training_device.h"

#include <utility>

#include <spdlog/fmt/fmt.h>
#include <spdlog/logger.h>

#include "nn/cpu/cpu_backend.h"
#include "nn/cuda/cuda_backend.h"
#include "runtime/base/job_environment.h"
#include "runtime/base/json_reader.h"
#include "runtime/base/logging.h"
#include "runtime/base/process_stat.h"
#include "runtime/cuda/cuda_communicator.h"

namespace dlaunch {

void refuse_what_gpus_do_not_do(const TrainConfig& config) {
  const GradientExchange gradients = config.parallel.gradients;
  if (gradients != GradientExchange::kAllReduce && gradients != GradientExchange::kShard)
    throw ConfigError(
        "parallel.gradients: gradients on GPUs are not compressed; use \"all_reduce\" or "
        "\"shard\" with train.device \"cuda\"");
}

TrainingDevice::TrainingDevice(const TrainConfig& config, const Machine& machine) {
  if (config.device == DeviceKind::kCpu) {
    backend_ = nn::make_cpu_backend({.winograd = config.winograd});
    return;
  }
  if (const std::string why = nn::why_no_cuda(); !why.empty())
    throw ConfigError("train.device: " + why + "; use \"cpu\"");
  refuse_what_gpus_do_not_do(config);
  auto gpu = nn::make_cuda_backend({.device = machine.local_rank % nn::cuda_devices(),
                                    .tf32 = config.tf32,
                                    .autotune = config.autotune,
                                    .ask_early = true,
                                    .logger = make_logger("cuda")});
  stream_ = gpu->stream();
  number_ = gpu->device();
  backend_ = std::move(gpu);
  make_logger("start")->debug("the GPU is there {:.3f} s after the start",
                              seconds_since_process_start());
}

void TrainingDevice::connect(const TrainConfig& config, Communicator& world) {
  world_ = &world;
  if (config.device == DeviceKind::kCpu) return;
  auto part = world.split(0, world.rank());
  throw_if_error(part.status().within("start"));
  const DeviceCommunicatorOptions options{
      .path = config.parallel.device_path,
      .timeout = read_job_environment().value_or_throw().timeout,
      .logger = make_logger("comm")};
  auto made = make_cuda_communicator(*std::move(part), number_, stream_, options);
  if (made.status().code() == StatusCode::kInvalidArgument)
    throw ConfigError("parallel.device_path: " + made.status().to_string());
  throw_if_error(made.status());
  device_world_ = *std::move(made);
  world_ = device_world_.get();
  if (world.size() == 1) return;
  remark_ = fmt::format("collectives on GPU memory take the path {}: {}",
                        to_string(device_world_->path()), device_world_->reason());
}

}  // namespace dlaunch
