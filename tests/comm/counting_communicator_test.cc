#include "runtime/comm/counting_communicator.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

TEST(CountingCommunicator, CountsEveryCallByKindAndForwardsIt) {
  run_threads_as_ranks(2, [](Communicator& inner) {
    CountingCommunicator comm(inner);
    EXPECT_EQ(comm.rank(), inner.rank());
    EXPECT_EQ(comm.size(), 2);
    std::vector<float> data(3, 1.0F);
    ASSERT_TRUE(comm.all_reduce(data).ok());
    ASSERT_TRUE(comm.start_all_reduce(data).wait().ok());
    ASSERT_TRUE(comm.barrier().ok());
    EXPECT_EQ(data, std::vector<float>(3, 4.0F));
    const int peer = 1 - comm.rank();
    Work recv = comm.start_recv(data, peer, 0);
    const std::vector<float> sent(3);
    ASSERT_TRUE(comm.start_send(sent, peer, 0).wait().ok());
    ASSERT_TRUE(recv.wait().ok());

    EXPECT_EQ(comm.count(CollectiveKind::kAllReduce), 2U);
    EXPECT_EQ(comm.count(CollectiveKind::kBarrier), 1U);
    EXPECT_EQ(comm.count(CollectiveKind::kBroadcast), 0U);
    EXPECT_EQ(comm.collectives(), 3U);
    EXPECT_EQ(comm.collective_bytes(), 24U);
    EXPECT_EQ(comm.messages_sent(), 1U);
    EXPECT_EQ(comm.messages_received(), 1U);
    EXPECT_FALSE(comm.run({.kind = static_cast<CollectiveKind>(77)}).ok());
    EXPECT_EQ(comm.count(CollectiveKind::kAllToAll), 0U);
    comm.reset();
    EXPECT_EQ(comm.collectives() + comm.messages_sent() + comm.messages_received(), 0U);
  });
}

}  // namespace
}  // namespace dlaunch::testing
