// What every transport promises about failures (transport/endpoint.h), run over each of them.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/soon.h"
#include "tests/transport/fabric.h"

namespace dlaunch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EndpointFailure : public ::testing::TestWithParam<FabricKind> {
 protected:
  Fabric make(int world_size) { return GetParam().make(world_size); }
};

INSTANTIATE_TEST_SUITE_P(Over, EndpointFailure, ::testing::ValuesIn(all_fabric_kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

constexpr MessageTag kTag{.sequence = 1};

TEST_P(EndpointFailure, NamesBothSidesOfASignatureMismatchOnEveryRank) {
  for (const bool receive_first : {true, false}) {
    Fabric fabric = make(3);
    std::vector<std::byte> data(8);
    fabric.run([&](int rank, Endpoint& endpoint) {
      std::vector<std::byte> own(8);
      Status outcome;
      if (rank == 0) {
        if (!receive_first) {
          EXPECT_OK(recv(endpoint, 1, {.sequence = 7}, own));
        }
        outcome = recv(endpoint, 1, kTag, own, {.count = 2, .operation = 8});
      } else if (rank == 1) {
        EXPECT_OK(send(endpoint, 0, kTag, own, {.count = 1, .operation = 3}));
        if (!receive_first) {
          EXPECT_OK(send(endpoint, 0, {.sequence = 7}, own));
        }
        outcome = await_failure(endpoint);
      } else {
        outcome = recv(endpoint, 1, kTag, own);  // waits for a rank that is not at fault
      }
      EXPECT_EQ(outcome.code(), StatusCode::kMismatch);
      EXPECT_THAT(outcome.to_string(), AllOf(HasSubstr("operation 3 of 1 elements"),
                                             HasSubstr("operation 8 of 2 elements"),
                                             HasSubstr("rank 0"), HasSubstr("rank 1")));
      EXPECT_EQ(await_failure(endpoint).code(), StatusCode::kMismatch);
    });
  }
}

/// What this thread has computed.
std::chrono::nanoseconds thread_time() {
  timespec time{};
  EXPECT_EQ(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST_P(EndpointFailure, SleepsOnThoughAForkedProcessHoldsTheSocketOfAPeerThatLeft) {
  Fabric fabric = make(3);
  fabric.run([](int, Endpoint& endpoint) { EXPECT_OK(meet(endpoint, 1)); });
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  fabric.endpoints[2].reset();
  std::vector<std::byte> data(8);
  Transfer transfer = make_transfer(1, kTag, data);
  fabric[0].start_recv(transfer);
  constexpr std::chrono::milliseconds kWait{400};
  const Deadline deadline = Deadline::after(kWait);
  const auto before = thread_time();
  while (!deadline.expired()) fabric[0].poll(deadline, nullptr);
  EXPECT_LT(thread_time() - before, kWait / 2);
  EXPECT_THAT(fabric[0].departed(), ElementsAre(2));
  fabric[0].cancel(transfer, Status(StatusCode::kAborted, "enough"));
  ::kill(child, SIGKILL);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST_P(EndpointFailure, NamesBothLengthsOfALengthMismatch) {
  for (const std::size_t expected : {0UL, 7UL, 9UL, 100000UL}) {
    Fabric fabric = make(2);
    fabric.run([&](int rank, Endpoint& endpoint) {
      std::vector<std::byte> eight(8);
      std::vector<std::byte> other(expected);
      Status outcome;
      if (rank == 0) {
        outcome = recv(endpoint, 1, kTag, other);
      } else {
        EXPECT_OK(send(endpoint, 0, kTag, eight));
        outcome = await_failure(endpoint);
      }
      EXPECT_EQ(outcome.code(), StatusCode::kMismatch);
      EXPECT_THAT(outcome.to_string(),
                  AllOf(HasSubstr("8 bytes"), HasSubstr(std::to_string(expected) + " bytes")));
    });
  }
}

TEST_P(EndpointFailure, NamesADeadRankOnEveryRankWhoeverItWaitsFor) {
  constexpr int kWorld = 5;
  constexpr int kVictim = 3;
  Fabric fabric = make(kWorld);
  std::atomic<int> waiting{0};
  std::thread killer([&] {
    // Not before the others wait.
    const Deadline deadline = Deadline::after(kTestTimeout);
    while (waiting.load() < kWorld - 1 && !deadline.expired()) std::this_thread::yield();
    fabric.kill(kVictim);
  });
  const auto begin = std::chrono::steady_clock::now();
  fabric.run(
      [&](int rank, Endpoint& endpoint) {
        std::vector<std::byte> data(8);
        // A ring: only one rank waits for the victim, the others for its victims.
        Transfer receive = make_transfer((rank + kWorld - 1) % kWorld, kTag, data);
        endpoint.start_recv(receive);
        ++waiting;
        const Status outcome = finish(endpoint, receive);
        EXPECT_EQ(outcome.code(), StatusCode::kPeerLost) << outcome.to_string();
        EXPECT_EQ(outcome.peer(), kVictim) << outcome.to_string();
        EXPECT_THAT(outcome.to_string(), HasSubstr("peer 3: connection closed unexpectedly"));
        EXPECT_EQ(endpoint.failure().to_string(), outcome.to_string());
        // It stays failed.
        receive.reset();
        endpoint.start_send(receive);
        EXPECT_EQ(receive.status().to_string(), outcome.to_string());
      },
      kVictim);
  killer.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, testing::kPromptly);
}

TEST_P(EndpointFailure, KeepsTheRootCauseWhenRanksThatGiveUpDieToo) {
  constexpr int kWorld = 6;
  constexpr int kVictim = 4;
  for (int turn = 0; turn < 5; ++turn) {
    Fabric fabric = make(kWorld);
    std::atomic<int> waiting{0};
    std::thread killer([&] {
      const Deadline deadline = Deadline::after(kTestTimeout);
      while (waiting.load() < kWorld - 1 && !deadline.expired()) std::this_thread::yield();
      fabric.kill(kVictim);
    });
    fabric.run(
        [&](int rank, Endpoint& endpoint) {
          std::vector<std::byte> data(8);
          Transfer receive = make_transfer((rank + 1) % kWorld, kTag, data);
          endpoint.start_recv(receive);
          ++waiting;
          const Status outcome = finish(endpoint, receive);
          EXPECT_EQ(outcome.peer(), kVictim) << outcome.to_string();
          fabric.endpoints[static_cast<std::size_t>(rank)].reset();  // ends as a program would
        },
        kVictim);
    killer.join();
  }
}

TEST_P(EndpointFailure, TellsEveryPeerWhyARankGaveUp) {
  Fabric fabric = make(4);
  fabric.run([](int rank, Endpoint& endpoint) {
    if (rank == 2) {
      endpoint.fail(Status(StatusCode::kInvalidArgument, "the data set is empty"));
      endpoint.fail(Status(StatusCode::kIo, "a second reason"));
      EXPECT_EQ(endpoint.failure().to_string(), "the data set is empty");
    } else {
      const Status failure = await_failure(endpoint);
      EXPECT_EQ(failure.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(failure.to_string(), "the data set is empty (reported by rank 2)");
    }
  });
}

TEST_P(EndpointFailure, TellsPeersEvenIfItIsDestroyedAtOnce) {
  Fabric fabric = make(3);
  fabric.run([&](int rank, Endpoint& endpoint) {
    if (rank == 0) {
      std::vector<std::byte> data(1000);
      EXPECT_OK(send(endpoint, 1, kTag, data));  // stays unread in the way of what follows
      endpoint.fail(Status::about_peer(StatusCode::kTimeout, 2, "no answer").within("barrier #7"));
      fabric.endpoints[0].reset();
    } else {
      const Status failure = await_failure(endpoint);
      EXPECT_EQ(failure.code(), StatusCode::kTimeout);
      EXPECT_EQ(failure.peer(), 2);
      EXPECT_EQ(failure.to_string(), "barrier #7: peer 2: no answer (reported by rank 0)");
    }
  });
}

TEST_P(EndpointFailure, CancelFailsTheEndpointAndTellsThePeers) {
  Fabric fabric = make(2);
  fabric.run([](int rank, Endpoint& endpoint) {
    std::vector<std::byte> data(8);
    Transfer receive = make_transfer(1 - rank, kTag, data);
    endpoint.start_recv(receive);
    if (rank == 0) {
      endpoint.poll(Deadline::after(std::chrono::milliseconds(5)));
      EXPECT_FALSE(receive.done());
      endpoint.cancel(receive, Status(StatusCode::kTimeout, "nothing came"));
      EXPECT_TRUE(receive.done());
      EXPECT_EQ(receive.status().to_string(), "nothing came");
    } else {
      EXPECT_EQ(finish(endpoint, receive).to_string(), "nothing came (reported by rank 0)");
    }
    EXPECT_EQ(endpoint.failure().code(), StatusCode::kTimeout);
  });
}

TEST_P(EndpointFailure, ARankThatLeavesFailsOnlyWhatNeedsIt) {
  Fabric fabric = make(3);
  fabric.run([&](int rank, Endpoint& endpoint) {
    std::vector<std::byte> data(8);
    if (rank == 2) {
      EXPECT_OK(send(endpoint, 0, kTag, data));
      fabric.endpoints[2].reset();
      return;
    }
    Transfer needless = make_transfer(2, {.sequence = 50}, data);
    endpoint.start_recv(needless);
    const Status left = finish(endpoint, needless);
    EXPECT_EQ(left.code(), StatusCode::kPeerLeft);
    EXPECT_EQ(left.peer(), 2);
    EXPECT_OK(endpoint.failure());
    // What it sent before can still be received.
    if (rank == 0) {
      EXPECT_OK(recv(endpoint, 2, kTag, data));
    }
    EXPECT_EQ(send(endpoint, 2, kTag, data).code(), StatusCode::kPeerLeft);
    EXPECT_EQ(recv(endpoint, 2, kTag, data).code(), StatusCode::kPeerLeft);
    // The two others go on.
    EXPECT_OK(send(endpoint, 1 - rank, kTag, data));
    EXPECT_OK(recv(endpoint, 1 - rank, kTag, data));
    EXPECT_OK(endpoint.failure());
  });
}

TEST_P(EndpointFailure, DeliversWhatWasSentBeforeALeave) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  Fabric fabric = make(2);
  constexpr std::size_t kBytes = 100003;
  std::atomic<int> sent{-1};
  fabric.run([&](int rank, Endpoint& endpoint) {
    if (rank == 0) {
      // As many as the transport takes without the receiver's help; those not yet taken are
      // dropped.
      std::vector<std::vector<std::byte>> data(400);
      std::vector<Transfer> transfers(400);
      int taken = 0;
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        data[i] = random_bytes(kBytes, seed + i);
        transfers[i] = make_transfer(1, {.sequence = i}, data[i]);
        // Nothing is in the middle of being sent when this rank leaves.
        endpoint.start_send(transfers[i]);
        if (!transfers[i].done()) {
          EXPECT_OK(finish(endpoint, transfers[i]));
          ++taken;
          break;
        }
        ++taken;
      }
      fabric.endpoints[0].reset();
      sent = taken;
    } else {
      std::vector<std::byte> in(kBytes);
      std::uint64_t received = 0;
      Status outcome;
      while (true) {
        outcome = recv(endpoint, 0, {.sequence = received}, in);
        if (!outcome.ok()) break;
        EXPECT_TRUE(in == random_bytes(kBytes, seed + received)) << "message " << received;
        ++received;
      }
      EXPECT_EQ(outcome.code(), StatusCode::kPeerLeft) << outcome.to_string();
      const Deadline deadline = Deadline::after(kTestTimeout);
      while (sent.load() < 0 && !deadline.expired()) std::this_thread::yield();
      EXPECT_EQ(static_cast<int>(received), sent.load());
    }
  });
}

TEST_P(EndpointFailure, ALeaveDoesNotUndoWhatTheLeaverHasReceived) {
  // Long enough to be fetched from the sender's memory, where the transport does that.
  constexpr std::size_t kBytes = 200'003;
  for (int round = 0; round < 50; ++round) {
    Fabric fabric = make(2);
    fabric.run([&](int rank, Endpoint& endpoint) {
      std::vector<std::byte> data(kBytes);
      if (rank == 0) {
        EXPECT_OK(send(endpoint, 1, kTag, data));
      } else {
        EXPECT_OK(recv(endpoint, 0, kTag, data));
        fabric.endpoints[1].reset();
      }
    });
  }
}

TEST_P(EndpointFailure, LeavesWhileMessagesForItAreUnread) {
  // Unread bytes make a closing socket reset the connection; what was sent must survive that.
  Fabric fabric = make(2);
  fabric.run([&](int rank, Endpoint& endpoint) {
    std::vector<std::byte> data(50000);
    Transfer unread = make_transfer(1 - rank, {.sequence = 8}, data);
    endpoint.start_send(unread);
    if (rank == 0) {
      std::vector<std::byte> last = random_bytes(500, 1);
      EXPECT_OK(send(endpoint, 1, kTag, last));
      fabric.endpoints[0].reset();
    } else {
      std::vector<std::byte> last(500);
      EXPECT_OK(recv(endpoint, 0, kTag, last));
      EXPECT_EQ(last, random_bytes(500, 1));
      EXPECT_EQ(recv(endpoint, 0, {.sequence = 9}, last).code(), StatusCode::kPeerLeft);
    }
  });
}

TEST_P(EndpointFailure, CanBeDestroyedWithTransfersInFlight) {
  for (const bool after_failure : {false, true}) {
    Fabric fabric = make(3);
    std::vector<std::byte> big(std::size_t{16} << 20);
    std::vector<std::byte> in(big.size());
    std::vector<Transfer> transfers(4);
    for (std::size_t i = 0; i < 4; ++i) {
      transfers[i] = make_transfer(1 + static_cast<int>(i) % 2, {.sequence = i}, i < 2 ? big : in);
      i < 2 ? fabric[0].start_send(transfers[i]) : fabric[0].start_recv(transfers[i]);
    }
    if (after_failure) {
      fabric[0].fail(Status(StatusCode::kAborted, "enough"));
      for (const Transfer& transfer : transfers) EXPECT_TRUE(transfer.done());
    }
    fabric.endpoints[0].reset();
    const auto begin = std::chrono::steady_clock::now();
    for (int rank = 1; rank < 3; ++rank) {
      // Cut off in the middle of a message it is a lost peer, otherwise one that left or gave up;
      // in any case this ends, and soon.
      std::vector<std::byte> data(8);
      const Status outcome = recv(fabric[rank], 0, {.sequence = 77}, data);
      EXPECT_THAT(outcome.code(), ::testing::AnyOf(StatusCode::kPeerLost, StatusCode::kPeerLeft,
                                                   StatusCode::kAborted))
          << outcome.to_string();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kTestTimeout / 4);
  }
}

}  // namespace
}  // namespace dlaunch
