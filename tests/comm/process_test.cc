// The communicator of real processes, started by dlaunch: on one host in shared memory, where a
// test does not ask for TCP. What all communicators have in common, contract_of_processes.cc tests.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/descriptor_room.h"
#include "runtime/base/job_environment.h"
#include "runtime/comm/communicator.h"
#include "runtime/rendezvous/job_store.h"
#include "tests/comm/random_data.h"
#include "tests/support/distributed_test.h"
#include "tests/support/sanitized.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class Processes : public DistributedTestWith<Algorithm> {};

TEST_P(Processes, AllReduceIsRightForEveryTypeAndReduction) {
  const std::uint64_t seed = run_seed();
  run([&, algorithm = std::get<1>(GetParam())](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, p - 1, std::size_t{251}}) {
      for (const DType dtype : kAllDTypes) {
        for (const ReduceOp op : reductions_of(dtype)) {
          visit_dtype(dtype, [&]<typename T>() {
            std::vector<std::vector<T>> inputs;
            for (int rank = 0; rank < comm.size(); ++rank) {
              inputs.push_back(random_values<T>(seed, rank, count));
            }
            std::vector<T> data = inputs[static_cast<std::size_t>(comm.rank())];
            const Status status = comm.all_reduce(data, op, algorithm);
            ASSERT_TRUE(status.ok()) << status.to_string();
            EXPECT_EQ(wrong_element(op, inputs, 0, data), "") << "seed " << seed;
          });
        }
      }
    }
  });
}

