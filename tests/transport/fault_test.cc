// Collectives over connections that a proxy delays, throttles, cuts into pieces, stalls, resets and
// closes. Slow networks change no result; broken ones end every call in bounded time with the peer
// named.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/random_collectives.h"
#include "tests/support/soon.h"
#include "tests/transport/fault_world.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::uint64_t fresh_seed() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

void expect_ok(const std::vector<Status>& outcomes) {
  for (const Status& status : outcomes) EXPECT_TRUE(status.ok()) << status.to_string();
}

// --- slow, but whole

struct SlowNetwork {
  const char* name;
  Faults faults;
  std::size_t most_elements;  // what it carries in reasonable time
};
void PrintTo(const SlowNetwork& network, std::ostream* out) {
  *out << network.name;
}

class SlowNetworks : public ::testing::TestWithParam<SlowNetwork> {};

TEST_P(SlowNetworks, ChangeNoResult) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  FaultWorld world({.world = 3});
  world.set_all(GetParam().faults);
  expect_ok(world.connect());
  world.run([&](Communicator& comm) {
    EXPECT_EQ(run_random_collectives(comm, seed, 0, 25, GetParam().most_elements), "");
  });
}

INSTANTIATE_TEST_SUITE_P(
    Faults, SlowNetworks,
    ::testing::Values(SlowNetwork{"none", {}, 100'000},
                      SlowNetwork{"delay", {.delay = 2ms}, 20'000},
                      SlowNetwork{"throttle", {.bytes_per_second = 4'000'000}, 5'000},
                      SlowNetwork{"single_bytes", {.bytes_per_write = 1}, 50},
                      SlowNetwork{"pieces_of_7", {.bytes_per_write = 7}, 1'000},
                      SlowNetwork{"pieces_of_57", {.bytes_per_write = 57}, 5'000},
                      SlowNetwork{"pieces_of_1449", {.bytes_per_write = 1449}, 100'000}),
    [](const auto& test) { return test.param.name; });

TEST(SlowNetwork, MayChangeWhileCollectivesRun) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr int kWorld = 4;
  FaultWorld world({.world = kWorld});
  expect_ok(world.connect());
  world.run([&](Communicator& comm) {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(comm.rank()));
    for (std::uint64_t step = 0; step < 40; ++step) {
      // Each rank plays with one of the links, not only with its own; every stall ends again when
      // the same rank comes to this place the next time.
      const int from = static_cast<int>(random() % kWorld);
      const int to = (from + 1 + static_cast<int>(random() % (kWorld - 1))) % kWorld;
      Faults faults;
      if (random() % 3 == 0) faults.delay = std::chrono::microseconds(random() % 3000);
      if (random() % 3 == 0) faults.bytes_per_write = 1 + random() % 2000;
      if (random() % 3 == 0) faults.bytes_per_second = 5'000'000;
      world.set(from, to, faults);
      const std::string wrong = run_random_collectives(comm, seed, step, step + 1, 3'000);
      ASSERT_EQ(wrong, "");
    }
  });
}

// --- ranks that keep next to nothing of what they do not wait for yet

TEST(RanksThatKeepNothing, DoAllCollectives) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  FaultWorld world({.world = 4, .kept_bytes = 1});
  expect_ok(world.connect());
  world.run([&](Communicator& comm) {
    EXPECT_EQ(run_random_collectives(comm, seed, 0, 100, 100'000), "");
  });
}

TEST(RanksThatKeepNothing, NameBothCallsIfTheyOnlySendToEachOther) {
  // More than the sockets on the way hold, which is up to 72 MiB.
  constexpr std::size_t kBytes = std::size_t{100} << 20;
  FaultWorld world({.world = 2, .timeout = 5s, .kept_bytes = 1});
  expect_ok(world.connect());
  std::atomic<int> timed_out{0};
  world.run([&](Communicator& comm) {
    const std::vector<std::uint8_t> data(kBytes);
    EXPECT_TRUE(comm.send({data.data(), 1, DType::kU8}, 1 - comm.rank(), 1).ok());
    const Status status = comm.send(data, 1 - comm.rank(), 2);
    // The other rank's may be taken in by the one that gives up first, and drops it.
    if (status.ok()) return;
    ++timed_out;
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    const std::string to = "send u8[104857600] to rank ";
    EXPECT_THAT(status.to_string(), AllOf(HasSubstr("rank 0 waits in " + to + "1 tag 2"),
                                          HasSubstr("rank 1 waits in " + to + "0 tag 2")));
  });
  EXPECT_GE(timed_out.load(), 1);
}

TEST(StalledConnection, GoesOnWhereItStoodWhenTheStallEnds) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  FaultWorld world({.world = 2});
  expect_ok(world.connect());
  world.set(0, 1, {.stalled = true});
  std::atomic<bool> ended = false;
  std::thread mender([&] {
    // The stall has held something up when bytes have gone in the other direction only.
    while (world.proxy(1, 0).forwarded(Direction::kForward) < 100'000 && !ended) {
      std::this_thread::yield();
    }
    world.set(0, 1, {});
  });
  world.run([&](Communicator& comm) {
    std::vector<float> data(200'000, static_cast<float>(comm.rank() + 1));
    const Status status = comm.all_reduce(data);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(std::count(data.begin(), data.end(), 3.0F), std::ssize(data));
    EXPECT_EQ(run_random_collectives(comm, seed, 0, 10, 1000), "");
    ended = true;
  });
  mender.join();
}

// --- broken

// Ring all-reduces, in which every rank sends to the next one, until one fails; what it failed
// with, and how long that one took.
struct LastCall {
  Status status;
  std::chrono::nanoseconds took{0};
};
LastCall reduce_until_failure(Communicator& comm, std::size_t elements, Deadline deadline) {
  std::vector<float> data(elements, 1.0F);
  while (!deadline.expired()) {
    const auto begin = Clock::now();
    Status status = comm.all_reduce(data, ReduceOp::kSum, Algorithm::kRing);
    if (!status.ok()) return {std::move(status), Clock::now() - begin};
    EXPECT_EQ(data.empty() ? 0.0F : data.back(), static_cast<float>(comm.size()));
    std::fill(data.begin(), data.end(), 1.0F);
  }
  return {};
}

struct Break {
  const char* name;
  Ending ending;
  std::size_t elements;  // of the all-reduces under way: 2 make messages that no cut falls within
};
void PrintTo(const Break& how, std::ostream* out) {
  *out << how.name;
}

class BrokenConnection : public ::testing::TestWithParam<Break> {};

TEST_P(BrokenConnection, IsALossThatEveryRankNames) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 4; ++turn) {
    constexpr int kWorld = 4;
    const int from = static_cast<int>(random() % kWorld);
    const int to = (from + 1) % kWorld;
    // Of what comes from the next call on.
    const std::size_t cut_after = random() % (GetParam().elements * 4 + 200);
    SCOPED_TRACE("from " + std::to_string(from) + " to " + std::to_string(to) + " after " +
                 std::to_string(cut_after) + " bytes");
    FaultWorld world({.world = kWorld, .timeout = 15s});
    expect_ok(world.connect());
    std::atomic<int> ready = 0;
    std::vector<LastCall> outcomes(kWorld);
    world.run([&](Communicator& comm) {
      if (!comm.barrier().ok()) return;
      if (++ready == kWorld) {
        world.set(from, to, {.cut_after = cut_after, .ending = GetParam().ending});
      }
      outcomes[static_cast<std::size_t>(comm.rank())] =
          reduce_until_failure(comm, GetParam().elements, Deadline::after(10s));
    });
    for (int rank = 0; rank < kWorld; ++rank) {
      const auto& [status, took] = outcomes[static_cast<std::size_t>(rank)];
      SCOPED_TRACE("rank " + std::to_string(rank) + ": " + status.to_string());
      EXPECT_EQ(status.code(), StatusCode::kPeerLost);
      EXPECT_LT(took, kPromptly);
      // Each end misses the other one; whose word came first is what all ranks report, even the one
      // that it is about.
      EXPECT_THAT(status.peer().value_or(-1), AnyOf(from, to));
      EXPECT_THAT(status.to_string(), HasSubstr("all_reduce #"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Endings, BrokenConnection,
                         ::testing::Values(Break{"reset", Ending::kReset, 2},
                                           Break{"reset_of_long_messages", Ending::kReset, 100'000},
                                           Break{"close", Ending::kClose, 2},
                                           Break{"close_of_long_messages", Ending::kClose, 100'000},
                                           Break{"half_close", Ending::kHalfClose, 2},
                                           Break{"half_close_of_long_messages", Ending::kHalfClose,
                                                 100'000}),
                         [](const auto& test) { return test.param.name; });

// Both directions of one link stand still: its two ranks miss each other.
class StalledFor : public ::testing::TestWithParam<std::size_t> {};

TEST_P(StalledFor, EverEndsAtTheDeadlineWithThePeerNamed) {
  constexpr int kWorld = 3;
  constexpr auto kTimeout = 4s;
  FaultWorld world({.world = kWorld});
  expect_ok(world.connect());
  std::atomic<int> ready = 0;
  std::vector<LastCall> outcomes(kWorld);
  world.run([&](Communicator& comm) {
    if (!comm.barrier().ok()) return;
    comm.set_timeout(kTimeout);
    if (++ready == kWorld) {
      world.set(1, 2, {.stalled = true});
      world.set(2, 1, {.stalled = true});
    }
    outcomes[static_cast<std::size_t>(comm.rank())] =
        reduce_until_failure(comm, GetParam(), Deadline::after(20s));
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    const auto& [status, took] = outcomes[static_cast<std::size_t>(rank)];
    SCOPED_TRACE("rank " + std::to_string(rank) + ": " + status.to_string());
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    EXPECT_LT(took, kTimeout + kPromptly);
    // Rank 0 misses either or both: they only wait for each other.
    EXPECT_THAT(status.to_string(),
                AnyOf(HasSubstr("rank 1"), HasSubstr("rank 2"), HasSubstr("ranks 1 and 2")));
    if (rank == 1) {
      EXPECT_THAT(status.to_string(), HasSubstr("rank 2"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Elements, StalledFor, ::testing::Values(2, 100'000, 2'000'000));

// --- while the ranks meet

TEST(Handshake, ThatIsCutOffIsTriedAgain) {
  // The connector's part is 32 + 32 + 32 bytes; a listener that has admitted nobody lets it in when
  // it comes again.
  for (const std::size_t cut_after : {0U, 1U, 31U, 32U, 64U, 95U}) {
    for (const Ending ending : {Ending::kReset, Ending::kClose}) {
      SCOPED_TRACE(cut_after);
      FaultWorld world({.world = 2, .choose = [&](int index) -> ConnectionFaults {
                          if (index > 3) return {};
                          return {.forward = {.cut_after = cut_after, .ending = ending}};
                        }});
      expect_ok(world.connect());
      EXPECT_GT(world.proxy(1, 0).connections(), 4);
      world.run(
          [](Communicator& comm) { EXPECT_EQ(run_random_collectives(comm, 1, 0, 3, 100), ""); });
    }
  }
}

TEST(Handshake, ThroughAConnectionOfSingleSlowBytesSucceeds) {
  FaultWorld world({.world = 3, .choose = [](int) -> ConnectionFaults {
                      const Faults slow{.delay = 3ms, .bytes_per_write = 1};
                      return {slow, slow};
                    }});
  expect_ok(world.connect());
  world.run([](Communicator& comm) { EXPECT_EQ(run_random_collectives(comm, 2, 0, 3, 20), ""); });
}

TEST(Handshake, ThatNeverEndsIsToldAtTheDeadlineWithTheRank) {
  FaultWorld world({.world = 3, .timeout = 4s, .choose = [](int) -> ConnectionFaults {
                      return {.backward = {.stalled = true}};
                    }});
  world.proxy(2, 1).set(Direction::kBackward, {});
  const auto begin = Clock::now();
  const std::vector<Status> outcomes = world.connect();
  EXPECT_LT(Clock::now() - begin, 4s + kPromptly);
  for (const Status& status : outcomes) EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(outcomes[0].to_string(), HasSubstr("rank 1, 2"));
  EXPECT_THAT(outcomes[1].to_string(), HasSubstr("rank 0"));
  EXPECT_THAT(outcomes[2].to_string(), HasSubstr("rank 0"));
}

}  // namespace
}  // namespace dlaunch::testing
