// Where a step's time went, with times that are made up.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/thread_ranks.h"
#include "trainers/output/resource_use.h"
#include "trainers/output/step_clock.h"

namespace dlaunch {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

StepClock::TimePoint at(int ms) {
  return StepClock::TimePoint() + std::chrono::hours(1) + milliseconds(ms);
}

CommunicationSpan span(CallLane lane, int begin, int end, int waited) {
  return {.lane = lane, .begin = at(begin), .end = at(end), .waited = milliseconds(waited)};
}

/// 100 ms: data 0-10, forward 10-40 with a blocking call 20-25, backward 40-80, the optimizer
/// 90-98; two buckets in the background, 50-70 and 60-88, waited for until 90.
StepTimes one_step(StepClock& clock) {
  clock.begin_step(at(0));
  clock.section(StepPhase::kData, at(0), at(10));
  clock.communicated(span(CallLane::kBlocking, 20, 25, 5), at(25));
  clock.section(StepPhase::kForward, at(10), at(40));
  clock.section(StepPhase::kBackward, at(40), at(80));
  clock.communicated(span(CallLane::kNormal, 50, 70, 0), at(82));
  clock.communicated(span(CallLane::kNormal, 60, 88, 8), at(90));
  clock.section(StepPhase::kOptimizer, at(90), at(98));
  return clock.end_step(at(100));
}

TEST(StepClock, TellsApartWhatAStepDidAndLosesNothing) {
  StepClock clock;
  const StepTimes step = one_step(clock);
  EXPECT_NEAR(step[StepPhase::kData], 0.010, 1e-9);
  EXPECT_NEAR(step[StepPhase::kForward], 0.025, 1e-9);
  EXPECT_NEAR(step[StepPhase::kBackward], 0.040, 1e-9);
  EXPECT_NEAR(step[StepPhase::kOptimizer], 0.008, 1e-9);
  EXPECT_NEAR(step[StepPhase::kCommunication], 0.013, 1e-9);
  EXPECT_NEAR(step[StepPhase::kOther], 0.004, 1e-9);
  EXPECT_NEAR(step.total(), 0.100, 1e-9);
  // In flight from 50 to 88, of which the thread waited from 82 on.
  EXPECT_NEAR(step.hidden_communication, 0.032, 1e-9);
}

TEST(StepClock, CountsOnlyWhatIsInsideTheStep) {
  StepClock clock;
  clock.communicated(span(CallLane::kBlocking, -20, -5, 15), at(-5));
  clock.begin_step(at(0));
  clock.communicated(span(CallLane::kNormal, -50, -10, 0), at(1));  // waited for later
  clock.communicated(span(CallLane::kHigh, -5, 10, 5), at(12));
  const StepTimes step = clock.end_step(at(20));
  EXPECT_NEAR(step[StepPhase::kCommunication], 0.005, 1e-9);
  EXPECT_NEAR(step.hidden_communication, 0.007, 1e-9);
  EXPECT_NEAR(step.total(), 0.020, 1e-9);
}

TEST(StepClock, KnowsPercentiles) {
  StepClock clock;
  EXPECT_EQ(clock.percentile(50), 0);
  for (int i = 1; i <= 10; ++i) {
    clock.begin_step(at(0));
    clock.end_step(at(i));
  }
  EXPECT_NEAR(clock.percentile(50), 0.005, 1e-7);
  EXPECT_NEAR(clock.percentile(90), 0.009, 1e-7);
  EXPECT_EQ(clock.steps(), 10U);
}

TEST(StepClock, TakesWhatTheLastToComeWaitsForTheExchange) {
  testing::run_threads_as_ranks(3, [](Communicator& world) {
    const int rank = world.rank();
    StepClock clock;
    clock.communicated(span(CallLane::kBlocking, -20, -5, 15), at(-5));  // before the steps
    for (int step = 0; step < 2; ++step) {
      clock.begin_step(at(0));
      CommunicationSpan first = span(CallLane::kNormal, 0, 50, 10 + rank);
      CommunicationSpan second = span(CallLane::kNormal, 0, 50, 10 - 2 * rank);
      first.sequence = 1 + 2 * static_cast<std::uint64_t>(step);
      second.sequence = first.sequence + 1;
      if (rank == 1) std::swap(first, second);  // seen to end in another order
      clock.communicated(first, at(60));
      clock.communicated(second, at(90));
      clock.end_step(at(100));
    }
    clock.compare_waits(world);
    EXPECT_NEAR(clock.sums().exchange, 2 * (0.010 + 0.006), 1e-9);
    clock.compare_waits(world);  // nothing since then
    EXPECT_NEAR(clock.sums().exchange, 2 * (0.010 + 0.006), 1e-9);
  });
}

TEST(StepClock, AsksForAComparisonBeforeWaitsTakeMuchMemory) {
  testing::run_threads_as_ranks(1, [](Communicator& world) {
    StepClock clock;
    clock.begin_step(at(0));
    for (int i = 0; i < 1 << 16; ++i) {
      EXPECT_FALSE(clock.has_many_waits());
      clock.communicated(span(CallLane::kBlocking, 0, 1, 1), at(1));
    }
    EXPECT_TRUE(clock.has_many_waits());
    clock.end_step(at(100));
    clock.compare_waits(world);
    EXPECT_FALSE(clock.has_many_waits());
  });
}

TEST(ResourceUse, IsATableOfAllRanks) {
  testing::run_threads_as_ranks(2, [](Communicator& world) {
    StepClock clock;
    for (int i = 0; i < 4; ++i) one_step(clock);
    clock.compare_waits(world);
    MemoryUse memory{.parameters = 10U << 20, .activations = 100U << 20, .resident = 1U << 30};
    if (world.rank() == 1) memory.activations *= 2;
    const ResourceUse use = gather_use(world, clock, memory);
    ASSERT_EQ(use.ranks.size(), 2U);
    EXPECT_NEAR(use.mean().total(), 0.1, 1e-9);
    EXPECT_EQ(use.ranks[1].memory.activations, 200U << 20);
    EXPECT_EQ(format_use(use),
              "time of a step, mean of 4: 100.0 ms (p50 100.0, p90 100.0)\n"
              "  waiting for data           10.0 ms  10.0 %\n"
              "  forward                    25.0 ms  25.0 %\n"
              "  backward                   40.0 ms  40.0 %\n"
              "  optimizer                   8.0 ms   8.0 %\n"
              "  exposed communication      13.0 ms  13.0 %\n"
              "    the exchange itself      13.0 ms  13.0 %\n"
              "    for slower ranks          0.0 ms   0.0 %\n"
              "  other                       4.0 ms   4.0 %\n"
              "  hidden communication       32.0 ms           (not part of the step: 71 % of "
              "communication)\n"
              "peak memory, MiB           rank 0   rank 1\n"
              "  parameters                 10.0     10.0\n"
              "  gradients                   0.0      0.0\n"
              "  optimizer                   0.0      0.0\n"
              "  activations               100.0    200.0\n"
              "  buffers                     0.0      0.0\n"
              "  whole process            1024.0   1024.0");
    EXPECT_EQ(use_to_json(use)["ranks"][1]["peak_bytes"]["activations"], 200U << 20);
  });
}

TEST(ResourceUse, NamesTheRankThatIsSlowest) {
  ResourceUse use{.steps = 1, .ranks = {{}, {}}};
  use.ranks[0].step[StepPhase::kForward] = 0.010;
  use.ranks[1].step[StepPhase::kForward] = 0.030;
  EXPECT_THAT(format_use(use), HasSubstr("20.0 ms 100.0 %   rank 1: 30.0 ms\n"));
}

}  // namespace
}  // namespace dlaunch
