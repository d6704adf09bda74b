// What every transport promises about messages (transport/endpoint.h), run over each of them.
#include <algorithm>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/fabric.h"

namespace dlaunch {
namespace {

class EndpointContract : public ::testing::TestWithParam<FabricKind> {
 protected:
  Fabric make(int world_size) { return GetParam().make(world_size); }
};

INSTANTIATE_TEST_SUITE_P(Over, EndpointContract, ::testing::ValuesIn(all_fabric_kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

MessageTag tag(std::uint64_t sequence, std::uint32_t context = 0, std::uint32_t step = 0) {
  return {.sequence = sequence, .context = context, .step = step};
}

TEST_P(EndpointContract, KnowsItsPlace) {
  for (const int world : {1, 2, 3, 5}) {
    Fabric fabric = make(world);
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_EQ(fabric[rank].rank(), rank);
      EXPECT_EQ(fabric[rank].world_size(), world);
      EXPECT_OK(fabric[rank].failure());
    }
  }
}

TEST_P(EndpointContract, CarriesMessagesOfEverySizeBothWaysAtOnce) {
  Fabric fabric = make(2);
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  fabric.run([&](int rank, Endpoint& endpoint) {
    const int peer = 1 - rank;
    std::uint64_t number = 0;
    for (const std::size_t size : {0UL, 1UL, 7UL, 8UL, 55UL, 56UL, 57UL, 4093UL, 8135UL, 8136UL,
                                   8137UL, 8192UL, 65537UL, 1048573UL, 8388608UL, 3UL}) {
      std::vector<std::byte> out =
          random_bytes(size, seed + 2 * number + static_cast<unsigned>(rank));
      std::vector<std::byte> in(size);
      Transfer receive = make_transfer(peer, tag(number), in);
      Transfer transmit = make_transfer(peer, tag(number), out);
      endpoint.start_recv(receive);
      endpoint.start_send(transmit);
      EXPECT_OK(finish(endpoint, receive));
      EXPECT_OK(finish(endpoint, transmit));
      EXPECT_TRUE(in == random_bytes(size, seed + 2 * number + static_cast<unsigned>(peer)))
          << size << " bytes";
      ++number;
    }
  });
}

TEST_P(EndpointContract, MatchesByTagWhateverTheOrder) {
  Fabric fabric = make(2);
  // Tags that differ in one field each.
  const std::vector<MessageTag> tags{tag(1), tag(2), tag(1, 7), tag(1, 0, 5), tag(1, 7, 5)};
  fabric.run([&](int rank, Endpoint& endpoint) {
    std::vector<std::vector<std::byte>> data(tags.size());
    std::vector<Transfer> transfers(tags.size());
    for (std::size_t i = 0; i < tags.size(); ++i) {
      // The sender goes through the tags forwards, the receiver backwards.
      const std::size_t which = rank == 0 ? i : tags.size() - 1 - i;
      data[which] =
          rank == 0 ? random_bytes(100 + which, which) : std::vector<std::byte>(100 + which);
      transfers[which] = make_transfer(1 - rank, tags[which], data[which]);
      rank == 0 ? endpoint.start_send(transfers[which]) : endpoint.start_recv(transfers[which]);
    }
    for (Transfer& transfer : transfers) EXPECT_OK(finish(endpoint, transfer));
    for (std::size_t i = 0; i < tags.size(); ++i) EXPECT_EQ(data[i], random_bytes(100 + i, i));
  });
}

TEST_P(EndpointContract, KeepsMessagesThatNobodyWaitsForYet) {
  Fabric fabric = make(2);
  fabric.run([&](int rank, Endpoint& endpoint) {
    std::vector<std::byte> big = random_bytes(300000, 1);
    std::vector<std::byte> small = random_bytes(5, 2);
    std::vector<std::byte> nothing;
    if (rank == 0) {
      Transfer first = make_transfer(1, tag(1), big);
      endpoint.start_send(first);
      EXPECT_OK(send(endpoint, 1, tag(2), small));
      EXPECT_OK(send(endpoint, 1, tag(3), nothing));
      EXPECT_OK(finish(endpoint, first));
      EXPECT_OK(recv(endpoint, 1, tag(4), nothing));  // the peer has read before this rank leaves
    } else {
      std::vector<std::byte> in(big.size());
      std::vector<std::byte> little(small.size());
      EXPECT_OK(recv(endpoint, 0, tag(3), nothing));  // the last message: the others are there
      EXPECT_OK(recv(endpoint, 0, tag(2), little));
      EXPECT_OK(recv(endpoint, 0, tag(1), in));
      EXPECT_EQ(in, big);
      EXPECT_EQ(little, small);
      EXPECT_OK(send(endpoint, 0, tag(4), nothing));
    }
  });
}

TEST_P(EndpointContract, KeepsTheOrderOfMessagesWithOneTag) {
  Fabric fabric = make(2);
  constexpr int kMessages = 300;
  fabric.run([&](int rank, Endpoint& endpoint) {
    std::vector<std::vector<std::byte>> data(kMessages);
    std::vector<Transfer> transfers(kMessages);
    // Half of the receives are posted at once, the other half after messages have come.
    for (int i = 0; i < kMessages; ++i) {
      const auto index = static_cast<std::size_t>(i);
      data[index] = rank == 0 ? random_bytes(64, index) : std::vector<std::byte>(64);
      transfers[index] = make_transfer(1 - rank, tag(5), data[index]);
      if (rank == 1 && i == kMessages / 2) {
        EXPECT_OK(finish(endpoint, transfers[0]));
      }
      rank == 0 ? endpoint.start_send(transfers[index]) : endpoint.start_recv(transfers[index]);
    }
    for (int i = 0; i < kMessages; ++i) {
      const auto index = static_cast<std::size_t>(i);
      EXPECT_OK(finish(endpoint, transfers[index]));
      EXPECT_EQ(data[index], random_bytes(64, index)) << "message " << i;
    }
    EXPECT_OK(meet(endpoint, 1));
  });
}

TEST_P(EndpointContract, HasManyTransfersInFlightWithEveryPeer) {
  constexpr int kWorld = 3;
  constexpr int kPerPeer = 20;
  Fabric fabric = make(kWorld);
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  const auto seed_of = [seed](int from, int to, int i) {
    return seed + static_cast<std::uint64_t>((from * kWorld + to) * kPerPeer + i);
  };
  const auto size_of_message = [](int i) { return static_cast<std::size_t>(i) * 9973; };
  fabric.run([&](int rank, Endpoint& endpoint) {
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in;
    std::vector<Transfer> sends;
    std::vector<Transfer> receives;
    for (int peer = 0; peer < kWorld; ++peer) {
      for (int i = 0; i < kPerPeer; ++i) {
        out.push_back(random_bytes(size_of_message(i), seed_of(rank, peer, i)));
        in.emplace_back(size_of_message(i));
      }
    }
    for (std::size_t all = 0; all < out.size(); ++all) {
      const int peer = static_cast<int>(all) / kPerPeer;
      sends.push_back(make_transfer(peer, tag(all % kPerPeer), out[all]));
      receives.push_back(make_transfer(peer, tag(all % kPerPeer), in[all]));
    }
    for (std::size_t all = 0; all < out.size(); ++all) {
      endpoint.start_send(sends[all]);
      endpoint.start_recv(receives[out.size() - 1 - all]);
    }
    for (std::size_t all = 0; all < out.size(); ++all) {
      EXPECT_OK(finish(endpoint, sends[all]));
      EXPECT_OK(finish(endpoint, receives[all]));
      const int peer = static_cast<int>(all) / kPerPeer;
      const int i = static_cast<int>(all) % kPerPeer;
      EXPECT_TRUE(in[all] == random_bytes(size_of_message(i), seed_of(peer, rank, i)))
          << "message " << i << " from " << peer << " to " << rank;
    }
    EXPECT_OK(meet(endpoint, 1));
  });
}

TEST_P(EndpointContract, ExchangesMoreThanSocketBuffersHoldWithoutDeadlock) {
  Fabric fabric = make(2);
  constexpr std::size_t kBytes = (std::size_t{16} << 20) + 7;
  fabric.run([&](int rank, Endpoint& endpoint) {
    std::vector<std::byte> out(kBytes);
    std::vector<std::byte> in(kBytes);
    std::memset(out.data(), rank + 1, kBytes);
    Transfer transmit = make_transfer(1 - rank, tag(1), out);
    Transfer receive = make_transfer(1 - rank, tag(1), in);
    endpoint.start_send(transmit);
    endpoint.start_recv(receive);
    EXPECT_OK(finish(endpoint, transmit));
    EXPECT_OK(finish(endpoint, receive));
    std::memset(out.data(), 2 - rank, kBytes);
    EXPECT_EQ(std::memcmp(in.data(), out.data(), kBytes), 0);
  });
}

TEST_P(EndpointContract, TakesOverAReceivePostedWhileItsMessageArrives) {
  Fabric fabric = make(2);
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  fabric.run([&](int rank, Endpoint& endpoint) {
    // Larger than the socket buffers, so that it is still arriving when the small one before it
    // has.
    std::vector<std::byte> small(1);
    std::vector<std::byte> big =
        rank == 0 ? random_bytes(12000007, seed) : std::vector<std::byte>(12000007);
    if (rank == 0) {
      Transfer first = make_transfer(1, tag(1), small);
      Transfer second = make_transfer(1, tag(2), big);
      endpoint.start_send(first);
      endpoint.start_send(second);
      EXPECT_OK(finish(endpoint, second));
    } else {
      EXPECT_OK(recv(endpoint, 0, tag(1), small));
      endpoint.poll(Deadline::after(std::chrono::milliseconds(1)));
      EXPECT_OK(recv(endpoint, 0, tag(2), big));
      EXPECT_TRUE(big == random_bytes(big.size(), seed));
    }
    EXPECT_OK(meet(endpoint, 3));
  });
}

TEST_P(EndpointContract, SendsMessagesToItself) {
  Fabric fabric = make(1);
  Endpoint& endpoint = fabric[0];
  std::vector<std::byte> out = random_bytes(1000, 3);
  std::vector<std::byte> in(1000);
  EXPECT_OK(send(endpoint, 0, tag(1), out));  // before its receive
  EXPECT_OK(recv(endpoint, 0, tag(1), in));
  EXPECT_EQ(in, out);

  std::vector<std::byte> again(1000);
  Transfer receive = make_transfer(0, tag(2), again);
  endpoint.start_recv(receive);
  EXPECT_FALSE(receive.done());
  EXPECT_OK(send(endpoint, 0, tag(2), out));
  EXPECT_OK(finish(endpoint, receive));
  EXPECT_EQ(again, out);
}

TEST_P(EndpointContract, ReusesATransfer) {
  Fabric fabric = make(2);
  fabric.run([](int rank, Endpoint& endpoint) {
    std::vector<std::byte> data(8);
    Transfer transfer = make_transfer(1 - rank, tag(0), data);
    for (std::uint64_t turn = 0; turn < 100; ++turn) {
      transfer.tag = tag(turn);
      transfer.reset();
      if ((turn + static_cast<unsigned>(rank)) % 2 == 0) {
        data = random_bytes(8, turn);
        transfer.data = data.data();
        endpoint.start_send(transfer);
        EXPECT_OK(finish(endpoint, transfer));
      } else {
        endpoint.start_recv(transfer);
        EXPECT_OK(finish(endpoint, transfer));
        EXPECT_EQ(data, random_bytes(8, turn));
      }
    }
  });
}

TEST_P(EndpointContract, RefusesRanksThatDoNotExist) {
  Fabric fabric = make(2);
  for (const int peer : {kAnyRank, -2, 2, 1000}) {
    std::vector<std::byte> data(1);
    Transfer transfer = make_transfer(peer, tag(1), data);
    fabric[0].start_send(transfer);
    EXPECT_EQ(transfer.status().code(), StatusCode::kInvalidArgument);
    if (peer == kAnyRank) continue;
    transfer.reset();
    fabric[0].start_recv(transfer);
    EXPECT_EQ(transfer.status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_OK(fabric[0].failure());
}

// --- receives from any rank

TEST_P(EndpointContract, ReceivesFromAnyRankWhetherTheMessageOrTheReceiveComesFirst) {
  constexpr int kWorld = 4;
  constexpr std::size_t kRounds = 12;
  Fabric fabric = make(kWorld);
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  // Also ones that are still arriving when they meet their receive.
  const auto size_of_message = [](std::size_t round) { return round * round * round * 977; };
  fabric.run([&](int rank, Endpoint& endpoint) {
    for (std::size_t round = 0; round < kRounds; ++round) {
      const auto bytes_of = [&](int sender) {
        return random_bytes(size_of_message(round),
                            seed + round * kWorld + static_cast<unsigned>(sender));
      };
      if (rank > 0) {
        std::vector<std::byte> out = bytes_of(rank);
        EXPECT_OK(send(endpoint, 0, tag(round), out));
        continue;
      }
      std::vector<std::vector<std::byte>> in(kWorld - 1);
      std::vector<Transfer> receives(kWorld - 1);
      std::vector<int> senders;
      for (std::size_t i = 0; i < in.size(); ++i) {
        in[i].resize(size_of_message(round));
        receives[i] = make_transfer(kAnyRank, tag(round), in[i]);
        // In some rounds one after the other, in the others all at once.
        endpoint.start_recv(receives[i]);
        if (round % 2 == 0) {
          EXPECT_OK(finish(endpoint, receives[i]));
        }
      }
      for (std::size_t i = 0; i < in.size(); ++i) {
        EXPECT_OK(finish(endpoint, receives[i]));
        senders.push_back(receives[i].peer);
        EXPECT_TRUE(in[i] == bytes_of(receives[i].peer)) << "from " << receives[i].peer;
      }
      EXPECT_THAT(senders, ::testing::UnorderedElementsAre(1, 2, 3));
    }
    EXPECT_OK(meet(endpoint, kRounds));
  });
}

TEST_P(EndpointContract, OfKeptMessagesAReceiveFromAnyRankTakesTheFirst) {
  Fabric fabric = make(3);
  fabric.run([](int rank, Endpoint& endpoint) {
    std::vector<std::byte> nothing;
    std::vector<std::byte> own(3, static_cast<std::byte>(rank));
    // Rank 2's comes, then rank 1's, then this rank's own, and then each one's second.
    if (rank == 2) {
      EXPECT_OK(send(endpoint, 0, tag(1), own));
      EXPECT_OK(send(endpoint, 0, tag(2), nothing));
    } else if (rank == 1) {
      EXPECT_OK(recv(endpoint, 0, tag(3), nothing));
      EXPECT_OK(send(endpoint, 0, tag(1), own));
      EXPECT_OK(send(endpoint, 0, tag(1), own));
      EXPECT_OK(send(endpoint, 0, tag(2), nothing));
    } else {
      EXPECT_OK(recv(endpoint, 2, tag(2), nothing));
      EXPECT_OK(send(endpoint, 1, tag(3), nothing));
      EXPECT_OK(recv(endpoint, 1, tag(2), nothing));
      EXPECT_OK(send(endpoint, 0, tag(1), own));
      for (const int sender : {2, 1, 1, 0}) {
        std::vector<std::byte> in(3);
        Transfer receive = make_transfer(kAnyRank, tag(1), in);
        endpoint.start_recv(receive);
        EXPECT_OK(finish(endpoint, receive));
        EXPECT_EQ(receive.peer, sender);
        EXPECT_EQ(in, std::vector<std::byte>(3, static_cast<std::byte>(sender)));
      }
    }
    EXPECT_OK(meet(endpoint, 4));
  });
}

TEST_P(EndpointContract, AReceiveFromItsSenderGoesBeforeOneFromAnyRank) {
  Fabric fabric = make(3);
  fabric.run([](int rank, Endpoint& endpoint) {
    std::vector<std::byte> in(1);
    std::vector<std::byte> named(1);
    Transfer any = make_transfer(kAnyRank, tag(1), in);
    Transfer from_two = make_transfer(2, tag(1), named);
    if (rank == 0) {
      endpoint.start_recv(any);
      endpoint.start_recv(from_two);
    }
    EXPECT_OK(meet(endpoint, 2));
    std::vector<std::byte> own(1, static_cast<std::byte>(rank));
    if (rank == 2) {
      EXPECT_OK(send(endpoint, 0, tag(1), own));
    }
    EXPECT_OK(meet(endpoint, 3));
    if (rank == 1) {
      EXPECT_OK(send(endpoint, 0, tag(1), own));
    }
    if (rank == 0) {
      EXPECT_OK(finish(endpoint, from_two));
      EXPECT_OK(finish(endpoint, any));
      EXPECT_EQ(any.peer, 1);
      EXPECT_EQ(in[0], std::byte{1});
      EXPECT_EQ(named[0], std::byte{2});
    }
    EXPECT_OK(meet(endpoint, 4));
  });
}

TEST_P(EndpointContract, AReceiveFromAnyRankIsComparedWithTheMessageThatItMeets) {
  Fabric fabric = make(2);
  fabric.run([](int rank, Endpoint& endpoint) {
    std::vector<std::byte> data(rank == 0 ? 4 : 5);
    if (rank == 1) {
      EXPECT_OK(meet(endpoint, 2));
      (void)send(endpoint, 0, tag(1), data);
      EXPECT_EQ(await_failure(endpoint).code(), StatusCode::kMismatch);
      return;
    }
    Transfer receive = make_transfer(kAnyRank, tag(1), data);
    endpoint.start_recv(receive);
    EXPECT_OK(meet(endpoint, 2));
    const Status status = finish(endpoint, receive);
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_THAT(status.to_string(), ::testing::HasSubstr("rank 1 sent"));
    EXPECT_EQ(endpoint.failure().code(), StatusCode::kMismatch);
  });
}

TEST_P(EndpointContract, AReceiveFromAnyRankWaitsUntilAllOthersHaveLeft) {
  Fabric fabric = make(3);
  std::vector<std::byte> in(1);
  Transfer receive = make_transfer(kAnyRank, tag(1), in);
  fabric[0].start_recv(receive);
  const auto leave = [&](int rank) {
    fabric.endpoints[static_cast<std::size_t>(rank)].reset();
    const Deadline limit = Deadline::after(kTestTimeout);
    const auto known = [&] {
      return std::ranges::find(fabric[0].departed(), rank) != fabric[0].departed().end();
    };
    while (!known() && !limit.expired()) fabric[0].poll(limit);
    EXPECT_TRUE(known());
  };
  leave(2);
  EXPECT_FALSE(receive.done());
  leave(1);
  EXPECT_TRUE(receive.done());
  EXPECT_EQ(receive.status().code(), StatusCode::kPeerLeft);
  EXPECT_THAT(receive.status().to_string(), ::testing::HasSubstr("all other ranks have left"));
  Transfer late = make_transfer(kAnyRank, tag(1), in);
  fabric[0].start_recv(late);
  EXPECT_EQ(late.status().code(), StatusCode::kPeerLeft);
  EXPECT_OK(fabric[0].failure());
}

// Nobody has left.
TEST_P(EndpointContract, InAWorldOfOneAReceiveFromAnyRankWaitsForItsOwnMessage) {
  Fabric fabric = make(1);
  std::vector<std::byte> in(1);
  std::vector<std::byte> out(1, std::byte{7});
  Transfer receive = make_transfer(kAnyRank, tag(1), in);
  fabric[0].start_recv(receive);
  EXPECT_FALSE(receive.done());
  EXPECT_OK(send(fabric[0], 0, tag(1), out));
  EXPECT_OK(finish(fabric[0], receive));
  EXPECT_EQ(receive.peer, 0);
  EXPECT_EQ(in, out);
}

TEST_P(EndpointContract, AReceiveFromAnyRankFailsWithTheEndpoint) {
  Fabric fabric = make(3);
  fabric.run([](int rank, Endpoint& endpoint) {
    std::vector<std::byte> in(1);
    if (rank == 1) return endpoint.fail(Status(StatusCode::kAborted, "on purpose"));
    Transfer receive = make_transfer(kAnyRank, tag(1), in);
    endpoint.start_recv(receive);
    EXPECT_EQ(finish(endpoint, receive).code(), StatusCode::kAborted);
    Transfer late = make_transfer(kAnyRank, tag(1), in);
    endpoint.start_recv(late);
    EXPECT_EQ(late.status().code(), StatusCode::kAborted);
  });
}

TEST_P(EndpointContract, PollReturnsAtTheDeadline) {
  Fabric fabric = make(2);
  const auto begin = std::chrono::steady_clock::now();
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(30));
  while (!deadline.expired()) fabric[0].poll(deadline);
  const auto waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited, std::chrono::milliseconds(30));
  EXPECT_LT(waited, kTestTimeout);
  fabric[0].poll(deadline);  // in the past: returns at once
  EXPECT_OK(fabric[0].failure());
}

TEST_P(EndpointContract, PollHandlesWhatIsReadyEvenAfterItsDeadline) {
  Fabric fabric = make(2);
  fabric.run([](int rank, Endpoint& endpoint) {
    std::vector<std::byte> data(8);
    if (rank == 0) {
      EXPECT_OK(send(endpoint, 1, tag(1), data));
    } else {
      Transfer receive = make_transfer(0, tag(1), data);
      endpoint.start_recv(receive);
      const Deadline limit = Deadline::after(kTestTimeout);
      const Deadline past = Deadline::after(std::chrono::nanoseconds(0));
      while (!receive.done() && !limit.expired()) endpoint.poll(past);
      EXPECT_OK(receive.status());
      EXPECT_TRUE(receive.done());
    }
    EXPECT_OK(meet(endpoint, 2));
  });
}

class AlwaysReady final : public Readiness {
 public:
  bool ready() const override { return true; }
};

TEST_P(EndpointContract, PollHandlesMessagesThoughSomethingElseIsReady) {
  Fabric fabric = make(2);
  fabric.run([](int rank, Endpoint& endpoint) {
    std::vector<std::byte> out = random_bytes(300'000, static_cast<unsigned>(rank));
    std::vector<std::byte> in(out.size());
    Transfer receive = make_transfer(1 - rank, tag(1), in);
    Transfer transmit = make_transfer(1 - rank, tag(1), out);
    endpoint.start_recv(receive);
    endpoint.start_send(transmit);
    const AlwaysReady also;
    const Deadline limit = Deadline::after(kTestTimeout);
    while ((!receive.done() || !transmit.done()) && !limit.expired()) endpoint.poll(limit, &also);
    EXPECT_TRUE(receive.done() && transmit.done());
    EXPECT_OK(finish(endpoint, receive));
    EXPECT_OK(finish(endpoint, transmit));
    EXPECT_EQ(in, random_bytes(300'000, static_cast<unsigned>(1 - rank)));
    EXPECT_OK(meet(endpoint, 2));
  });
}

TEST_P(EndpointContract, WakesFromAnotherThread) {
  Fabric fabric = make(2);
  const Deadline deadline = Deadline::after(kTestTimeout);
  for (int turn = 0; turn < 50; ++turn) {
    std::thread waker([&] { fabric[0].wake(); });
    fabric[0].poll(deadline);  // returns only because of the wake
    waker.join();
  }
  fabric[0].wake();  // before the poll: kept
  fabric[0].poll(deadline);
  EXPECT_FALSE(deadline.expired());
}

}  // namespace
}  // namespace dlaunch
