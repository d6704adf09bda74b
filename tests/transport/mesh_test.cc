// connect_mesh: who reaches whom how, and what the shared memory of a host offers.
#include "transport/mesh/mesh.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/token.h"
#include "tests/support/forbidden_call.h"
#include "tests/support/soon.h"
#include "tests/transport/fabric.h"
#include "tests/transport/thread_exchange.h"
#include "transport/mesh/introduction.h"
#include "transport/shm/shared_group.h"

namespace dlaunch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Lanes = Result<std::vector<std::unique_ptr<Endpoint>>>;

// What differs between the ranks of a test.
struct RankOptions {
  std::string host = "one host";
  TransportChoice transport = TransportChoice::kAuto;
  WaitPolicy wait;
  int cores = 1;
  /// Called by the rank's thread before it connects.
  std::function<void()> prepare;
  /// Changes what the rank hears from others.
  std::function<void(std::string_view round, std::vector<std::string>& texts)> tamper;
};

// Connects a world of threads; by rank, what came of it.
std::vector<Lanes> connect(const std::vector<RankOptions>& ranks, int lanes = 1) {
  const int world_size = static_cast<int>(ranks.size());
  const std::string token = make_token();
  ThreadExchange exchange(world_size);
  std::vector<std::optional<Lanes>> outcomes(ranks.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const RankOptions& own = ranks[static_cast<std::size_t>(rank)];
      if (own.prepare) own.prepare();
      TcpListener listener = TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw();
      const std::string address = "127.0.0.1:" + std::to_string(listener.port());
      const Exchange tampered = [&, all = exchange.of(rank)](
                                    std::string_view round, const std::string& text,
                                    Deadline deadline) -> Result<std::vector<std::string>> {
        auto texts = all(round, text, deadline);
        if (texts.ok() && own.tamper) own.tamper(round, *texts);
        return texts;
      };
      outcomes[static_cast<std::size_t>(rank)] =
          connect_mesh(std::move(listener), {.rank = rank,
                                             .world_size = world_size,
                                             .address = address,
                                             .exchange = tampered,
                                             .token = token,
                                             .job_id = "job",
                                             .lanes = lanes,
                                             .transport = own.transport,
                                             .host = own.host,
                                             .timeout = kTestTimeout,
                                             .wait = own.wait,
                                             .cores = own.cores,
                                             .describe = describe_for_tests,
                                             .logger = {}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Lanes> result;
  for (auto& outcome : outcomes) result.push_back(*std::move(outcome));
  return result;
}

Fabric lane_of(std::vector<Lanes>& world, std::size_t lane) {
  Fabric fabric;
  for (Lanes& lanes : world) {
    throw_if_error(lanes.status());
    fabric.endpoints.push_back(std::move((*lanes)[lane]));
  }
  return fabric;
}

void expect_messages_pass(Fabric& fabric) {
  fabric.run([](int, Endpoint& endpoint) { EXPECT_OK(meet(endpoint, 1)); });
}

TEST(Mesh, SharesMemoryWithinHostsAndNowhereElse) {
  std::vector<RankOptions> ranks(6);
  for (std::size_t rank = 0; rank < 5; ++rank) ranks[rank].host = rank % 2 == 0 ? "a" : "b";
  ranks[5].host = "c";
  auto world = connect(ranks, 3);
  for (std::size_t lane = 0; lane < 3; ++lane) {
    Fabric fabric = lane_of(world, lane);
    for (int a = 0; a < 6; ++a) {
      for (int b = 0; b < 6; ++b) {
        const bool same_host = a < 5 && b < 5 && a % 2 == b % 2;
        EXPECT_STREQ(fabric[a].transport_name(b), a == b ? "self" : same_host ? "shm" : "tcp");
      }
    }
    SharedGroup* const group = fabric[2].shared_group();
    ASSERT_NE(group, nullptr);
    EXPECT_EQ(group->size(), 3);
    EXPECT_EQ(group->index(), 1);
    EXPECT_EQ(group->rank(2), 4);
    EXPECT_EQ(fabric[5].shared_group(), nullptr);
    expect_messages_pass(fabric);
  }
}

TEST(Mesh, AgreesOnWhetherEveryRankOfAHostHasACoreOfItsOwn) {
  const auto agreed = [](const std::vector<RankOptions>& ranks) {
    auto world = connect(ranks);
    Fabric fabric = lane_of(world, 0);
    const bool first = fabric[0].shared_group()->core_each();
    for (int rank = 1; rank < fabric.world_size(); ++rank) {
      EXPECT_EQ(fabric[rank].shared_group()->core_each(), first) << "rank " << rank;
    }
    expect_messages_pass(fabric);
    return first;
  };
  const RankOptions alone{.wait = WaitPolicy::of_host(1, 3), .cores = 3};
  const RankOptions among_three{.wait = WaitPolicy::of_host(3, 3), .cores = 3};
  const RankOptions crowded{.wait = WaitPolicy::of_host(2, 1), .cores = 1};
  EXPECT_TRUE(agreed({alone, alone, alone}));
  EXPECT_FALSE(agreed({alone, among_three, among_three, among_three}));
  EXPECT_FALSE(agreed({alone, crowded, crowded}));
  EXPECT_FALSE(agreed({crowded, alone}));
}

TEST(Mesh, OfOneRankNeedsNobody) {
  TcpListener listener = TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw();
  const auto lanes = connect_mesh(std::move(listener), {.lanes = 2});
  ASSERT_OK(lanes.status());
  EXPECT_EQ(lanes->size(), 2U);
}

TEST(Mesh, UsesTcpWhereOneOfTwoWantsNothingElse) {
  std::vector<RankOptions> ranks(3);
  ranks[0].transport = TransportChoice::kTcp;
  auto world = connect(ranks);
  Fabric fabric = lane_of(world, 0);
  EXPECT_STREQ(fabric[0].transport_name(1), "tcp");
  EXPECT_STREQ(fabric[1].transport_name(2), "shm");
  EXPECT_EQ(fabric[0].shared_group(), nullptr);
  expect_messages_pass(fabric);
}

TEST(Mesh, FallsBackToTcpForARankThatCannotMapTheSegment) {
  std::vector<RankOptions> ranks(4);
  // Rank 2 looks for the leader where nobody is.
  ranks[2].tamper = [](std::string_view round, std::vector<std::string>& texts) {
    if (round != "introductions") return;
    std::string& leader = texts[0];
    const std::size_t socket = leader.find("one host") + std::strlen("one host\n");
    leader.insert(socket, "nowhere");
  };
  auto world = connect(ranks);
  Fabric fabric = lane_of(world, 0);
  for (const int rank : {0, 1, 3}) {
    EXPECT_STREQ(fabric[2].transport_name(rank), "tcp");
    EXPECT_STREQ(fabric[rank].transport_name(2), "tcp");
    EXPECT_EQ(fabric[rank].shared_group()->size(), 3);
  }
  EXPECT_STREQ(fabric[0].transport_name(3), "shm");
  expect_messages_pass(fabric);
}

// As some sandboxes do.
void forbid_watching_processes() {
  testing::forbid_system_call(SYS_pidfd_open);
}

TEST(Mesh, FallsBackToTcpForARankThatCannotWatchProcesses) {
  std::vector<RankOptions> ranks(3);
  ranks[1].prepare = forbid_watching_processes;
  auto world = connect(ranks);
  Fabric fabric = lane_of(world, 0);
  EXPECT_STREQ(fabric[0].transport_name(1), "tcp");
  EXPECT_STREQ(fabric[1].transport_name(2), "tcp");
  EXPECT_STREQ(fabric[0].transport_name(2), "shm");
  expect_messages_pass(fabric);

  for (RankOptions& rank : ranks) rank.transport = TransportChoice::kSharedMemory;
  for (const Lanes& lanes : connect(ranks)) {
    EXPECT_THAT(lanes.status().to_string(), HasSubstr("rank 1: pidfd_open"));
  }
}

TEST(Mesh, NamesThePairAndTheReasonWhereDemandedSharingIsImpossible) {
  std::vector<RankOptions> ranks(3);
  for (RankOptions& rank : ranks) rank.transport = TransportChoice::kSharedMemory;
  ranks[2].host = "another host";
  const auto apart = connect(ranks);
  EXPECT_EQ(apart[0].status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(apart[0].status().to_string(),
              AllOf(HasSubstr("ranks 0 and 2"), HasSubstr("different hosts")));
  EXPECT_THAT(apart[2].status().to_string(), HasSubstr("ranks 0 and 2"));

  ranks[2].host = ranks[0].host;
  ranks[1].transport = TransportChoice::kTcp;
  const auto torn = connect(ranks);
  for (const Lanes& lanes : torn) EXPECT_FALSE(lanes.ok());
  EXPECT_THAT(torn[2].status().to_string(),
              AllOf(HasSubstr("ranks 1 and 2"), HasSubstr("rank 1: it uses TCP only")));
}

TEST(Mesh, RefusesRanksOfDifferentBuilds) {
  const RankOptions rank{.tamper = [](std::string_view round, std::vector<std::string>& texts) {
    if (round != "introductions") return;
    Introduction of_2 = Introduction::decode(texts[2]).value_or_throw();
    of_2.build = "0.0.9 (old)";
    texts[2] = of_2.encode();
  }};
  for (const Lanes& lanes : connect({rank, rank, rank})) {
    EXPECT_EQ(lanes.status().code(), StatusCode::kUnavailable);
    EXPECT_THAT(lanes.status().to_string(),
                AllOf(HasSubstr("rank 2 is built with dlaunch 0.0.9 (old), rank 0 with "),
                      HasSubstr(own_build())));
  }
}

// What ranks of a job are told of rank 1 if it may open `left` more files.
RankOptions hears_that_rank_1_may_open(int left) {
  return {.tamper = [left](std::string_view round, std::vector<std::string>& texts) {
    if (round != "introductions") return;
    Introduction rank_1 = Introduction::decode(texts[1]).value_or_throw();
    rank_1.room = {.limit = 100, .open = 100 - left};
    texts[1] = rank_1.encode();
  }};
}

// On every rank, and before they have waited for anything.
TEST(Mesh, SaysWhichRankHasTooFewDescriptorsAndHowManyItNeeds) {
  const auto connect_two_lanes = [](int left, TransportChoice transport) {
    RankOptions rank = hears_that_rank_1_may_open(left);
    rank.transport = transport;
    return connect({rank, rank, rank}, 2);
  };
  const struct {
    TransportChoice transport;
    int needed;
  } cases[] = {{TransportChoice::kTcp, 2 * 2 + 2 * 2},                // endpoints, connections
               {TransportChoice::kSharedMemory, 2 * 2 + 2 * 3 + 3}};  // doorbells; pidfds, memory
  for (const auto& [transport, needed] : cases) {
    for (const Lanes& lanes : connect_two_lanes(needed, transport)) EXPECT_OK(lanes.status());
    const auto begin = std::chrono::steady_clock::now();
    for (const Lanes& lanes : connect_two_lanes(needed - 1, transport)) {
      EXPECT_EQ(lanes.status().code(), StatusCode::kIo);
      EXPECT_EQ(lanes.status().to_string(),
                "rank 1 may open " + std::to_string(needed - 1) +
                    " more files, but its connections to 2 ranks take " + std::to_string(needed) +
                    ": raise its hard limit (ulimit -Hn) from 100 to at least 101");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, testing::kPromptly);
  }
}

TEST(Mesh, RefusesImpossibleOptions) {
  const auto refused = [](const MeshOptions& options) {
    TcpListener listener = TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw();
    return connect_mesh(std::move(listener), options).status().code() ==
           StatusCode::kInvalidArgument;
  };
  const std::string token = make_token();
  const Exchange one_text = [](std::string_view, const std::string& own, Deadline) {
    return std::vector<std::string>{own};
  };
  EXPECT_TRUE(refused({.rank = 0, .world_size = 0}));
  EXPECT_TRUE(refused({.rank = 1, .world_size = 1}));
  EXPECT_TRUE(refused({.rank = -1, .world_size = 2, .exchange = one_text, .token = token}));
  EXPECT_TRUE(refused({.world_size = 2, .token = token}));
  EXPECT_TRUE(refused({.world_size = 2, .exchange = one_text, .token = "short"}));
  EXPECT_TRUE(refused({.world_size = 2, .exchange = one_text, .token = token}));
  EXPECT_TRUE(refused({.world_size = 1, .lanes = 0}));
}

TEST(Mesh, SaysWhoIntroducesHimselfStrangely) {
  std::vector<RankOptions> ranks(2);
  ranks[0].tamper = [](std::string_view, std::vector<std::string>& texts) { texts[1] = "hello"; };
  ranks[1].tamper = [](std::string_view, std::vector<std::string>& texts) { texts[0] = "hello"; };
  for (const Lanes& lanes : connect(ranks)) {
    EXPECT_EQ(lanes.status().code(), StatusCode::kProtocol);
  }
}

TEST(Mesh, PassesMessagesThatLieInTheSharedHeap) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  auto world = connect(std::vector<RankOptions>(2));
  Fabric fabric = lane_of(world, 0);
  fabric.run([&](int rank, Endpoint& endpoint) {
    const std::span<std::byte> heap = endpoint.shared_group()->heap(rank);
    std::uint64_t number = 0;
    for (const std::size_t size : {1UL, 4095UL, 4096UL, 70001UL, 3000017UL}) {
      const std::span<std::byte> out = heap.subspan(13 * number, size);
      const auto content = random_bytes(size, seed + 2 * number + static_cast<unsigned>(rank));
      std::memcpy(out.data(), content.data(), size);
      std::vector<std::byte> in(size);
      Transfer receive = make_transfer(1 - rank, {.sequence = number}, in);
      Transfer transmit = receive;
      transmit.data = out.data();
      endpoint.start_send(transmit);
      if (number % 2 == 0) {
        EXPECT_OK(meet(endpoint, number));  // it comes before it is posted
      }
      endpoint.start_recv(receive);
      EXPECT_OK(finish(endpoint, receive));
      EXPECT_OK(finish(endpoint, transmit));
      EXPECT_EQ(in, random_bytes(size, seed + 2 * number + static_cast<unsigned>(1 - rank)));
      ++number;
    }
  });
}

// Of a rank that lives: its own mistake, not the loss of a peer. Where messages are copied instead
// of being read by their receivers, the sender dies of it.
TEST(Mesh, SaysWhoseMessageCannotBeRead) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  auto world = connect(std::vector<RankOptions>(2));
  Fabric fabric = lane_of(world, 0);
  if (!fabric[0].shared_group()->members_readable())
    GTEST_SKIP() << "process_vm_readv is not permitted, or too slow";
  void* const memory = ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  fabric.run([&](int rank, Endpoint& endpoint) {
    std::vector<std::byte> data(kBytes);
    Transfer transfer = make_transfer(1 - rank, {.sequence = 1}, data);
    if (rank == 0) {
      transfer.data = static_cast<std::byte*>(memory);
      endpoint.start_send(transfer);
    } else {
      endpoint.start_recv(transfer);
    }
    const Status status = finish(endpoint, transfer);
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.to_string();
    EXPECT_EQ(status.peer(), 0);
    EXPECT_THAT(status.to_string(), HasSubstr("its buffer cannot be read"));
  });
  ::munmap(memory, kBytes);
}

TEST(Mesh, UsesNoProcessorWhileItWaits) {
  std::vector<std::byte> data(8);
  std::vector<Transfer> receives;  // in flight until the endpoints are gone
  for (int rank = 0; rank < 3; ++rank) {
    receives.push_back(make_transfer((rank + 1) % 3, {.sequence = 1}, data));
  }
  auto world = connect(std::vector<RankOptions>(3));
  Fabric fabric = lane_of(world, 0);
  fabric.run([&](int rank, Endpoint& endpoint) {
    endpoint.start_recv(receives[static_cast<std::size_t>(rank)]);
    rusage before{};
    rusage after{};
    ::getrusage(RUSAGE_THREAD, &before);
    const Deadline deadline = Deadline::after(std::chrono::milliseconds(300));
    while (!deadline.expired()) endpoint.poll(deadline);
    ::getrusage(RUSAGE_THREAD, &after);
    const auto microseconds = [](const rusage& used) {
      return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000L + used.ru_utime.tv_usec +
             used.ru_stime.tv_usec;
    };
    EXPECT_LT(microseconds(after) - microseconds(before), 100'000);  // and not all of the time
    EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 20);
    EXPECT_OK(meet(endpoint, 2));
  });
}

TEST(Mesh, LeavesNoDescriptorToProgramsThatItsProcessStarts) {
  auto world = connect(std::vector<RankOptions>(2));
  DIR* const open_files = ::opendir("/proc/self/fd");
  ASSERT_NE(open_files, nullptr);
  int checked = 0;
  while (const dirent* entry = ::readdir(open_files)) {  // NOLINT(concurrency-mt-unsafe)
    const int number = std::atoi(entry->d_name);
    if (number <= 2 || number == ::dirfd(open_files)) continue;
    char target[256] = {};
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(path.c_str(), target, sizeof target - 1) <= 0) continue;
    if (std::strstr(target, "anon_inode") == nullptr && std::strstr(target, "memfd") == nullptr &&
        std::strstr(target, "socket") == nullptr) {
      continue;
    }
    EXPECT_NE(::fcntl(number, F_GETFD) & FD_CLOEXEC, 0) << target;
    EXPECT_EQ(std::strstr(target, "memfd"), nullptr) << "the segment's file is still open";
    ++checked;
  }
  ::closedir(open_files);
  EXPECT_GT(checked, 0);
}

}  // namespace
}  // namespace dlaunch
