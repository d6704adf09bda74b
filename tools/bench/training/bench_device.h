// What a benchmark of nn runs on: a backend, a communicator that takes its memory, and a clock.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "nn/core/backend.h"
#include "nn/cuda/device_timer.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device_communicator.h"
#include "tools/bench/measure/repeat.h"
#include "tools/bench/training/options.h"

namespace dlaunch::bench {

class BenchDevice {
 public:
  /// Collective. For a GPU: the one of this rank's number on its host, modulo those that are
  /// visible. Throws ConfigError if there is none, StatusError if the ranks cannot take that path.
  BenchDevice(std::unique_ptr<Communicator> host, BenchDeviceKind kind, DevicePathKind path);

  nn::Backend& backend() { return *backend_; }
  Communicator& world() { return *world_; }
  /// The same if it is on a GPU, else null.
  DeviceWorld* device_world() { return device_world_; }
  bool is_gpu() const { return timer_ != nullptr; }
  /// The path of several ranks' collectives on the memory of GPUs, and why it is that one; else
  /// empty.
  const std::string& path() const { return path_; }
  const std::string& why_path() const { return why_path_; }
  /// `run` timed by the device's own events where it has them, by the host's clock elsewhere.
  Operation timed(std::function<void(std::uint64_t repetition)> prepare,
                  std::function<void()> run) const;

 private:
  std::unique_ptr<nn::Backend> backend_;
  std::unique_ptr<nn::DeviceTimer> timer_;  // null: the host's clock
  std::unique_ptr<Communicator> world_;     // before the backend it goes
  DeviceWorld* device_world_ = nullptr;
  std::string path_;
  std::string why_path_;
};

}  // namespace dlaunch::bench
