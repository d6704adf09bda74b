// Asynchronous operations, with threads as ranks.
#include <malloc.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/comm/outcome.h"
#include "tests/support/sanitized.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

TEST(AsyncMessages, PingPongManyTimes) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    const int peer = 1 - comm.rank();
    std::vector<double> ball{0};
    for (int i = 0; i < 200; ++i) {
      if ((i + comm.rank()) % 2 == 0) {
        ASSERT_TRUE(comm.start_send(ball, peer).wait().ok());
      } else {
        ASSERT_TRUE(comm.start_recv(ball, peer).wait().ok());
        ball[0] += 1;
      }
    }
    EXPECT_EQ(ball[0], comm.rank() == 0 ? 200 : 199);  // rank 0 receives last
  });
}

TEST(AsyncWait, GivesUpAfterItsTimeoutWhileTheOperationGoesOn) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    std::vector<float> data(5, 1.0F);
    if (comm.rank() == 1) {
      ASSERT_TRUE(comm.barrier().ok());  // so the other rank waits first
      ASSERT_TRUE(comm.start_all_reduce(data).wait().ok());
    } else {
      Work work = comm.start_all_reduce(data);
      const Status early = work.wait(1ms);
      EXPECT_EQ(early.code(), StatusCode::kTimeout);
      EXPECT_FALSE(work.done());
      ASSERT_TRUE(comm.barrier().ok());
      ASSERT_TRUE(work.wait(20s).ok());
    }
    EXPECT_EQ(data, std::vector<float>(5, 2.0F));
  });
}

TEST(AsyncWait, ForAllTellsTheFirstThatEndedBadlyAndWaitsForTheOthers) {
  Outcome* late = nullptr;
  const auto pending = [&] {
    auto outcome = std::make_shared<Outcome>();
    late = outcome.get();
    return Work(std::move(outcome));
  };
  std::vector<Work> works{Work::finished(Status()),
                          Work::finished(Status(StatusCode::kTimeout, "the first")),
                          Work::finished(Status(StatusCode::kIo, "the second")), pending()};
  std::thread other([&] { late->set(Status()); });
  EXPECT_EQ(wait_all(works).to_string(), "the first");
  EXPECT_TRUE(works.back().done());
  other.join();
  EXPECT_TRUE(wait_all({}).ok());
}

TEST(AsyncWork, ThatIsNoneYetHasEndedWell) {
  std::array<Work, 2> works;
  EXPECT_TRUE(works[0].done());
  EXPECT_TRUE(wait_all(works).ok());
}

TEST(AsyncWork, IsAbortedWhenItsCommunicatorIsDestroyed) {
  ThreadWorld network(2);
  auto first = network.communicator(0);
  const auto second = network.communicator(1);
  std::vector<float> data(4);
  Work recv = first->start_recv(data, 1);
  Work reduce = first->start_all_reduce(data);
  first.reset();
  EXPECT_EQ(recv.wait(5s).code(), StatusCode::kAborted) << recv.wait(0s).to_string();
  EXPECT_EQ(reduce.wait(5s).code(), StatusCode::kAborted);
  // For the other rank that was an orderly leave.
  EXPECT_EQ(second->barrier().code(), StatusCode::kPeerLeft);
}

TEST(AsyncWork, ManyThousandsCanBeInFlight) {
  constexpr int kCalls = 3000;
  run_threads_as_ranks(3, [](Communicator& comm) {
    const auto rank = static_cast<float>(comm.rank());
    std::vector<std::vector<float>> data;
    std::vector<Work> works;
    for (int i = 0; i < kCalls; ++i) {
      // Now and then one that goes through other memory than the short ones.
      const std::size_t count = i % 100 == 99 ? 30'001 : static_cast<std::size_t>(i % 5);
      data.emplace_back(count, rank + static_cast<float>(i));
    }
    for (std::vector<float>& each : data) works.push_back(comm.start_all_reduce(each));
    for (int i = kCalls; i-- > 0;) {  // who waits for the last waits for all
      const auto index = static_cast<std::size_t>(i);
      ASSERT_TRUE(works[index].wait().ok()) << works[index].wait().to_string();
      const float sum = 0 + 1 + 2 + 3 * static_cast<float>(i);
      EXPECT_EQ(data[index], std::vector<float>(data[index].size(), sum)) << i;
    }
  });
}

TEST(AsyncWork, GivesBackTheMemoryOfManyThatWereInFlightOnce) {
  if (kSanitized) GTEST_SKIP() << "sanitizers allocate memory themselves";
  constexpr std::size_t kCalls = 16, kElements = 500'000;
  constexpr std::size_t kPacked = 2 * kCalls * kElements * sizeof(float);  // of both ranks
  const auto in_use = [] {
    const auto heap = ::mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  std::atomic<std::size_t> before{0};
  std::atomic<std::size_t> after{0};
  run_threads_as_ranks(2, [&](Communicator& comm) {
    std::vector<std::vector<float>> data(kCalls, std::vector<float>(kElements));
    std::vector<Work> works;
    for (std::vector<float>& each : data) {
      // Two pieces, which are packed.
      std::array<Buffer, 2> halves{Buffer(each.data(), kElements / 2, DType::kF32),
                                   Buffer(each.data() + kElements / 2, kElements / 2, DType::kF32)};
      works.push_back(comm.start_all_reduce(std::span<const Buffer>(halves)));
    }
    for (Work& work : works) ASSERT_TRUE(work.wait().ok());
    ASSERT_TRUE(comm.barrier().ok());
    if (comm.rank() == 0) before = in_use();
    ASSERT_TRUE(comm.barrier().ok());
    for (int i = 0; i < 1000; ++i)
      ASSERT_TRUE(comm.start_all_reduce(std::span(data[0]).first(3)).wait().ok());
    ASSERT_TRUE(comm.barrier().ok());
    if (comm.rank() == 0) after = in_use();
    ASSERT_TRUE(comm.barrier().ok());
  });
  EXPECT_LT(after + kPacked / 2, before);
}

}  // namespace
}  // namespace dlaunch::testing
