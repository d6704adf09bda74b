#include "runtime/cuda/hardware_queues.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

constexpr const char* kVariable = "CUDA_DEVICE_MAX_CONNECTIONS";

// NOLINTBEGIN(concurrency-mt-unsafe): there are no other threads
TEST(HardwareQueues, AreAsManyAsThereCanBeUnlessTheUserWantsAnotherNumber) {
  ::unsetenv(kVariable);
  ask_for_hardware_queues();
  EXPECT_STREQ(std::getenv(kVariable), "32");
  ::setenv(kVariable, "4", 1);
  ask_for_hardware_queues();
  EXPECT_STREQ(std::getenv(kVariable), "4");
  ::unsetenv(kVariable);
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace
}  // namespace dlaunch
