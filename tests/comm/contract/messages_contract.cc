// Point-to-point messages, blocking and asynchronous, as every kind of Communicator carries them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/comm/contract/contract.h"

namespace dlaunch::testing {
namespace {

class Messages : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  int next(const Communicator& comm) const { return (comm.rank() + 1) % world(); }
  int previous(const Communicator& comm) const { return (comm.rank() + world() - 1) % world(); }
};

TEST_P(Messages, OfBothKindsMeet) {
  run_ranks(world(), [&](Communicator& comm) {
    for (const std::size_t count : {0U, 1U, 300U, 300'007U}) {
      const std::vector<std::int32_t> outgoing(count, comm.rank());
      std::vector<std::int32_t> incoming(count, -1);
      Work send = comm.start_send(outgoing, next(comm));
      ASSERT_TRUE(comm.recv(incoming, previous(comm)).ok());
      ASSERT_TRUE(send.wait().ok());
      EXPECT_EQ(incoming, std::vector<std::int32_t>(count, previous(comm)));

      incoming.assign(count, -1);
      Work recv = comm.start_recv(incoming, next(comm), 5);
      ASSERT_TRUE(comm.send(outgoing, previous(comm), 5).ok());
      ASSERT_TRUE(recv.wait().ok());
      EXPECT_EQ(incoming, std::vector<std::int32_t>(count, next(comm)));
    }
  });
}

TEST_P(Messages, OfBothKindsKeepTheirOrder) {
  run_ranks(world(), [&](Communicator& comm) {
    constexpr std::int64_t kMessages = 40;
    std::vector<std::int64_t> outgoing(kMessages);
    std::vector<Work> sends;
    for (std::int64_t i = 0; i < kMessages; ++i) {
      std::int64_t& value = outgoing[static_cast<std::size_t>(i)];
      value = i;
      if (i % 3 == 0) {
        ASSERT_TRUE(comm.send(ConstBuffer(&value, 1, DType::kI64), next(comm)).ok());
      } else {
        sends.push_back(comm.start_send(ConstBuffer(&value, 1, DType::kI64), next(comm)));
      }
    }
    for (std::int64_t i = 0; i < kMessages; ++i) {
      std::int64_t received = -1;
      const Buffer into(&received, 1, DType::kI64);
      const Status status = i % 2 == 0 ? comm.recv(into, previous(comm))
                                       : comm.start_recv(into, previous(comm)).wait();
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(received, i);
    }
    ASSERT_TRUE(wait_all(sends).ok());
  });
}

// One thread of each rank waits for what another thread of its neighbour sends.
TEST_P(Messages, OfSeveralThreadsDoNotWaitForEachOther) {
  run_ranks(world(), [&](Communicator& comm) {
    for (std::int32_t round = 0; round < 20; ++round) {
      std::int32_t received = -1;
      Status status;
      std::thread receiver(
          [&] { status = comm.recv(Buffer(&received, 1, DType::kI32), previous(comm), 1); });
      std::int32_t token = 0;
      if (comm.rank() > 0) {
        EXPECT_TRUE(comm.recv(Buffer(&token, 1, DType::kI32), previous(comm), 2).ok());
      }
      if (comm.rank() + 1 < world()) {
        EXPECT_TRUE(comm.send(ConstBuffer(&token, 1, DType::kI32), next(comm), 2).ok());
      }
      EXPECT_TRUE(comm.send(ConstBuffer(&round, 1, DType::kI32), next(comm), 1).ok());
      receiver.join();
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(received, round);
    }
  });
}

TEST_P(Messages, OfStructsAreBytes) {
  struct Point {
    double x;
    long long number;
  };
  run_ranks(world(), [&](Communicator& comm) {
    const std::vector<Point> points(3, {.x = 0.5 * comm.rank(), .number = comm.rank()});
    std::vector<Point> received(3);
    Work send = comm.start_send(std::as_bytes(std::span(points)), next(comm));
    ASSERT_TRUE(comm.recv(std::as_writable_bytes(std::span(received)), previous(comm)).ok());
    ASSERT_TRUE(send.wait().ok());
    for (const Point& point : received) {
      EXPECT_EQ(point.x, 0.5 * previous(comm));
      EXPECT_EQ(point.number, previous(comm));
    }
    std::vector<long long> sum{comm.rank()};
    ASSERT_TRUE(comm.all_reduce(sum).ok());
    EXPECT_EQ(sum[0], world() * (world() - 1) / 2);
  });
}

// Rank 0 hands out numbers to whoever asks, and the others ask until there are none.
TEST_P(Messages, OfAnyRankAreServedAsTheyCome) {
  constexpr std::uint64_t kRequest = 1;
  constexpr std::uint64_t kReply = 2;
  run_ranks(world(), [&](Communicator& comm) {
    const std::int64_t jobs = 20 * world();
    std::vector<std::int64_t> done(static_cast<std::size_t>(jobs));
    std::int64_t job = 0;
    const Buffer message(&job, 1, DType::kI64);
    if (comm.rank() == 0) {
      std::int64_t next_job = 0;
      for (int dismissed = 1; dismissed < world(); ++next_job) {
        int sender = kAnyRank;
        ASSERT_TRUE(comm.recv(message, kAnyRank, kRequest, &sender).ok());
        ASSERT_EQ(job, sender);
        job = next_job < jobs ? next_job : -1;
        if (job < 0) ++dismissed;
        ASSERT_TRUE(comm.send(message, sender, kReply).ok());
      }
      if (world() == 1) std::ranges::fill(done, 1);
    } else {
      while (true) {
        job = comm.rank();
        ASSERT_TRUE(comm.send(message, 0, kRequest).ok());
        // Nobody else sends to this rank.
        ASSERT_TRUE(comm.recv(message, kAnyRank, kReply).ok());
        if (job < 0) break;
        ++done[static_cast<std::size_t>(job)];
      }
    }
    ASSERT_TRUE(comm.all_reduce(done).ok());
    EXPECT_EQ(done, std::vector<std::int64_t>(done.size(), 1));
  });
}

// Long ones also, of which the first are under way before any receive is there.
TEST_P(Messages, LongOnesOfAnyRankMeetReceivesThatWereStarted) {
  const std::uint64_t seed = contract_seed();
  run_ranks(world(), [&](Communicator& comm) {
    for (const std::size_t count : {0U, 1U, 700U, 200'003U}) {
      const auto values_of = [&](int rank) {
        std::mt19937 random(static_cast<unsigned>(seed + count + static_cast<unsigned>(rank)));
        std::vector<std::int32_t> values(count);
        std::ranges::generate(values, [&] { return static_cast<std::int32_t>(random()); });
        return values;
      };
      const auto ranks = static_cast<std::size_t>(world());
      const std::vector<std::int32_t> own = values_of(comm.rank());
      std::vector<std::vector<std::int32_t>> received(ranks, std::vector<std::int32_t>(count));
      std::vector<int> senders(ranks, kAnyRank);
      std::vector<Work> works;
      for (int rank = 0; rank < world(); ++rank) works.push_back(comm.start_send(own, rank, 3));
      for (std::size_t i = 0; i < ranks; ++i) {
        works.push_back(comm.start_recv(received[i], kAnyRank, 3, &senders[i]));
      }
      ASSERT_TRUE(wait_all(works).ok());
      for (std::size_t i = 0; i < ranks; ++i) EXPECT_EQ(received[i], values_of(senders[i]));
      std::ranges::sort(senders);
      for (int rank = 0; rank < world(); ++rank) {
        EXPECT_EQ(senders[static_cast<std::size_t>(rank)], rank);
      }
      ASSERT_TRUE(comm.barrier().ok());  // none of the next is among these
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Messages, ::testing::ValuesIn(contract_worlds()));

}  // namespace
}  // namespace dlaunch::testing
