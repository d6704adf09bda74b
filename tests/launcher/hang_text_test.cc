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

std::string said_of(std::vector<ShownActivity> activities) {
  ObservedRank rank{.rank = 0, .pid = 1, .running = true, .state = "sleeping"};
  rank.shown.process = 1;
  rank.shown.activities = std::move(activities);
  return describe_ranks({rank}, 1, Deadline::Clock::now()).front();
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

ObservedRank in(int rank, ShownActivity activity) {
  ObservedRank observed{.rank = rank, .pid = 1, .running = true, .state = "sleeping"};
  observed.shown.process = 1;
  activity.members = 3;
  observed.shown.activities = {std::move(activity)};
  return observed;
}

// Messages and asynchronous collectives share a lane.
TEST(HangReportText, MissesOnlyRanksThatAreNotThroughWithTheCollective) {
  ShownActivity waiting = ended("world/1", 1, "gather", 5);
  waiting.kind = ActivityKind::kCollective;
  ShownActivity through = ended("world/1", 1, "gather", 5);
  through.kind = ActivityKind::kReceive;
  through.peer = 2;
  ShownActivity behind = through;
  behind.sequence = 4;
  const auto now = Deadline::Clock::now();
  EXPECT_EQ(describe_ranks({in(0, waiting), in(1, through), in(2, behind)}, 3, now).back(),
            "missing in #5 of world/1, asynchronous: rank 2");
  EXPECT_EQ(describe_ranks({in(0, waiting), in(1, behind), in(2, behind)}, 3, now).back(),
            "missing in #5 of world/1, asynchronous: ranks 1, 2");
}

}  // namespace
}  // namespace dlaunch
