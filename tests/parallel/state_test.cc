#include <algorithm>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "runtime/parallel/long_work.h"
#include "runtime/parallel/parts.h"
#include "runtime/parallel/state_broadcast.h"
#include "runtime/parallel/timed_communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using testing::run_threads_as_ranks;

TEST(BroadcastState, GivesEveryRankTheStateOfRankZero) {
  for (const int world_size : {1, 2, 3, 5})
    run_threads_as_ranks(world_size, [](Communicator& world) {
      const auto mine = static_cast<float>(world.rank() + 1);
      std::vector<float> parameters(1001, mine), statistics(7, 2 * mine), nothing;
      const std::vector<Buffer> state{parameters, statistics, nothing};
      ASSERT_TRUE(broadcast_state(world, state).ok());
      EXPECT_EQ(parameters, std::vector<float>(1001, 1));
      EXPECT_EQ(statistics, std::vector<float>(7, 2));
    });
}

TEST(BroadcastState, RefusesDifferentModelsOnAllRanks) {
  run_threads_as_ranks(3, [](Communicator& world) {
    std::vector<float> parameters(world.rank() == 2 ? 11U : 10U);
    const Status status = broadcast_state(world, std::vector<Buffer>{parameters});
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_EQ(status.to_string(),
              "broadcast_state: rank " + std::to_string(world.rank()) + " has 1 buffers of " +
                  (world.rank() == 2 ? "44" : "40") +
                  " bytes together, other ranks have between 1 and 1 of 40 to 44 bytes");
  });
}

TEST(BroadcastState, RefusesBuffersOfOtherSizesOrTypesOnAllRanks) {
  run_threads_as_ranks(2, [](Communicator& world) {
    std::vector<float> four(4), eight(8);
    std::vector<std::int32_t> others(8);
    const auto swapped =
        world.rank() == 0 ? std::vector<Buffer>{four, eight} : std::vector<Buffer>{eight, four};
    const Status sizes = broadcast_state(world, swapped);
    EXPECT_EQ(sizes.code(), StatusCode::kMismatch);
    EXPECT_TRUE(sizes.to_string().ends_with("of 48 to 48 bytes, of other sizes or types each"))
        << sizes.to_string();
    const auto typed = world.rank() == 0 ? std::vector<Buffer>{eight} : std::vector<Buffer>{others};
    EXPECT_EQ(broadcast_state(world, typed).code(), StatusCode::kMismatch);
  });
}

TEST(AwaitWork, MayTakeLongerThanACollectiveOnAnyRank) {
  const auto begin = std::chrono::steady_clock::now();
  run_threads_as_ranks(3,
                       [&](Communicator& world) {
                         std::future<void> work;
                         if (world.rank() != 1)
                           work = std::async(std::launch::async, [last = world.rank() == 2] {
                             std::this_thread::sleep_for(last ? 3s : 2500ms);
                           });
                         const Status status = await_work(world, work);
                         EXPECT_TRUE(status.ok()) << status.to_string();
                         EXPECT_GE(std::chrono::steady_clock::now() - begin, 3s);
                       },
                       {.timeout = 2s});
}

TEST(AwaitWork, LeavesFailuresAndWorkWithoutAThreadToGet) {
  run_threads_as_ranks(2, [](Communicator& world) {
    std::future<void> failing, deferred;
    if (world.rank() == 0) {
      failing = std::async(std::launch::async, [] { throw std::runtime_error("full"); });
      deferred = std::async(std::launch::deferred, [] {});
    }
    EXPECT_TRUE(await_work(world, failing).ok());
    EXPECT_TRUE(await_work(world, deferred).ok());
    EXPECT_EQ(failing.valid(), world.rank() == 0);
    if (failing.valid()) {
      EXPECT_THROW(failing.get(), std::runtime_error);
    }
  });
}

