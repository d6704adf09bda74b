// A rank that sends faster than it is received from: what is kept of its messages is limited, and
// they all come nevertheless; and its end is noticed although nobody reads what it has sent.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/soon.h"
#include "tests/transport/fabric.h"
#include "transport/inbox.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kKeptBytes = std::size_t{2} << 20;
constexpr std::size_t kMessageBytes = std::size_t{256} << 10;
constexpr std::size_t kMessages = 100;
// What lies in the sockets of a connection, or in a ring, at most.
constexpr std::size_t kOnTheWay = 64;
// Who makes no step for so long makes none.
constexpr auto kStill = 400ms;

constexpr int kSender = 0;
constexpr int kReceiver = 1;
constexpr int kThird = 2;
constexpr MessageTag kOfThird{.sequence = 1, .context = 1};

MessageTag tag_of(std::size_t message) {
  return {.sequence = message};
}

// Rank 0 sends to rank 1, which waits for rank 2.
struct Case {
  const char* name;
  TransportChoice transport;
  WaitPolicy wait;
};

class BackPressure : public ::testing::TestWithParam<Case> {
 protected:
  BackPressure()
      : fabric_(make_mesh_fabric(3, {.transport = GetParam().transport,
                                     .wait = GetParam().wait,
                                     .lanes = 3,
                                     .kept_bytes = kKeptBytes})) {}

  bool is_tcp() const { return GetParam().transport == TransportChoice::kTcp; }

  // Starts message after message, of `bytes` bytes each, while they are taken from it.
  void send_while_taken(std::size_t bytes = kMessageBytes) {
    Endpoint& endpoint = fabric_[kSender];
    buffers_.assign(kMessages, {});
    transfers_.resize(kMessages);
    for (std::size_t i = 0; i < kMessages; ++i) {
      buffers_[i].assign(bytes, static_cast<std::byte>(i));
      transfers_[i] = make_transfer(kReceiver, tag_of(i), buffers_[i]);
      endpoint.start_send(transfers_[i]);
      for (auto since = Clock::now(); !transfers_[i].done();) {
        endpoint.poll(Deadline::after(10ms));
        if (Clock::now() - since > kStill) return;
      }
      ++taken_;
    }
  }
  std::size_t sent_well() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        transfers_, [](const Transfer& each) { return each.done() && each.status().ok(); }));
  }
  // The rest of them.
  void send_on() {
    EXPECT_OK(finish(fabric_[kSender], transfers_[taken_]));
    for (std::size_t i = taken_ + 1; i < kMessages; ++i) {
      EXPECT_OK(send(fabric_[kSender], kReceiver, tag_of(i), buffer(i)));
    }
  }
  std::vector<std::byte>& buffer(std::size_t message) {
    buffers_[message].assign(buffers_[0].size(), static_cast<std::byte>(message));
    return buffers_[message];
  }
  void expect_held() const { EXPECT_LE(taken_, kKeptBytes / kMessageBytes + kOnTheWay); }

  void receive_message(std::size_t message, int from, std::size_t bytes = kMessageBytes) {
    std::vector<std::byte> in(bytes);
    EXPECT_OK(recv(fabric_[kReceiver], from, tag_of(message), in));
    // Not byte by byte, for which sanitizers take long.
    const std::vector<std::byte> expected(bytes, static_cast<std::byte>(message));
    EXPECT_EQ(std::memcmp(in.data(), expected.data(), bytes), 0);
  }
  Status receive_from_third() {
    std::vector<std::byte> nothing;
    return recv(fabric_[kReceiver], kThird, kOfThird, nothing);
  }
  void send_from_third() {
    std::vector<std::byte> nothing;
    EXPECT_OK(send(fabric_[kThird], kReceiver, kOfThird, nothing));
  }
  // Ends all lanes of the sender, the one with the messages last, as a communicator does.
  void leave() {
    fabric_.more[kSender].clear();
    fabric_[kSender].linger(kTestTimeout);
    fabric_.endpoints[kSender].reset();
  }
  // All are received, in an order that `arrange` makes, each by a receive from `from`.
  template <typename Arrange>
  void receive_all(const Arrange& arrange, int from = kSender);
  // What the receiver's wait for the third rank ends with when end() has ended the sender.
  template <typename End>
  Status outcome_after(const End& end);

  Fabric fabric_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<Transfer> transfers_;
  std::size_t taken_ = 0;  // messages whose send is done
};

