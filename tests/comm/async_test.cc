// Asynchronous operations, with threads as ranks.
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

TEST(AsyncMessages, PingPongManyTimes) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<double> ball{0};
    for (int i = 0; i < 200; ++i) {
      if ((i + comm.rank()) % 2 == 0) {
        ASSERT_TRUE(comm.start_send(ball, peer).wait().ok());
      } else {
        ASSERT_TRUE(comm.start_recv(ball, peer).wait().ok());
        ball[0] += 1;
      }
    }
    EXPECT_EQ(ball[0], comm.rank() == 0 ? 200 : 199);  // rank 0 receives last
  });
}

TEST(AsyncWait, GivesUpAfterItsTimeoutWhileTheOperationGoesOn) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    std::vector<float> data(5, 1.0F);
    if (comm.rank() == 1) {
      ASSERT_TRUE(comm.barrier().ok());  // so the other rank waits first
      ASSERT_TRUE(comm.start_all_reduce(data).wait().ok());
    } else {
      Work work = comm.start_all_reduce(data);
      const Status early = work.wait(1ms);
      EXPECT_EQ(early.code(), StatusCode::kTimeout);
      EXPECT_FALSE(work.done());
      ASSERT_TRUE(comm.barrier().ok());
      ASSERT_TRUE(work.wait(20s).ok());
    }
    EXPECT_EQ(data, std::vector<float>(5, 2.0F));
  });
}

TEST(AsyncWork, IsAbortedWhenItsCommunicatorIsDestroyed) {
  ThreadWorld network(2);
  auto first = network.communicator(0);
  const auto second = network.communicator(1);
  std::vector<float> data(4);
  Work recv = first->start_recv(data, 1);
  Work reduce = first->start_all_reduce(data);
  first.reset();
  EXPECT_EQ(recv.wait(5s).code(), StatusCode::kAborted) << recv.wait(0s).to_string();
  EXPECT_EQ(reduce.wait(5s).code(), StatusCode::kAborted);
  // For the other rank that was an orderly leave.
  EXPECT_EQ(second->barrier().code(), StatusCode::kPeerLeft);
}

}  // namespace
}  // namespace dlaunch::testing
