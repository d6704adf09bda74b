// A GPU's memory as a MemorySource.
#pragma once

#include <functional>
#include <memory>

#include "nn/core/memory_source.h"

namespace dlaunch::nn::cuda {

/// `before_giving_back` is called where memory goes back to the device.
std::unique_ptr<MemorySource> make_device_memory(int device,
                                                 std::function<void()> before_giving_back);

}  // namespace dlaunch::nn::cuda
