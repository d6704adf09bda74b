// What dbench train and dbench syncbn were asked to do, and their command line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/bench/measure/repeat.h"

namespace dlaunch::bench {

enum class TrainingSubject { kTrain, kSyncBatchNorm };

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
  Limits limits = {.warmup = 20, .seconds = 0.5};
};

/// Reads a command line that begins with "train" or "syncbn". Throws CLI::ParseError (also to show
/// the help: CLI::CallForHelp). `help` receives the text to print in that case.
TrainingOptions parse_training_options(int argc, char** argv, std::string& help);

}  // namespace dlaunch::bench
