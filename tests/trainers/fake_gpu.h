// FakeGpu: a Backend whose memory the host must not touch and whose kernels are done later, on the
// compute stream of a FakeDevice, by the CPU backend; so that what lies above backends can be
// tested as it is on a GPU, with collectives on the device's memory and steps that are recorded.
#pragma once

#include <memory>

#include "nn/core/backend.h"
#include "tests/device/fake_device.h"

namespace dlaunch::testing {

/// The device must outlive it.
std::unique_ptr<nn::Backend> make_fake_gpu(std::shared_ptr<FakeDevice> device);

}  // namespace dlaunch::testing
