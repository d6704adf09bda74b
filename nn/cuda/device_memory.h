// A GPU's memory as a MemorySource.
#pragma once

#include <memory>

#include "nn/core/memory_source.h"

namespace dlaunch::nn::cuda {

std::unique_ptr<MemorySource> make_device_memory(int device);

}  // namespace dlaunch::nn::cuda