TEST_P(Processes, LongVectorsAndManyInFlight) {
  run([algorithm = std::get<1>(GetParam())](Communicator& comm) {
    std::vector<std::vector<float>> data(6, std::vector<float>(500'009, 1.0F));
    std::vector<Work> works;
    for (auto& vector : data) {
      works.push_back(comm.start_all_reduce(vector, ReduceOp::kSum, algorithm));
    }
    std::vector<std::int64_t> blocking(1'000'003, comm.rank());
    ASSERT_TRUE(comm.all_reduce(blocking, ReduceOp::kMax, algorithm).ok());
    EXPECT_EQ(std::ranges::count(blocking, comm.size() - 1), std::ssize(blocking));
    for (std::size_t i = 0; i < works.size(); ++i) {
      const Status status = works[i].wait();
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(std::ranges::count(data[i], static_cast<float>(comm.size())), std::ssize(data[i]));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Processes,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5),
                                            ::testing::Values(Algorithm::kRing,
                                                              Algorithm::kButterfly)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" +
                                  std::string(to_string(std::get<1>(test.param)));
                         });

TEST(World, ConnectsSeveralTimes) {
  run_on_ranks(2, [](Communicator& first) {
    auto second = connect_world();
    ASSERT_TRUE(second.ok()) << second.status().to_string();
    std::vector<std::int32_t> data{1};
    ASSERT_TRUE((*second)->all_reduce(data).ok());
    ASSERT_TRUE(first.all_reduce(data).ok());
    EXPECT_EQ(data[0], 4);
  });
}

TEST(World, CanBeSplit) {
  run_on_ranks(5, [](Communicator& world) {
    auto part = world.split(world.rank() % 2, -world.rank());
    ASSERT_TRUE(part.ok()) << part.status().to_string();
    auto inner = (*part)->split((*part)->rank() == 0 ? -1 : 0, 0);
    ASSERT_TRUE(inner.ok()) << inner.status().to_string();
    std::vector<std::int32_t> ones{1};
    ASSERT_TRUE((*part)->all_reduce(ones).ok());
    EXPECT_EQ(ones[0], world.rank() % 2 == 0 ? 3 : 2);
    if ((*part)->rank() == 0) {
      EXPECT_EQ(*inner, nullptr);
    } else {
      ASSERT_TRUE((*inner)->start_all_reduce(ones).wait().ok());
      EXPECT_EQ(ones[0], world.rank() % 2 == 0 ? 6 : 2);
    }
    ASSERT_TRUE(world.barrier().ok());
  });
}

TEST(World, CanBeSplitAgainAndAgain) {
  run_on_ranks(2, [](Communicator& world) {
    const JobEnvironment job = read_job_environment().value_or_throw();
    const auto store = connect_job_store(job, soon()).value_or_throw();
    const auto keys = [&] { return store->list("").value_or_throw().size(); };
    ASSERT_TRUE(world.barrier().ok());
    const std::size_t before = keys();
    ASSERT_TRUE(world.barrier().ok());
    std::unique_ptr<Communicator> part;
    for (int depth = 0; depth < 100; ++depth) {
      // A name that grows as fast as any, and another numbering each time.
      auto next = (part == nullptr ? world : *part).split(2'000'000'000, -world.rank());
      ASSERT_TRUE(next.ok()) << "depth " << depth << ": " << next.status().to_string();
      part = *std::move(next);
    }
    std::vector<std::int32_t> ones{1};
    ASSERT_TRUE(part->all_reduce(ones).ok());
    EXPECT_EQ(ones[0], 2);
    ASSERT_TRUE(world.barrier().ok());
    EXPECT_EQ(keys(), before) << "what the splits put into the store";
    ASSERT_TRUE(world.barrier().ok());
  });
}

TEST(World, HandsOutMemoryForCollectives) {
  run_on_ranks(3, [](Communicator& world) {
    auto memory = world.allocate(700'001 * sizeof(float));
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    const auto values = memory->as<float>();
    for (int round = 0; round < 3; ++round) {
      std::ranges::fill(values, static_cast<float>(world.rank() + 1));
      ASSERT_TRUE(world.all_reduce(values).ok());
      EXPECT_EQ(std::ranges::count(values, 6.0F), std::ssize(values));
    }
  });
}

TEST(World, ReducesManyBuffersAndRecordsAsOne) {
  run_on_ranks(3, [](Communicator& world) {
    const auto mine = static_cast<float>(world.rank() + 1);
    std::vector<float> shorter(11, mine);
    std::vector<float> longer(400'003, 2 * mine);
    const std::vector<Buffer> pieces{shorter, longer};
    ASSERT_TRUE(world.all_reduce(pieces).ok());
    EXPECT_EQ(std::ranges::count(shorter, 6.0F), std::ssize(shorter));
    EXPECT_EQ(std::ranges::count(longer, 12.0F), std::ssize(longer));

    const auto sum = [](auto& a, const auto& b) { a[1] += b[1]; };
    std::vector<std::array<std::int32_t, 3>> records(50'021, {7, world.rank(), 9});
    ASSERT_TRUE(world.start_all_reduce_records(std::span(records), sum).wait().ok());
    EXPECT_EQ(std::ranges::count(records, std::array<std::int32_t, 3>{7, 3, 9}),
              std::ssize(records));
  });
}

TEST(World, OfOneNeedsNoLauncher) {
  const auto world = connect_world(JobEnvironment{}, nullptr);
  ASSERT_TRUE(world.ok()) << world.status().to_string();
  std::vector<float> data{2, 3};
  EXPECT_TRUE((*world)->all_reduce(data, ReduceOp::kAvg).ok());
  EXPECT_TRUE((*world)->barrier().ok());
  EXPECT_EQ(data, (std::vector<float>{2, 3}));
}

TEST(World, WithoutItsStoreSaysWhere) {
  JobEnvironment job{.rank = 1, .world_size = 2, .store_address = "127.0.0.1:1", .timeout = 2s};
  job.token = std::string(32, 'x');
  const auto world = connect_world(job, nullptr);
  ASSERT_FALSE(world.ok());
  EXPECT_THAT(world.status().to_string(), HasSubstr("connecting rank 1 of 2"));
  EXPECT_THAT(world.status().to_string(), HasSubstr("127.0.0.1:1"));
}

// It finds in the segment what the others announced before they gave up.
TEST(FailureOfProcesses, IsSeenByARankThatComesLateByAllCollectivesOfSharedMemory) {
  const std::vector<std::function<Status(Communicator&)>> calls{
      [](Communicator& world) { return world.barrier(); },
      [](Communicator& world) {
        std::vector<float> few(4);
        return world.all_reduce(few);
      },
      [](Communicator& world) {
        std::vector<float> few(4);
        return world.start_all_reduce(few).wait();
      }};
  for (std::size_t which = 0; which < calls.size(); ++which) {
    run_on_ranks(3, [&](Communicator& world) {
      const JobEnvironment job = read_job_environment().value_or_throw();
      const auto store = connect_job_store(job, soon()).value_or_throw();
      ASSERT_TRUE(world.barrier().ok());
      if (world.rank() == 2) {
        ASSERT_TRUE(store->get_all({"gave up 0", "gave up 1"}, soon()).ok());
      } else {
        world.set_timeout(100ms);
      }
      EXPECT_EQ(calls[which](world).code(), StatusCode::kTimeout) << which;
      ASSERT_TRUE(store->set("gave up " + std::to_string(world.rank()), "").ok());
      ASSERT_TRUE(store->get("gave up 2", soon()).ok());  // who leaves is another case
    });
  }
}

TEST(MismatchOfProcesses, IsToldToEveryRank) {
  run_on_ranks(3, [](Communicator& comm) {
    std::vector<float> data(comm.rank() == 1 ? 8 : 9);
    const auto begin = Clock::now();
    Status status = comm.all_reduce(data);
    if (status.ok()) status = comm.barrier();
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("f32[8]"));
    EXPECT_THAT(status.to_string(), HasSubstr("f32[9]"));
    EXPECT_LT(Clock::now() - begin, kPromptly);
  });
}

// ThreadSanitizer runs a thread of its own, which might still make a call for all that is known.
#ifdef __SANITIZE_THREAD__
constexpr StatusCode kStandstill = StatusCode::kTimeout;
#else
constexpr StatusCode kStandstill = StatusCode::kMismatch;
#endif

// A message that is taken in before it is asked for, because its receiver looks for another one:
// its sender has long gone on when the receiver stands still elsewhere.
TEST(SendThatHasEnded, IsNotTakenForOneThatWaits) {
  run_on_ranks(3, [](Communicator& comm) {
    std::vector<float> data(1U << 20);
    std::vector<float> few(3);
    const auto check = [](const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); };
    if (comm.rank() == 1) {
      check(comm.send(data, 0, 1));
      check(comm.send(few, 2, 3));  // now it has been taken in
      std::this_thread::sleep_for(1200ms);
      check(comm.barrier());
    } else if (comm.rank() == 2) {
      check(comm.recv(few, 1, 3));
      check(comm.send(few, 0, 2));
      check(comm.barrier());
    } else {
      std::this_thread::sleep_for(500ms);
      check(comm.recv(few, 2, 2));
      check(comm.barrier());
      check(comm.recv(data, 1, 1));
    }
  });
}

TEST(SplitOfARankThatHasNoDescriptorsLeft, FailsOnTheOthersToo) {
  if (kSanitized)
    GTEST_SKIP() << "a sanitizer opens a pipe to look at an object, and takes it for bad otherwise";
  run_on_ranks(2, [](Communicator& comm) {
    const auto begin = Clock::now();
    if (comm.rank() == 1) {
      // The store's connection can be made, and no more.
      const int next = ::dup(0);
      ::close(next);
      const auto most = static_cast<rlim_t>(next) + 1;
      const rlimit low{.rlim_cur = most, .rlim_max = most};
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    }
    const Status status = comm.split(0, comm.rank()).status();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.code(), StatusCode::kTimeout) << status.to_string();
    if (comm.rank() == 0) {
      EXPECT_THAT(status.to_string(), HasSubstr("peer 1: gave up: "));
    }
    EXPECT_LT(Clock::now() - begin, kPromptly);
  });
}

// As many descriptors as there are, and one less than there are needed; over TCP, as between hosts.
TEST(SplitOfARankThatHasTooFewDescriptors, FailsOnEveryRankAtOnceAndSaysHowManyItTakes) {
  if (kSanitized)
    GTEST_SKIP() << "a sanitizer opens a pipe to look at an object, and takes it for bad otherwise";
  const auto body = [](Communicator& comm) {
    const auto begin = Clock::now();
    const int before = descriptor_room().open;
    const auto enough = comm.split(0, -comm.rank());
    ASSERT_TRUE(enough.ok()) << enough.status().to_string();
    // Three connections, epoll and wake() for each of four lanes.
    EXPECT_EQ(descriptor_room().open - before, 4 * (3 + 2));
    if (comm.rank() == 3) {
      // Those, and what meeting the others takes.
      const auto most = static_cast<rlim_t>(descriptor_room().open + 4 * (3 + 2));
      const rlimit low{.rlim_cur = most, .rlim_max = most};
      ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
    }
    const Status status = comm.split(0, -comm.rank()).status();
    EXPECT_EQ(status.code(), StatusCode::kIo);
    EXPECT_THAT(
        status.to_string(),
        ::testing::AllOf(HasSubstr("whose rank 0 is rank 3 of the world: rank 0 may open "),
                         HasSubstr("connections to 3 ranks take 20: raise its hard limit")));
    EXPECT_LT(Clock::now() - begin, kPromptly);
  };
  run_on_ranks(4, body, {.environment = {{"DLAUNCH_TRANSPORT", "tcp"}}});
}

// DLAUNCH_REDUCE_ORDER: sums have the bits of those that are taken in the order of the ranks.
class ReduceOrderOfTheEnvironment : public ::testing::TestWithParam<const char*> {};

TEST_P(ReduceOrderOfTheEnvironment, IsThatOfTheWorldAndOfItsParts) {
  const std::uint64_t seed = run_seed();
  const auto body = [seed](Communicator& world) {
    // The ranks of the world in the order of the communicator's.
    const auto check = [&](Communicator& comm, const std::vector<int>& ranks) {
      EXPECT_EQ(comm.reduce_order(), ReduceOrder::kRanks);
      for (const std::size_t count : {3U, 50'000U}) {
        std::vector<float> expected = random_values<float>(seed, ranks[0], count);
        for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
          const auto values = random_values<float>(seed, ranks[rank], count);
          for (std::size_t i = 0; i < count; ++i) expected[i] += values[i];
        }
        std::vector<float> data = random_values<float>(seed, world.rank(), count);
        const Status status = comm.all_reduce(data);
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(data, expected) << "seed " << seed;
      }
    };
    check(world, {0, 1, 2, 3});
    const auto part = world.split(0, -world.rank()).value_or_throw();
    check(*part, {3, 2, 1, 0});
  };
  run_on_ranks(
      4, body,
      {.environment = {{"DLAUNCH_TRANSPORT", GetParam()}, {"DLAUNCH_REDUCE_ORDER", "ranks"}}});
}

INSTANTIATE_TEST_SUITE_P(Transports, ReduceOrderOfTheEnvironment, ::testing::Values("tcp", "shm"),
                         [](const auto& test) { return std::string(test.param); });

// A message too long to be taken in by nobody, to a rank that does not ask for it.
TEST(StandstillOfProcesses, IsFoundOutAndNamesBothCalls) {
  run_on_ranks(2, [](Communicator& comm) {
    const auto begin = Clock::now();
    comm.set_timeout(kPromptly / 2);
    std::vector<float> data(8U << 20);
    const Status status = comm.rank() == 0 ? comm.send(data, 1, 4) : comm.barrier();
    EXPECT_EQ(status.code(), kStandstill) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("send f32[8388608] to rank 1 tag 4"));
    EXPECT_THAT(status.to_string(), HasSubstr("barrier"));
    EXPECT_LT(Clock::now() - begin, kPromptly);
  });
}

}  // namespace
}  // namespace dlaunch::testing
