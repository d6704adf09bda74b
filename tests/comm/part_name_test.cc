#include "runtime/comm/part_name.h"

#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/outcome.h"
#include "transport/endpoint.h"

namespace dlaunch {
namespace {

std::string explained(const PartName& part, const std::string& text) {
  return part.explain(Status(StatusCode::kTimeout, text)).to_string();
}

const std::vector<int> kUpperHalf{2, 3};

TEST(PartName, SaysWhichRanksOfTheWorldAnErrorNames) {
  const PartName part = PartName().of_part("world/1.1", kUpperHalf, 4);
  const Status lost = Status::about_peer(StatusCode::kPeerLost, 1, "gone").within("barrier #3");
  const Status status = part.explain(lost);
  EXPECT_EQ(status.to_string(),
            "in part world/1.1, whose rank 1 is rank 3 of the world: barrier #3: peer 1: gone");
  EXPECT_EQ(status.code(), StatusCode::kPeerLost);
  EXPECT_EQ(status.peer(), 1) << "of the part";
}

TEST(PartName, FindsRanksInAllTheWordsForThem) {
  const PartName part = PartName().of_part("world/1.1", std::vector{9, 8, 7, 6}, 10);
  const std::string world = " of the world: ";
  const auto expect = [&](const std::string& text, const std::string& legend) {
    EXPECT_EQ(explained(part, text), "in part world/1.1" + legend + text);
  };
  expect("waiting for ranks 0, 1 and 3", ", whose ranks 0, 1 and 3 are ranks 9, 8 and 6" + world);
  expect("waiting for ranks 1, 2, ... (250 in all)",
         ", whose ranks 1 and 2 are ranks 8 and 7" + world);
  expect("peer 3: called broadcast f32[4] root 2 where rank 0 called barrier",
         ", whose ranks 0, 2 and 3 are ranks 9, 7 and 6" + world);
  expect("recv f32[3] from rank 1 tag 2: gone (reported by rank 1)",
         ", whose rank 1 is rank 8" + world);
  expect("there is no rank 17, nor ranks, and no peer", ": ");
}

TEST(PartName, OfThePartOfAPartKnowsTheRanksOfTheWorld) {
  const PartName part = PartName().of_part("world/1.1", std::vector{5, 4, 3, 2}, 6);
  const PartName inner = part.of_part("world/1.1/1.0", std::vector{3, 1}, 4);
  EXPECT_EQ(
      explained(inner, "waiting for ranks 0 and 1"),
      "in part world/1.1/1.0, whose ranks 0 and 1 are ranks 2 and 4 of the world: waiting for "
      "ranks 0 and 1");
}

TEST(PartName, ExplainsNothingWhereTheNumbersAreThoseOfTheWhole) {
  const std::vector<int> all{0, 1, 2};
  EXPECT_EQ(explained(PartName(), "peer 1: gone"), "peer 1: gone");
  EXPECT_EQ(explained(PartName().of_part("world/1.0", all, 3), "peer 1: gone"), "peer 1: gone");
  const PartName part = PartName().of_part("world/1.1", std::vector{7, 8, 9}, 10);
  EXPECT_EQ(explained(part.of_part("world/1.1/1.0", all, 3), "gone"), "in part world/1.1: gone");
  EXPECT_TRUE(part.explain(Status()).ok());
}

// An error of connecting a part, which the ranks of the whole hear of.
TEST(PartName, LeavesAloneWhatIsSaidOfAnotherPart) {
  const PartName whole = PartName().of_part("world/1.1", std::vector{4, 5, 6, 7}, 8);
  const PartName part = whole.of_part("world/1.1/1.0", std::vector{2, 3}, 4);
  const Status inner = part.explain(Status(StatusCode::kTimeout, "no connection to rank 0"));
  const Status told =
      Status::about_peer(StatusCode::kUnavailable, 3, "gave up: " + inner.to_string());
  EXPECT_EQ(whole.explain(told).to_string(),
            "in part world/1.1, whose rank 3 is rank 7 of the world: peer 3: gave up: in part "
            "world/1.1/1.0, whose rank 0 is rank 6 of the world: no connection to rank 0");
}

TEST(PartName, ExplainsHowWorkEnds) {
  const auto outcome = std::make_shared<Outcome>();
  Work work = PartName().of_part("world/1.1", kUpperHalf, 4).explain(Work(outcome));
  EXPECT_FALSE(work.done());
  outcome->set(peer_left(0));
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.ended(), outcome->ended());
  EXPECT_EQ(work.wait(std::chrono::seconds(1)).to_string(),
            "in part world/1.1, whose rank 0 is rank 2 of the world: peer 0: has left: its "
            "communicator was destroyed");
}

}  // namespace
}  // namespace dlaunch
