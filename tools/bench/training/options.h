// What dbench train and dbench syncbn were asked to do, and their command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device/path_choice.h"
#include "tools/bench/measure/repeat.h"

namespace dlaunch::bench {

enum class TrainingSubject { kTrain, kSyncBatchNorm, kDevice };
enum class BenchDeviceKind { kCpu, kCuda };

/// A batch of images: count x channels x side x side.
struct ImageCell {
  int count = 0;
  int channels = 0;
  int side = 0;
};

struct TrainingOptions {
  TrainingSubject subject = TrainingSubject::kTrain;
  int nproc = 2;    // ranks to start when not started by dlaunch
  int threads = 0;  // of each rank; 0: as dlaunch and the environment say
  std::string json_path;

  // train
  std::string config;
  std::vector<std::string> overrides;  // "key.path=value"
  bool own_data = false;               // the configuration's data set instead of a built-in one
  std::size_t warmup_steps = 3;        // do not count
  std::size_t steps = 20;

  // syncbn
  std::vector<int> channels = {128, 256, 512, 1024};
  std::vector<int> batches = {32, 64};  // rows on each rank
  std::vector<ImageCell> images;        // further cells
  bool bf16 = false;
  BenchDeviceKind device = BenchDeviceKind::kCpu;
  DevicePathKind device_path = DevicePathKind::kAuto;  // of collectives on the memory of GPUs

  // device
  std::int64_t matrix = 0;                          // side of the matrices; 0: by the device
  std::size_t copy_bytes = std::size_t{512} << 20;  // also for syncbn's bound

  // syncbn, device
  Limits limits = {.warmup = 20, .seconds = 0.5};
};

/// Reads a command line that begins with "train", "syncbn" or "device". Throws CLI::ParseError
/// (also to show the help: CLI::CallForHelp). `help` receives the text to print in that case.
TrainingOptions parse_training_options(int argc, char** argv, std::string& help);

}  // namespace dlaunch::bench
