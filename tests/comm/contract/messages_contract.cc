// Point-to-point messages, blocking and asynchronous, as every kind of Communicator carries them.
#include <cstddef>
#include <cstdint>
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
    for (Work& send : sends) ASSERT_TRUE(send.wait().ok());
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

INSTANTIATE_TEST_SUITE_P(Worlds, Messages, ::testing::ValuesIn(contract_worlds()));

}  // namespace
}  // namespace dlaunch::testing
