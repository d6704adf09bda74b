// Asynchronous operations.
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/comm/contract/contract.h"

namespace dlaunch::testing {
namespace {

void expect_all_ok(std::vector<Work>& works) {
  const Status status = wait_all(works);
  EXPECT_TRUE(status.ok()) << status.to_string();
  for (const Work& work : works) EXPECT_TRUE(work.done());
}

class Async : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
};

TEST_P(Async, ManyCollectivesInFlightInterleavedWithBlockingOnes) {
  run_ranks(world(), [&](Communicator& comm) {
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
  run_ranks(world(), [&](Communicator& comm) {
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
  run_ranks(world(), [&](Communicator& comm) {
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

// A rank that serves others has a receive ready, whenever they may come.
TEST_P(Async, MessagesMayTakeLongerThanTheTimeoutBeforeSomebodyWaitsForThem) {
  using std::chrono::milliseconds;
  run_ranks(world(), [&](Communicator& comm) {
    comm.set_timeout(milliseconds(100));
    const std::vector<std::int32_t> sent(3, comm.rank());
    std::vector<std::int32_t> received(3, -1);
    Work receive = comm.start_recv(received, kAnyRank, 7);
    std::this_thread::sleep_for(milliseconds(350));
    // To look whether it has come is not to wait for it.
    EXPECT_EQ(receive.wait(milliseconds(1)).code(), StatusCode::kTimeout);
    comm.set_timeout(std::chrono::seconds(30));
    const Status met = comm.barrier();
    EXPECT_TRUE(met.ok()) << met.to_string();
    EXPECT_TRUE(comm.send(sent, (comm.rank() + 1) % world(), 7).ok());
    const Status ended = receive.wait(std::chrono::seconds(30));
    EXPECT_TRUE(ended.ok()) << ended.to_string();
    const int previous = (comm.rank() + world() - 1) % world();
    EXPECT_EQ(received, std::vector<std::int32_t>(3, previous));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Async, ::testing::ValuesIn(contract_worlds()));

}  // namespace
}  // namespace dlaunch::testing
