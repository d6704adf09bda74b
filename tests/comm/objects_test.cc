// Bytes of unknown length (objects.h) when something goes wrong; contract/objects_contract.cc has
// the rest.
#include "runtime/comm/objects.h"

#include <chrono>
#include <latch>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/comm/counting_communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Objects, ComeTogetherInAWorldOfSeven) {
  run_threads_as_ranks(7, [](Communicator& world) {
    const auto length = [](int rank) { return static_cast<std::size_t>(rank * rank * 1000); };
    const std::string own(length(world.rank()), static_cast<char>(world.rank()));
    const auto all = all_gather_bytes(world, own).value_or_throw();
    ASSERT_EQ(all.size(), 7U);
    for (int rank = 0; rank < 7; ++rank) {
      EXPECT_EQ(all[static_cast<std::size_t>(rank)],
                std::string(length(rank), static_cast<char>(rank)));
    }
  });
}

TEST(Objects, TakeTwoCollectivesOrOneIfThereIsNothingToMove) {
  run_threads_as_ranks(2, [](Communicator& inner) {
    CountingCommunicator world(inner);
    EXPECT_TRUE(all_gather_bytes(world, "text").ok());
    EXPECT_EQ(world.collectives(), 2U);
    EXPECT_TRUE(gather_bytes(world, "", 0).ok());
    EXPECT_EQ(world.collectives(), 3U);
  });
}

TEST(Objects, FailOnAllRanksWhenOneGivesUp) {
  run_threads_as_ranks(3, [](Communicator& world) {
    if (world.rank() == 1) return world.abort(Status(StatusCode::kAborted, "no more paper"));
    const Status status = all_gather_bytes(world, "text").status();
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_THAT(status.to_string(), StartsWith("all_gather_bytes: "));
    EXPECT_THAT(status.to_string(), HasSubstr("no more paper"));
    EXPECT_EQ(gather_bytes(world, "text", 0).status().code(), StatusCode::kAborted);
  });
}

TEST(Objects, FailOnAllRanksWhenOneLeaves) {
  run_threads_as_ranks(3, [](Communicator& world) {
    if (world.rank() == 2) return;
    std::string bytes = "text";
    // The others may learn it from each other.
    EXPECT_THAT(broadcast_bytes(world, bytes, 2).code(),
                AnyOf(StatusCode::kPeerLeft, StatusCode::kAborted));
  });
}

TEST(Objects, OfRanksThatCallDifferentThingsAreAMismatch) {
  run_threads_as_ranks(2, [](Communicator& world) {
    const Status status = world.rank() == 0 ? all_gather_bytes(world, "text").status()
                                            : scatter_bytes(world, {}, 0).status();
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
  });
  run_threads_as_ranks(2, [](Communicator& world) {
    const Status roots = gather_bytes(world, "text", world.rank()).status();
    EXPECT_EQ(roots.code(), StatusCode::kMismatch) << roots.to_string();
  });
}

TEST(Objects, EndAtTheTimeoutOfTheCommunicator) {
  std::latch tried(1);
  run_threads_as_ranks(2, [&](Communicator& world) {
    if (world.rank() == 0) return tried.wait();
    world.set_timeout(std::chrono::milliseconds(50));
    std::string bytes;
    EXPECT_EQ(broadcast_bytes(world, bytes, 0).code(), StatusCode::kTimeout);
    tried.count_down();
  });
}

TEST(Objects, ThatAreNoneAreAnErrorOfTheReceiver) {
  run_threads_as_ranks(2, [](Communicator& world) {
    for (std::string bytes : {"\xff\xff", "\x01\x01", ""}) {  // none, two, nothing
      if (world.rank() == 0) {
        EXPECT_TRUE(broadcast_bytes(world, bytes, 0).ok());
      } else {
        nlohmann::json object;
        EXPECT_EQ(broadcast_json(world, object, 0).code(), StatusCode::kProtocol);
      }
    }
    EXPECT_TRUE(world.barrier().ok());
  });
}

}  // namespace
}  // namespace dlaunch::testing