TEST(TimedCommunicator, AddsUpTheTimeThatCallersWait) {
  run_threads_as_ranks(2, [](Communicator& inner) {
    TimedCommunicator world(inner);
    std::vector<float> values{1};
    EXPECT_EQ(world.time_waited().count(), 0);
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(world.all_reduce(values).ok());
    const auto blocking = world.time_waited();
    EXPECT_GT(blocking.count(), 0);
    Work work = world.start_all_reduce(values);
    EXPECT_EQ(world.time_waited(), blocking);  // starting is not waiting
    ASSERT_TRUE(work.wait().ok());
    EXPECT_TRUE(work.done());
    EXPECT_GT(world.time_waited(), blocking);
    EXPECT_LE(world.time_waited(), std::chrono::steady_clock::now() - begin);
    EXPECT_EQ(values[0], 4);
  });
}

TEST(Parts, ComeTogetherOnRankZeroAndGoBack) {
  // Spans that do not divide evenly, with a gap; one so short that some ranks have nothing of it.
  const std::vector<FlatSpan> spans{{100, 333}, {0, 97}, {340, 343}};
  for (const int ranks : {1, 2, 3, 5})
    run_threads_as_ranks(ranks, [&](Communicator& world) {
      std::vector<std::vector<float>> parts;
      for (const FlatSpan& span : spans) {
        const FlatSpan own = even_parts(
            span, static_cast<std::size_t>(ranks))[static_cast<std::size_t>(world.rank())];
        parts.emplace_back();
        for (std::size_t i = own.begin; i < own.end; ++i)
          parts.back().push_back(static_cast<float>(i));
      }
      const auto expected = parts;
      const PartOf part = [&](std::size_t index) { return std::span(parts[index]); };
      std::vector<float> whole(world.rank() == 0 ? 350 : 0, -1);
      ASSERT_TRUE(gather_parts(world, spans, part, whole).ok());
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const bool within = std::ranges::any_of(
            spans, [&](const FlatSpan& span) { return span.begin <= i && i < span.end; });
        EXPECT_EQ(whole[i], within ? static_cast<float>(i) : -1);
      }
      for (auto& values : parts) std::ranges::fill(values, 0.0F);
      ASSERT_TRUE(scatter_parts(world, spans, whole, part).ok());
      EXPECT_EQ(parts, expected);
    });
}

/// Keeps what it is told.
class Listener final : public CommunicationObserver {
 public:
  void communicated(const CommunicationSpan& span) override { spans.push_back(span); }
  std::vector<CommunicationSpan> spans;
};

TEST(TimedCommunicator, TellsOfEachCollectiveOnceWithTheNumberItHasInItsLane) {
  run_threads_as_ranks(2, [](Communicator& inner) {
    Listener listener;
    TimedCommunicator world(inner, &listener);
    std::vector<float> values(10, 1);
    ASSERT_TRUE(world.all_reduce(values).ok());
    Work first = world.start_all_reduce(values);
    std::vector<double> others(3, 1);
    Work second = world.start_all_reduce(others, ReduceOp::kSum, Algorithm::kAuto, Priority::kHigh);
    ASSERT_TRUE(world.barrier().ok());
    EXPECT_EQ(listener.spans.size(), 2U);  // the others have not been waited for
    ASSERT_TRUE(second.wait().ok());
    ASSERT_TRUE(first.wait().ok());
    ASSERT_TRUE(first.wait().ok());
    std::vector<float> part(5);
    ASSERT_TRUE(world.reduce_scatter(values, part, ReduceOp::kSum).ok());
    ASSERT_EQ(listener.spans.size(), 5U);
    const auto expect = [&](std::size_t i, CollectiveKind kind, CallLane lane,
                            std::uint64_t sequence, std::size_t bytes) {
      const CommunicationSpan& span = listener.spans[i];
      EXPECT_EQ(span.kind, kind);
      EXPECT_EQ(span.lane, lane);
      EXPECT_EQ(span.sequence, sequence);
      EXPECT_EQ(span.bytes, bytes);
      EXPECT_LE(span.begin, span.end);
    };
    expect(0, CollectiveKind::kAllReduce, CallLane::kBlocking, 1, 40);
    expect(1, CollectiveKind::kBarrier, CallLane::kBlocking, 2, 0);
    expect(2, CollectiveKind::kAllReduce, CallLane::kHigh, 1, 24);
    expect(3, CollectiveKind::kAllReduce, CallLane::kNormal, 1, 40);
    expect(4, CollectiveKind::kReduceScatter, CallLane::kBlocking, 3, 40);  // the larger side
  });
}

}  // namespace
}  // namespace dlaunch
