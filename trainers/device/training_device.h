// TrainingDevice: what a rank trains on: a CPU, with the world as it is, or a GPU, with a world
// whose collectives take its memory.
//
//   TrainingDevice device(config, machine);    // what a rank does alone
//   device.connect(config, *world);            // with all others
//   Trainer trainer(config, device.place(), screen, machine);
//
// One thread.
#pragma once

#include <memory>
#include <string>

#include "nn/core/backend.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device_communicator.h"
#include "trainers/config/config.h"
#include "trainers/training/machine.h"

struct CUstream_st;

namespace dlaunch {

/// Where a rank trains, as a Trainer sees it.
struct TrainingPlace {
  Communicator& world;  // takes the host's memory and the backend's
  nn::Backend& backend;
  DeviceWorld* device_world = nullptr;  // the world, if collectives take a device's own memory
  std::string remark = {};              // a line for the user; empty: none
};

/// Throws ConfigError for what only CPUs do.
void refuse_what_gpus_do_not_do(const TrainConfig& config);

class TrainingDevice {
 public:
  /// Throws ConfigError if there is no such device here, or if it cannot do what is configured;
  /// Error if the device fails.
  TrainingDevice(const TrainConfig& config, const Machine& machine);
  /// A collective of `world`, which must outlive this object. Throws StatusError, ConfigError if
  /// the ranks cannot train together as configured; all ranks or none.
  void connect(const TrainConfig& config, Communicator& world);

  /// After connect(). This object must outlive what is made there.
  TrainingPlace place() const {
    return {.world = *world_,
            .backend = *backend_,
            .device_world = device_world_.get(),
            .remark = remark_};
  }

 private:
  std::unique_ptr<nn::Backend> backend_;
  CUstream_st* stream_ = nullptr;
  int number_ = 0;                             // of a GPU
  std::unique_ptr<DeviceWorld> device_world_;  // goes before the backend
  Communicator* world_ = nullptr;
  std::string remark_;
};

}  // namespace dlaunch
