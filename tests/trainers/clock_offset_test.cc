// Clocks of ranks that are apart.
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/thread_ranks.h"
#include "trainers/trace/clock_offset.h"

namespace dlaunch {
namespace {

std::int64_t steady_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

TEST(ClockOffset, IsThatOfTheShortestRoundTrip) {
  // The other clock is 1000 ahead. The second message took 10 there and 12 back; the others were
  // held up on one way.
  const std::vector<RoundTrip> trips{{.sent = 0, .there = 1500, .received = 510},
                                     {.sent = 2000, .there = 3010, .received = 2022},
                                     {.sent = 4000, .there = 5010, .received = 4900}};
  const ClockOffset offset = offset_of(trips);
  EXPECT_EQ(offset.nanoseconds, 999);
  EXPECT_EQ(offset.here, 2022);
  EXPECT_GE(offset.error, 11);
}

TEST(ClockOffset, FindsOutAMadeUpSkewWithinItsError) {
  constexpr std::int64_t kSkew = 5'000'000'000;
  testing::run_threads_as_ranks(3, [](Communicator& world) {
    const std::int64_t skew = kSkew * world.rank();
    const ClockOffset offset = offset_to_rank_zero(world, [skew] { return steady_now() + skew; });
    EXPECT_LE(std::abs(offset.nanoseconds + skew), offset.error);
    if (world.rank() == 0) {
      EXPECT_EQ(offset.nanoseconds, 0);
    }
  });
}

TEST(ClockAlignment, FollowsADrift) {
  const ClockAlignment alignment({.here = 1000, .nanoseconds = 500},
                                 {.here = 2000, .nanoseconds = 700});
  EXPECT_EQ(alignment.to_rank_zero(0), 500);
  EXPECT_EQ(alignment.to_rank_zero(1000), 1500);
  EXPECT_EQ(alignment.to_rank_zero(1500), 2100);
  EXPECT_EQ(alignment.to_rank_zero(2000), 2700);
  EXPECT_EQ(alignment.to_rank_zero(3000), 3700);
  EXPECT_EQ(ClockAlignment({.here = 1000, .nanoseconds = -5}).to_rank_zero(7000), 6995);
}

}  // namespace
}  // namespace dlaunch
