// A GPU's memory as a MemorySource.
#pragma once

#include <functional>
#include <memory>

#include "nn/core/memory_source.h"

namespace dlaunch::nn::cuda {

/// `before_giving_back` is called where memory is about to go back to the device, and says whether
/// it may.
std::unique_ptr<MemorySource> make_device_memory(int device,
                                                 std::function<bool()> before_giving_back);

}  // namespace dlaunch::nn::cuda
