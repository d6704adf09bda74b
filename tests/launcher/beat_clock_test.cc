// How long a node has been silent, by what became of its signs of life.
#include <gtest/gtest.h>

#include "launcher/nodes/beat_clock.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

class BeatClockTest : public ::testing::Test {
 protected:
  BeatClockTest() { clock_.start(joined_); }
  void beat(std::chrono::nanoseconds sent) {
    clock_.begin(joined_ + sent);
    clock_.end();
  }
  auto silence(std::chrono::nanoseconds now) const { return clock_.silence(joined_ + now); }

  const BeatClock::Time joined_{1000s};
  BeatClock clock_{3s};
};

TEST_F(BeatClockTest, CountsFromTheLastSignOfLifeThatTheStoreKnowsOf) {
  EXPECT_EQ(silence(300ms), 300ms);
  beat(500ms);
  EXPECT_EQ(silence(800ms), 300ms);
}

TEST_F(BeatClockTest, ANodeThatWaitsForTheStoreWasNotSilentMeanwhile) {
  beat(500ms);
  clock_.begin(joined_ + 1s);
  EXPECT_EQ(silence(1s), 500ms);
  EXPECT_EQ(silence(1s + clock_.answer_limit()), 500ms);  // it gives up, the store is lost
}

TEST_F(BeatClockTest, ANodeThatDoesNotGiveUpWaitingInTimeDidNotRun) {
  beat(500ms);
  clock_.begin(joined_ + 1s);
  EXPECT_EQ(silence(6s), 5500ms);
}

TEST_F(BeatClockTest, ANodeThatSentNothingForLongWasSilentUntilItDidAgain) {
  beat(500ms);
  clock_.begin(joined_ + 9s);
  EXPECT_EQ(silence(9100ms), 8500ms);
  clock_.end();
  EXPECT_EQ(silence(9200ms), 200ms);
}

}  // namespace
}  // namespace dlaunch
