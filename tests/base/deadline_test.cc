#include "runtime/base/deadline.h"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

TEST(Deadline, HasAllItsTimeLeftAtFirst) {
  const auto before = Deadline::Clock::now();
  const auto deadline = Deadline::after(hours(1));
  EXPECT_FALSE(deadline.expired());
  EXPECT_GE(deadline.when(), before + hours(1));
  const auto remaining = deadline.remaining();
  EXPECT_LE(remaining, hours(1));
  EXPECT_GE(remaining, hours(1) - (Deadline::Clock::now() - before));
}

TEST(Deadline, OfNoTimeHasExpired) {
  for (const nanoseconds duration : {nanoseconds(0), nanoseconds(-1), nanoseconds(hours(-1))}) {
    const auto deadline = Deadline::after(duration);
    EXPECT_TRUE(deadline.expired());
    EXPECT_EQ(deadline.remaining(), nanoseconds(0)) << "never negative";
  }
}

TEST(Deadline, MayBeAsFarAwayAsNumbersGo) {
  for (const auto back : {0, 1, 1'000'000}) {
    const auto far =
        Deadline::after(std::chrono::nanoseconds::max() - std::chrono::nanoseconds(back));
    EXPECT_FALSE(far.expired());
    EXPECT_GT(far.remaining(), std::chrono::hours(24 * 365));
  }
}

TEST(Deadline, MayBeAsLongAgoAsNumbersGo) {
  for (const Deadline past :
       {Deadline::at(Deadline::Clock::time_point::min()), Deadline::after(nanoseconds::min())}) {
    EXPECT_TRUE(past.expired());
    EXPECT_EQ(past.remaining(), nanoseconds(0));
  }
}

TEST(Deadline, EarliestIsTheSoonerOfTwo) {
  const auto sooner = Deadline::after(hours(1));
  const auto later = Deadline::after(hours(2));
  EXPECT_EQ(earliest(sooner, later).when(), sooner.when());
  EXPECT_EQ(earliest(later, sooner).when(), sooner.when());
}

}  // namespace
}  // namespace dlaunch