INSTANTIATE_TEST_SUITE_P(
    Over, BackPressure,
    ::testing::Values(
        Case{"tcp", TransportChoice::kTcp, {}},
        Case{"tcp_spinning", TransportChoice::kTcp, {.spin = 50us, .yields = 0}},
        Case{"shm", TransportChoice::kSharedMemory, {}},
        Case{"shm_yielding", TransportChoice::kSharedMemory, {.spin = 0us, .yields = 20}}),
    [](const auto& test) { return std::string(test.param.name); });

template <typename Arrange>
void BackPressure::receive_all(const Arrange& arrange, int from) {
  std::vector<std::size_t> order(kMessages);
  std::iota(order.begin(), order.end(), 0);
  arrange(order);
  std::atomic<bool> still{false};
  fabric_.run([&](int rank, Endpoint& /*endpoint*/) {
    if (rank == kSender) {
      send_while_taken();
      still = true;
      if (taken_ < kMessages) send_on();
    } else if (rank == kReceiver) {
      EXPECT_OK(receive_from_third());
      for (const std::size_t message : order) receive_message(message, from);
    } else {
      while (!still.load()) std::this_thread::sleep_for(1ms);
      send_from_third();
    }
  });
  expect_held();
}

TEST_P(BackPressure, HoldsASenderThatNobodyReceivesFromAndThenAllComes) {
  receive_all([](std::vector<std::size_t>& /*as sent*/) {});
}

TEST_P(BackPressure, LetsAllThroughThatIsBeforeAMessageThatIsWaitedFor) {
  receive_all([](std::vector<std::size_t>& order) { std::ranges::reverse(order); });
}

TEST_P(BackPressure, LetsAllThroughToAReceiveFromAnyRank) {
  receive_all([](std::vector<std::size_t>& order) { std::ranges::reverse(order); }, kAnyRank);
}

TEST_P(BackPressure, AllowsAnyOrderOfTags) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  receive_all(
      [&](std::vector<std::size_t>& order) { std::ranges::shuffle(order, std::mt19937_64(seed)); });
}

// The third rank, which would tell the receiver of it, does not look.
template <typename End>
Status BackPressure::outcome_after(const End& end) {
  std::atomic<Clock::time_point> ended{};
  Status outcome;
  fabric_.run(
      [&](int rank, Endpoint& /*endpoint*/) {
        if (rank == kSender) {
          send_while_taken();
          ended = Clock::now();
          end();
        } else {
          outcome = receive_from_third();
          EXPECT_LT(Clock::now() - ended.load(), testing::kPromptly);
        }
      },
      kThird);
  expect_held();
  return outcome;
}

TEST_P(BackPressure, NoticesTheDeathOfASenderThatIsHeld) {
  const Status outcome = outcome_after([&] { fabric_.kill(kSender); });
  EXPECT_EQ(outcome.code(), StatusCode::kPeerLost) << outcome.to_string();
  EXPECT_EQ(outcome.peer(), kSender) << outcome.to_string();
}

TEST_P(BackPressure, HearsWhyASenderThatIsHeldGivesUp) {
  const Status outcome = outcome_after([&] {
    const Status why(StatusCode::kInvalidArgument, "the data set is empty");
    for (const auto& lane : fabric_.more[kSender]) lane->fail(why);
    fabric_[kSender].fail(why);
  });
  EXPECT_EQ(outcome.to_string(), "the data set is empty (reported by rank 0)");
}

