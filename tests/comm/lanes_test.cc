// Blocking, asynchronous and high-priority calls side by side, with threads as ranks.
#include <chrono>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/soon.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// The long one cannot end before the short one has: rank 1 has not begun it.
TEST(HighPriority, CallsEndWhileALongOneIsUnderWay) {
  std::latch looked(3);
  run_threads_as_ranks(3, [&](Communicator& comm) {
    std::vector<float> bucket(4U << 20, 1.0F);
    std::vector<float> statistics(64, 1.0F);
    Work slow = comm.rank() == 1 ? Work::finished(Status()) : comm.start_all_reduce(bucket);
    for (int i = 0; i < 3; ++i) {
      const Status status =
          comm.start_all_reduce(statistics, ReduceOp::kAvg, Algorithm::kAuto, Priority::kHigh)
              .wait(20s);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    if (comm.rank() != 1) {
      EXPECT_FALSE(slow.done());
    }
    looked.arrive_and_wait();
    if (comm.rank() == 1) slow = comm.start_all_reduce(bucket);
    ASSERT_TRUE(slow.wait().ok());
    EXPECT_EQ(bucket.back(), 3.0F);
    EXPECT_EQ(statistics[0], 1.0F);
  });
}

TEST(Lanes, TakeCallsInAnyOrderAmongThem) {
  run_threads_as_ranks(4, [](Communicator& comm) {
    std::vector<std::vector<std::int64_t>> data(3, std::vector<std::int64_t>(1'001, 1));
    for (int round = 0; round < 6; ++round) {
      std::vector<Work> works;
      const auto begin = [&](int which) {
        const auto index = static_cast<std::size_t>(which);
        if (which == 2) return;
        works.push_back(comm.start_all_reduce(data[index], ReduceOp::kMax, Algorithm::kAuto,
                                              which == 0 ? Priority::kNormal : Priority::kHigh));
      };
      for (int i = 0; i < 3; ++i) begin((i + comm.rank() + round) % 3);
      ASSERT_TRUE(comm.all_reduce(data[2], ReduceOp::kMax).ok());
      for (Work& work : works) ASSERT_TRUE(work.wait().ok());
    }
  });
}

struct Crossing {
  Priority priority;
  const char* words;
};

class CrossedLanes : public ::testing::TestWithParam<Crossing> {};

// The same call, blocking here and asynchronous there.
TEST_P(CrossedLanes, AreFoundOutAndNamedLongBeforeTheTimeout) {
  const auto begin = Clock::now();
  run_threads_as_ranks(3, [](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    std::vector<float> data(10);
    const Status status =
        comm.rank() == 1
            ? comm.all_reduce(data)
            : comm.start_all_reduce(data, ReduceOp::kSum, Algorithm::kAuto, GetParam().priority)
                  .wait();
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_THAT(status.to_string(),
                AllOf(HasSubstr("blocking all_reduce sum f32[10]"),
                      HasSubstr(std::string(GetParam().words) + " all_reduce sum f32[10]")));
  });
  EXPECT_LT(Clock::now() - begin, kPromptly);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CrossedLanes,
                         ::testing::Values(Crossing{Priority::kNormal, "asynchronous"},
                                           Crossing{Priority::kHigh, "high-priority"}));

// Rank 0 is late in both kinds of calls, from two threads: that is no mistake.
TEST(LateCallsOfTwoThreads, AreNotTakenForCrossedOnes) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    std::vector<std::int32_t> first{1};
    std::vector<std::int32_t> second{1};
    ASSERT_TRUE(comm.barrier().ok());
    std::latch both(2);
    std::thread other([&] {
      both.arrive_and_wait();
      // The lateness is what is tested.
      if (comm.rank() == 0) std::this_thread::sleep_for(900ms);
      EXPECT_TRUE(comm.start_all_reduce(first).wait().ok());
    });
    both.arrive_and_wait();
    if (comm.rank() == 1) std::this_thread::sleep_for(900ms);
    EXPECT_TRUE(comm.all_reduce(second).ok());
    other.join();
    EXPECT_EQ(first[0] + second[0], 4);
  });
}

}  // namespace
}  // namespace dlaunch::testing
