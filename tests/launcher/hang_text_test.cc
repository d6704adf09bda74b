// What a hang report says of ranks, from what they publish.
#include "launcher/hang/hang_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dlaunch {
namespace {

ShownActivity ended(const std::string& name, int lane, const std::string& operation,
                    std::uint64_t sequence) {
  return {.name = name, .operation = operation, .sequence = sequence, .lane = lane, .members = 1};
}

ObservedRank rank_with(int number, std::vector<ShownActivity> activities) {
  ObservedRank rank{.rank = number, .pid = 1, .running = true, .state = "sleeping"};
  rank.shown.process = 1;
  rank.shown.activities = std::move(activities);
  return rank;
}

std::string said_of(std::vector<ShownActivity> activities) {
  return describe_ranks({rank_with(0, std::move(activities))}, 1, Deadline::Clock::now()).front();
}

// Each communicator and lane counts for itself, so the highest number need not be the latest.
TEST(HangReportText, NamesTheLastCollectiveOfEachLane) {
  EXPECT_EQ(said_of({ended("world/1", 0, "all_reduce", 900)}),
            "rank 0: in no collective; the last one was all_reduce #900 of world/1");
  EXPECT_EQ(
      said_of({ended("world/1", 0, "all_reduce", 900), ended("world/1", 1, "", 0),
               ended("world/1/2.0", 1, "barrier", 3)}),
      "rank 0: in no collective; the last ones were all_reduce #900 of world/1; barrier #3 of "
      "world/1/2.0, asynchronous");
}

// Messages and asynchronous collectives share a lane.
TEST(HangReportText, MissesOnlyRanksThatAreNotThroughWithTheCollective) {
  ShownActivity waiting = ended("world/1", 1, "gather", 5);
  waiting.members = 3;
  ShownActivity through = waiting;
  waiting.kind = ActivityKind::kCollective;
  through.kind = ActivityKind::kReceive;
  through.peer = 2;
  ShownActivity behind = through;
  behind.sequence = 4;
  const auto now = Deadline::Clock::now();
  const auto missing_beside = [&](const ShownActivity& one, const ShownActivity& other) {
    return describe_ranks({rank_with(0, {waiting}), rank_with(1, {one}), rank_with(2, {other})}, 3,
                          now)
        .back();
  };
  EXPECT_EQ(missing_beside(through, behind), "missing in #5 of world/1, asynchronous: rank 2");
  EXPECT_EQ(missing_beside(behind, behind), "missing in #5 of world/1, asynchronous: ranks 1, 2");
}

}  // namespace
}  // namespace dlaunch
