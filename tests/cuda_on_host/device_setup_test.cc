// What becomes of a device that cannot be set up.
#include <cstddef>
#include <limits>

#include <gtest/gtest.h>

#include "nn/core/error.h"
#include "nn/cuda/device.h"
#include "tests/cuda_on_host/host_pages.h"

namespace dlaunch::nn::cuda {
namespace {

// LeakSanitizer sees whether its stream and the rest are given back.
TEST(DeviceSetup, WithoutMemoryIsAnErrorAndLeavesNothing) {
  auto& pages = cuda_on_host::device_pages();
  pages.set_limit(0);
  EXPECT_THROW(Device(0), Error);
  pages.set_limit(std::numeric_limits<std::size_t>::max());
  EXPECT_NO_THROW(Device(0));
}

}  // namespace
}  // namespace dlaunch::nn::cuda
