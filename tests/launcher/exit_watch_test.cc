// How long killed processes are waited for, by what /proc would tell of them.
#include "launcher/supervision/exit_watch.h"

#include <gtest/gtest.h>

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

class ExitWatchTest : public ::testing::Test {
 protected:
  static ProcessStat on_its_way_out(std::uint64_t ticks) {
    return {.exiting = true, .processor_ticks = ticks, .started = 1};
  }
  const ExitWatch::Clock::time_point start_ = ExitWatch::Clock::now();
  ExitWatch watch_{10s, start_};
};

TEST_F(ExitWatchTest, GivesUpOnWhatDoesNotMove) {
  watch_.see(7, {.started = 1}, start_ + 1s);
  watch_.see(7, {.processor_ticks = 500, .started = 1}, start_ + 9s);  // has not heard of its end
  watch_.see(8, on_its_way_out(5), start_ + 1s);
  watch_.see(8, on_its_way_out(5), start_ + 9s);  // stuck in a driver that was to let it go
  EXPECT_FALSE(watch_.expired(start_ + 9s));
  EXPECT_TRUE(watch_.expired(start_ + 10s));
}

TEST_F(ExitWatchTest, WaitsForOneThatIsAtWork) {
  for (int second = 0; second <= 60; ++second) {
    watch_.see(8, on_its_way_out(100U * static_cast<unsigned>(second)), start_ + second * 1s);
    EXPECT_FALSE(watch_.expired(start_ + second * 1s));
  }
  watch_.see(8, on_its_way_out(6000), start_ + 69s);
  EXPECT_FALSE(watch_.expired(start_ + 69s));
  EXPECT_TRUE(watch_.expired(start_ + 70s));
}

TEST_F(ExitWatchTest, DoesNotWaitForEver) {
  std::uint64_t ticks = 0;
  for (auto now = start_; now < start_ + ExitWatch::kLongest; now += 1s) {
    watch_.see(8, on_its_way_out(++ticks), now);
    EXPECT_FALSE(watch_.expired(now));
  }
  EXPECT_TRUE(watch_.expired(start_ + ExitWatch::kLongest));
}

// As a chain of processes each of which forks and exits; the numbers may come again.
TEST_F(ExitWatchTest, IsNotImpressedByOthersThatExitToo) {
  for (unsigned second = 0; second <= 10; ++second) {
    watch_.see(static_cast<pid_t>(100 + second % 2),
               {.exiting = true, .processor_ticks = second, .started = second},
               start_ + second * 1s);
  }
  EXPECT_TRUE(watch_.expired(start_ + 10s));
}

}  // namespace
}  // namespace dlaunch::testing
