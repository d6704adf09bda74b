#include "runtime/cuda/nccl_order.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

// NOLINTBEGIN(concurrency-mt-unsafe): there are no other threads
TEST(NcclOrder, IsTheProgramsUnlessTheUserWantsNone) {
  constexpr const char* kOrder = "NCCL_LAUNCH_ORDER_IMPLICIT";
  ::unsetenv(kOrder);
  ask_for_nccl_in_order();
  EXPECT_STREQ(std::getenv(kOrder), "1");
  ::setenv(kOrder, "0", 1);
  ask_for_nccl_in_order();
  EXPECT_STREQ(std::getenv(kOrder), "0");
  ::unsetenv(kOrder);
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace
}  // namespace dlaunch
