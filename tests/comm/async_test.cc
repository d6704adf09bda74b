// Asynchronous operations, with threads as ranks.
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

void expect_all_ok(std::vector<Work>& works) {
  for (Work& work : works) {
    const Status status = work.wait();
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(work.done());
  }
}

class Async : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
};

TEST_P(Async, ManyCollectivesInFlightInterleavedWithBlockingOnes) {
  run_threads_as_ranks(world(), [&](Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<std::int64_t>> data;
      std::vector<Work> works;
      for (std::size_t i = 0; i < 24; ++i) {
        data.emplace_back(i % 5 == 4 ? 50'000 : i, comm.rank() + static_cast<std::int64_t>(i));
        const auto algorithm = i % 2 == 0 ? Algorithm::kRing : Algorithm::kButterfly;
        works.push_back(comm.start_all_reduce(data[i], ReduceOp::kSum, algorithm));
        if (i % 6 == 0) {
          std::vector<float> blocking(3, 1.0F);
          EXPECT_TRUE(comm.all_reduce(blocking).ok());
          EXPECT_EQ(blocking[2], static_cast<float>(world()));
        }
      }
      works.push_back(comm.start_barrier());
      expect_all_ok(works);
      const std::int64_t ranks = std::int64_t{world()} * (world() - 1) / 2;
      for (std::size_t i = 0; i < 24; ++i) {
        const auto want = ranks + world() * static_cast<std::int64_t>(i);
        EXPECT_EQ(data[i], std::vector<std::int64_t>(data[i].size(), want));
      }
    }
  });
}

TEST_P(Async, EveryKindOfCollective) {
  run_threads_as_ranks(world(), [&](Communicator& comm) {
    const auto p = static_cast<std::size_t>(world());
    const auto rank = static_cast<std::size_t>(comm.rank());
    std::vector<std::int32_t> iota(p);
    std::iota(iota.begin(), iota.end(), 0);
    const int last = world() - 1;
    std::vector<std::int32_t> sent(3, comm.rank());
    std::vector<std::int32_t> scattered(1);
    std::vector<std::int32_t> gathered(p);
    std::vector<std::int32_t> all_gathered(p);
    std::vector<std::int32_t> reduced(p);
    std::vector<std::int32_t> part(1);
    std::vector<Work> works{comm.start_broadcast(sent, last),
                            comm.start_scatter(iota, scattered, last),
                            comm.start_gather(std::span(iota).subspan(rank, 1), gathered, last),
                            comm.start_all_gather(std::span(iota).subspan(rank, 1), all_gathered),
                            comm.start_reduce(iota, reduced, ReduceOp::kMax, last),
                            comm.start_reduce_scatter(iota, part, ReduceOp::kAvg)};
    expect_all_ok(works);
    EXPECT_EQ(sent, std::vector<std::int32_t>(3, last));
    EXPECT_EQ(scattered[0], comm.rank());
    EXPECT_EQ(all_gathered, iota);
    EXPECT_EQ(part[0], comm.rank());
    if (comm.rank() == last) {
      EXPECT_EQ(gathered, iota);
      EXPECT_EQ(reduced, iota);
    }
  });
}

TEST_P(Async, MessagesGoBothWaysWhetherSendOrRecvComesFirst) {
  run_threads_as_ranks(world(), [&](Communicator& comm) {
    const int next = (comm.rank() + 1) % world();
    const int previous = (comm.rank() + world() - 1) % world();
    for (const bool recv_first : {true, false}) {
      for (const std::size_t count : {0U, 1U, 100'003U}) {
        const std::vector<std::int32_t> to_next(count, comm.rank());
        const std::vector<std::int32_t> to_previous(count, -comm.rank());
        std::vector<std::int32_t> from_next(count);
        std::vector<std::int32_t> from_previous(count);
        std::vector<Work> works;
        const auto post_recvs = [&] {
          works.push_back(comm.start_recv(from_previous, previous, 1));
          works.push_back(comm.start_recv(from_next, next, 2));
        };
        if (recv_first) post_recvs();
        works.push_back(comm.start_send(to_next, next, 1));
        works.push_back(comm.start_send(to_previous, previous, 2));
        if (!recv_first) post_recvs();
        expect_all_ok(works);
        EXPECT_EQ(from_previous, std::vector<std::int32_t>(count, previous));
        EXPECT_EQ(from_next, std::vector<std::int32_t>(count, -next));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Async, ::testing::Values(1, 2, 3, 4, 5, 8));

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
