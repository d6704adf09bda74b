// Whether what a run writes, and what it reads, are different files.
#pragma once

#include <string>

#include "runtime/base/json_reader.h"
#include "trainers/config/config.h"

namespace dlaunch {

/// Refuses a key of the section `output` that names a file which is also another of the run's: one
/// of the two would be lost, perhaps `config_file` itself.
void refuse_shared_paths(const JsonObject& output, const TrainConfig& config,
                         const std::string& config_file);

}  // namespace dlaunch
