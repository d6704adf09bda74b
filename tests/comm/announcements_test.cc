// What ranks tell each other of calls that stand still, without the calls.
#include "runtime/comm/announcements.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/collective/types.h"
#include "transport/loopback/loopback.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;

class TwoRanks : public ::testing::Test {
 protected:
  // Rank 0 begins as many barriers, and tells rank 1 that the first one waits.
  std::string trail_of_the_first_of(std::uint64_t calls) {
    const MessageSignature barrier{.operation =
                                       static_cast<std::uint8_t>(CollectiveKind::kBarrier)};
    const Deadline::Clock::time_point begin = Deadline::Clock::now();
    for (std::uint64_t number = 1; number <= calls; ++number) {
      zero_.called(LaneKind::kAsync, number);
      EXPECT_TRUE(zero_.entered(LaneKind::kAsync, number, barrier).ok());
    }
    const Announcements::Wait wait{.lane = LaneKind::kAsync, .sequence = 1, .waiting_for = {1}};
    EXPECT_TRUE(zero_.look_around(wait, true).ok());
    EXPECT_TRUE(one_.look_around({.lane = LaneKind::kBlocking, .message = {.peer = 0}}, true).ok());
    EXPECT_TRUE(one_.silent(LaneKind::kAsync, calls).empty()) << "rank 1 has heard nothing";
    return one_.trail(0, begin);
  }

  LoopbackNetwork network_{2};
  Announcements zero_{network_.endpoint(0)};
  Announcements one_{network_.endpoint(1)};
};

TEST_F(TwoRanks, TellWhichCallWaits) {
  EXPECT_THAT(trail_of_the_first_of(200), HasSubstr("rank 0 waited in barrier #1 "));
}

TEST_F(TwoRanks, TellNoOtherCallThanTheOneThatWaits) {
  EXPECT_EQ(trail_of_the_first_of(300), "");
}

}  // namespace
}  // namespace dlaunch::testing
