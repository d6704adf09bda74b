#include <cstdlib>

#include <gtest/gtest.h>

#include "runtime/cuda/environment.h"

namespace dlaunch {
namespace {

struct Asked {
  const char* variable;
  const char* by_default;
  const char* by_the_user;
};

// Hardware queues: as many as there can be; calls of NCCL: in the program's order.
constexpr Asked kAsked[] = {{"CUDA_DEVICE_MAX_CONNECTIONS", "32", "4"},
                            {"NCCL_LAUNCH_ORDER_IMPLICIT", "1", "0"}};

// NOLINTBEGIN(concurrency-mt-unsafe): there are no other threads
TEST(GpuEnvironment, IsSetUnlessTheUserWantsAnother) {
  for (const Asked& asked : kAsked) {
    ::unsetenv(asked.variable);
    set_gpu_environment();
    EXPECT_STREQ(std::getenv(asked.variable), asked.by_default);
    ::setenv(asked.variable, asked.by_the_user, 1);
    set_gpu_environment();
    EXPECT_STREQ(std::getenv(asked.variable), asked.by_the_user);
    ::unsetenv(asked.variable);
  }
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace
}  // namespace dlaunch
