// A barrier, with threads as ranks that share a counter.
#include <atomic>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

TEST(Barrier, LetsNobodyPassBeforeAllHaveCome) {
  for (const int world : {1, 2, 3, 4, 5, 8}) {
    std::atomic<int> arrived{0};
    run_threads_as_ranks(world, [&](Communicator& comm) {
      for (int round = 1; round <= 50; ++round) {
        ++arrived;
        ASSERT_TRUE(comm.barrier().ok());
        EXPECT_GE(arrived.load(), round * world);
      }
    });
  }
}

}  // namespace
}  // namespace dlaunch::testing
