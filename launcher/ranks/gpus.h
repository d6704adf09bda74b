// The NVIDIA GPUs that ranks may use. No CUDA is needed to ask.
#pragma once

#include <string>
#include <vector>

namespace dlaunch {

/// What may stand in CUDA_VISIBLE_DEVICES: the entries of that variable if it is set, up to the
/// first that is none ("-1"), as the CUDA runtime reads it; else the indices of the devices in
/// /dev.
std::vector<std::string> visible_gpus();

}  // namespace dlaunch
