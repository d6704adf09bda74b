// on_device: lets tests of a Communicator, whose buffers are in host memory, run on device memory:
// every call's buffers are copied to the device before it and back after it.
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"

namespace dlaunch::testing {

/// `inner` takes device memory of `device`. As thread-safe as that.
std::unique_ptr<Communicator> on_device(std::unique_ptr<Communicator> inner,
                                        std::shared_ptr<Device> device);

}  // namespace dlaunch::testing
