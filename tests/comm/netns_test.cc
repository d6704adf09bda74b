// Jobs on several hosts, which are network namespaces of this machine: ranks of different hosts
// reach each other over a network of veth links and a bridge. Skipped, with the reason, where the
// machine does not allow that.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/local_address.h"
#include "tests/comm/hosts_test.h"
#include "tests/comm/random_collectives.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

std::uint64_t fresh_seed() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

class SeveralHosts : public HostsTest {
 protected:
  ForkedRanks::Options options(std::vector<int> hosts, std::chrono::nanoseconds timeout = 20s) {
    return {.hosts = std::move(hosts),
            .timeout = timeout,
            .store_host = NetworkHosts::address(0),
            .enter = [this](int host) { network().enter(host); }};
  }
  // Every rank's next line; "(nothing)" at the deadline.
  static std::vector<std::string> lines_of(ForkedRanks& ranks, Deadline deadline) {
    std::vector<std::string> lines;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      lines.push_back(ranks[rank].read_line(deadline).value_or("(nothing)"));
    }
    return lines;
  }
};

TEST_F(SeveralHosts, CarryOutEveryCollectiveRight) {
  const std::uint64_t seed = fresh_seed();
  // Ranks host by host, in turn, and in unequal numbers.
  for (const std::vector<int>& hosts :
       {std::vector{0, 0, 1, 1, 2, 2}, {0, 1, 2, 0, 1, 2}, {0, 1, 1, 2, 2, 2}, {1, 0, 2}}) {
    ForkedRanks ranks(options(hosts), [&](Communicator& world, LineChannel&) {
      return run_random_collectives(world, seed, 0, 100, 30'000);
    });
    for (const std::string& line : lines_of(ranks, Deadline::after(40s))) EXPECT_EQ(line, "");
  }
}

TEST_F(SeveralHosts, ShareMemoryInsideAHostAndUseTcpBetweenHosts) {
  auto asked = options({0, 0, 1, 1, 2, 2});
  asked.send_log = true;
  ForkedRanks ranks(asked, [](Communicator&, LineChannel&) { return "connected"; });
  for (int rank = 0; rank < ranks.size(); ++rank) {
    std::string log;
    std::string line;
    while ((line = ranks[rank].read_line(Deadline::after(20s)).value_or("(nothing)"))
               .rfind("log: ", 0) == 0) {
      log += line;
    }
    EXPECT_EQ(line, "connected");
    EXPECT_THAT(log, HasSubstr("rank " + std::to_string(rank) +
                               " of 6 connected: shm with 1 rank, tcp with 4 ranks"));
  }
}

TEST_F(SeveralHosts, ReachEachOtherAtTheAddressesThatTheUserHasChosen) {
  const std::pair<const char*, const char*> choices[] = {{"", "10.83.0."},
                                                         {"10.84.0.0/16", "10.84.0."}};
  for (const auto& [choice, network] : choices) {
    auto asked = options({0, 1, 2});
    asked.send_log = true;
    asked.environment = {{"DLAUNCH_INTERFACE", choice}};
    ForkedRanks ranks(
        asked, [](Communicator& world, LineChannel&) { return world.barrier().to_string(); });
    for (int rank = 0; rank < ranks.size(); ++rank) {
      std::string log;
      std::string line;
      while ((line = ranks[rank].read_line(Deadline::after(20s)).value_or("(nothing)"))
                 .starts_with("log: ")) {
        log += line;
      }
      EXPECT_EQ(line, "ok");
      EXPECT_THAT(log, HasSubstr("tcp with 2 ranks; its address is " + std::string(network) +
                                 std::to_string(rank + 1) + ":"));
    }
  }
}

TEST_F(SeveralHosts, SayWhichAddressesThereAreWhereTheChosenOneIsNot) {
  auto asked = options({0, 1});
  asked.environment = {{"DLAUNCH_INTERFACE", "ib0"}};
  ForkedRanks ranks(asked, [](Communicator&, LineChannel&) { return "connected"; });
  for (const std::string& line : lines_of(ranks, Deadline::after(20s))) {
    EXPECT_THAT(line,
                AllOf(StartsWith("not connected: "), HasSubstr("DLAUNCH_INTERFACE: 'ib0' is no"),
                      HasSubstr("eth0 10.83.0.")));
  }
}

TEST_F(SeveralHosts, CannotAllShareMemoryAndSaySoWithThePair) {
  auto asked = options({0, 0, 1});
  asked.environment = {{"DLAUNCH_TRANSPORT", "shm"}};
  ForkedRanks ranks(asked, [](Communicator&, LineChannel&) { return "connected"; });
  const std::vector<std::string> lines = lines_of(ranks, Deadline::after(20s));
  for (const std::string& line : lines) {
    EXPECT_THAT(line, AllOf(StartsWith("not connected: "),
                            HasSubstr("cannot share memory: they are on different hosts")));
  }
  EXPECT_THAT(lines[0], HasSubstr("ranks 0 and 2"));
  EXPECT_THAT(lines[1], HasSubstr("ranks 1 and 2"));
}

TEST_F(SeveralHosts, CarryLongVectorsBothWaysAtOnce) {
  ForkedRanks ranks(options({0, 0, 1, 1, 2, 2}), [](Communicator& world, LineChannel&) {
    std::vector<float> first(1'000'003, 1.0F);
    std::vector<double> second(500'009, 2.0);
    Work work = world.start_all_reduce(first);
    if (const Status status = world.all_reduce(second); !status.ok()) return status.to_string();
    if (const Status status = work.wait(); !status.ok()) return status.to_string();
    const bool right = std::count(first.begin(), first.end(), 6.0F) == std::ssize(first) &&
                       std::count(second.begin(), second.end(), 12.0) == std::ssize(second);
    return std::string(right ? "right" : "wrong");
  });
  for (const std::string& line : lines_of(ranks, Deadline::after(40s))) EXPECT_EQ(line, "right");
}

// All-reduces until one fails; the failure.
std::string reduce_until_failure(Communicator& world, LineChannel& test, std::size_t elements) {
  std::vector<float> data(elements, 1.0F);
  for (int round = 0;; ++round) {
    if (const Status status = world.all_reduce(data); !status.ok()) {
      return std::string(to_string(status.code())) + ": " + status.to_string();
    }
    if (data.back() != static_cast<float>(world.size())) return "wrong result";
    std::fill(data.begin(), data.end(), 1.0F);
    if (round == 0) test.write_line("ready");
  }
}

TEST_F(SeveralHosts, NameARankThatIsKilledOnAnotherHost) {
  for (const int victim : {0, 3}) {
    ForkedRanks ranks(options({0, 0, 1, 1, 2, 2}), [](Communicator& world, LineChannel& test) {
      return reduce_until_failure(world, test, 20'000);
    });
    for (const std::string& line : lines_of(ranks, Deadline::after(30s))) ASSERT_EQ(line, "ready");
    ranks.send_signal(victim, SIGKILL);
    const std::vector<std::string> lines = lines_of(ranks, Deadline::after(kPromptly));
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(lines[static_cast<std::size_t>(rank)],
                  AllOf(StartsWith("peer lost: "), HasSubstr("peer " + std::to_string(victim))))
          << "rank " << rank;
    }
  }
}

TEST_F(SeveralHosts, EndAtTheDeadlineWhenOneIsCutOffAndNameItsRanks) {
  constexpr auto kTimeout = 3s;
  ForkedRanks ranks(options({0, 0, 1, 1, 2, 2}), [&](Communicator& world, LineChannel& test) {
    world.set_timeout(kTimeout);
    return reduce_until_failure(world, test, 20'000);
  });
  for (const std::string& line : lines_of(ranks, Deadline::after(30s))) ASSERT_EQ(line, "ready");
  const Status cut = network().set_link(2, /*up=*/false);
  ASSERT_TRUE(cut.ok()) << cut.to_string();
  const std::vector<std::string> lines = lines_of(ranks, Deadline::after(kTimeout + kPromptly));
  int naming_the_right_ones[2] = {0, 0};  // of the ranks that stayed together, of those cut off
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const std::string& line = lines[static_cast<std::size_t>(rank)];
    EXPECT_THAT(line, StartsWith("timeout: ")) << "rank " << rank;
    // Or a neighbour that has not yet got out of the collective before.
    EXPECT_THAT(line, ContainsRegex("waiting for ranks? [0-5]")) << "rank " << rank;
    const char* missing = rank < 4 ? "waiting for ranks? .*[45]" : "waiting for ranks? .*[0123]";
    if (std::regex_search(line, std::regex(missing))) ++naming_the_right_ones[rank < 4 ? 0 : 1];
  }
  EXPECT_GT(naming_the_right_ones[0], 0);
  EXPECT_GT(naming_the_right_ones[1], 0);
}

TEST_F(SeveralHosts, GoOnAfterAShortInterruption) {
  const std::uint64_t seed = fresh_seed();
  ForkedRanks ranks(options({0, 1, 2}), [&](Communicator& world, LineChannel& test) {
    std::string wrong = run_random_collectives(world, seed, 0, 5, 1'000);
    test.write_line("ready");
    if (wrong.empty()) wrong = run_random_collectives(world, seed, 5, 400, 30'000);
    return wrong;
  });
  for (const std::string& line : lines_of(ranks, Deadline::after(30s))) ASSERT_EQ(line, "ready");
  // As long as the commands take; TCP sends again what was lost.
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(network().set_link(1, /*up=*/false).ok());
    ASSERT_TRUE(network().set_link(1, /*up=*/true).ok());
  }
  for (const std::string& line : lines_of(ranks, Deadline::after(40s))) EXPECT_EQ(line, "");
}

TEST_F(SeveralHosts, AreReachedUnderTheAddressOfTheInterfaceThatLeadsToTheStore) {
  const std::string store = NetworkHosts::address(0) + ":4321";
  for (int host = 0; host < kHosts; ++host) {
    std::thread([&] {
      network().enter(host);
      const auto own = local_address_towards(store, soon());
      ASSERT_TRUE(own.ok()) << own.status().to_string();
      EXPECT_EQ(*own, NetworkHosts::address(host));
      const auto nowhere =
          local_address_towards("192.0.2.1:80", soon());  // kept free for documentation
      EXPECT_EQ(nowhere.status().code(), StatusCode::kUnavailable);
      EXPECT_THAT(nowhere.status().to_string(),
                  AllOf(HasSubstr("192.0.2.1:80"), HasSubstr("unreachable")));
    }).join();
  }
}

TEST(LocalAddress, TowardsLoopbackIsLoopback) {
  const auto own = local_address_towards("127.0.0.1:80", soon());
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  EXPECT_EQ(*own, "127.0.0.1");
  const auto six = local_address_towards("[::1]:80", soon());
  // Without IPv6 there is no way there.
  if (six.ok()) {
    EXPECT_EQ(*six, "[::1]");
  } else {
    EXPECT_EQ(six.status().code(), StatusCode::kUnavailable);
  }
}

TEST(LocalAddress, OfWhatIsNoAddressIsRefusedWithIt) {
  for (const char* bad : {"", "127.0.0.1", "127.0.0.1:port", ":", "[::1"}) {
    const auto own = local_address_towards(bad, soon());
    EXPECT_EQ(own.status().code(), StatusCode::kUnavailable) << bad;
    EXPECT_THAT(own.status().to_string(), HasSubstr("'" + std::string(bad) + "'"));
  }
}

}  // namespace
}  // namespace dlaunch::testing
