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

}  // namespace
}  // namespace dlaunch