TEST_P(BackPressure, LosesNothingOfASenderThatIsHeldAndLeaves) {
  std::atomic<bool> left{false};
  std::atomic<std::size_t> sent{0};
  fabric_.run([&](int rank, Endpoint& endpoint) {
    if (rank == kSender) {
      send_while_taken();
      const auto begin = Clock::now();
      leave();
      EXPECT_LT(Clock::now() - begin, testing::kPromptly);
      // The one that was being written may have been finished.
      sent = sent_well();
      left = true;
    } else if (rank == kThird) {
      while (!left.load()) std::this_thread::sleep_for(1ms);
      send_from_third();
    } else {
      EXPECT_OK(receive_from_third());
      for (std::size_t message = 0; message < sent; ++message) {
        receive_message(message, kSender);
      }
      std::vector<std::byte> in(kMessageBytes);
      const Status end = recv(endpoint, kSender, tag_of(sent), in);
      EXPECT_EQ(end.code(), StatusCode::kPeerLeft) << end.to_string();
    }
  });
  expect_held();
  EXPECT_GE(sent.load(), taken_);
}

// Messages of this length go through the ring.
constexpr std::size_t kShort = 60'000;

TEST_P(BackPressure, HoldsShortMessagesToo) {
  fabric_ = make_mesh_fabric(
      3, {.transport = GetParam().transport, .wait = GetParam().wait, .kept_bytes = kShort});
  std::atomic<bool> still{false};
  fabric_.run([&](int rank, Endpoint& /*endpoint*/) {
    if (rank == kSender) {
      send_while_taken(kShort);
      still = true;
      if (taken_ < kMessages) send_on();
    } else if (rank == kReceiver) {
      EXPECT_OK(receive_from_third());
      for (std::size_t i = 0; i < kMessages; ++i) receive_message(i, kSender, kShort);
    } else {
      while (!still.load()) std::this_thread::sleep_for(1ms);
      send_from_third();
    }
  });
  // Over TCP all may lie in the sockets.
  if (!is_tcp()) {
    EXPECT_LT(taken_, kMessages);
  }
}

TEST_P(BackPressure, LosesNoShortMessageOfASenderThatIsHeldAndLeaves) {
  fabric_ = make_mesh_fabric(3, {.transport = GetParam().transport,
                                 .wait = GetParam().wait,
                                 .lanes = 3,
                                 .kept_bytes = kShort});
  std::atomic<bool> left{false};
  std::atomic<std::size_t> sent{0};
  fabric_.run([&](int rank, Endpoint& /*endpoint*/) {
    if (rank == kSender) {
      send_while_taken(kShort);
      leave();
      sent = sent_well();
      left = true;
    } else if (rank == kThird) {
      while (!left.load()) std::this_thread::sleep_for(1ms);
      send_from_third();
    } else {
      EXPECT_OK(receive_from_third());
      for (std::size_t i = 0; i < sent; ++i) receive_message(i, kSender, kShort);
    }
  });
  EXPECT_GE(sent.load(), taken_);
}

TEST(Inbox, IsFullOnlyWhileItKeepsWhatFillsIt) {
  EndpointContext context{.kept_bytes = 1000};
  Inbox inbox(context, kSender);
  std::vector<std::byte> out(1000);
  for (std::size_t round = 0; round < 3; ++round) {
    EXPECT_FALSE(inbox.is_full(nullptr));
    EXPECT_OK(inbox.deliver(tag_of(round), {}, out.data(), out.size()));
    EXPECT_TRUE(inbox.is_full(nullptr));
    std::vector<std::byte> in(1000);
    Transfer receive = make_transfer(kSender, tag_of(round), in);
    EXPECT_OK(inbox.post(receive));
    EXPECT_OK(receive.status());
  }
}

}  // namespace
}  // namespace dlaunch
