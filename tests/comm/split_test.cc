// Parts of a world that progress, fail and end on their own, with threads as ranks.
#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "runtime/comm/split.h"
#include "tests/comm/split_helpers.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(RanksOfColor, AreOrderedByKeyThenRank) {
  const std::vector<ColorAndKey> all{{1, 5}, {0, 0}, {1, -2}, {1, 5}, {-1, 0}};
  EXPECT_THAT(ranks_of_color(all, 1), ElementsAre(2, 0, 3));
  EXPECT_THAT(ranks_of_color(all, 0), ElementsAre(1));
  EXPECT_THAT(ranks_of_color(all, 7), IsEmpty());
}

TEST(NameOfPart, IsThatOfTheWholeAndWhatThisPartIs) {
  EXPECT_EQ(name_of_part("world/1", 2, 7), "world/1/2.7");
  EXPECT_EQ(name_of_part("world/1/2.7", 1, 0), "world/1/2.7/1.0");
  const std::string longest(44, 'w');
  EXPECT_EQ(name_of_part(longest, 2, 7), longest + "/2.7");
  EXPECT_THAT(name_of_part(longest + "w", 2, 7), StartsWith("~"));
}

TEST(NameOfPart, IsShortAndNobodyElsesHoweverDeepThePart) {
  constexpr std::size_t kShownInReports = 48;
  std::set<std::string> names;
  for (const int color : {0, 1, 1'000'000'000}) {
    std::string name = "world/1";
    for (int depth = 0; depth < 3'000; ++depth) {
      const int split = depth % 3 == 0 ? 2'000'000'000 : 1;
      name = name_of_part(name, split, color);
      EXPECT_LE(name.size(), kShownInReports);
      EXPECT_TRUE(names.insert(name).second) << name;
      const std::string last = "/" + std::to_string(split) + "." + std::to_string(color);
      EXPECT_TRUE(name.ends_with(last)) << name;
    }
  }
}

// While ranks 0 and 1 wait in the whole, their part goes on; the other part has already gone.
TEST(SplitParts, ProgressIndependently) {
  run_threads_as_ranks(4, [](Communicator& comm) {
    auto part = split(comm, comm.rank() / 2);
    std::vector<float> data(1'000, 1.0F);
    Work whole = comm.rank() < 2 ? comm.start_all_reduce(data) : Work::finished(Status());
    for (int i = 0; i < 10; ++i) EXPECT_EQ(sum_of_ones(*part), 2);
    if (comm.rank() >= 2) {
      part.reset();
      whole = comm.start_all_reduce(data);
    }
    ASSERT_TRUE(whole.wait().ok());
    EXPECT_EQ(data[999], 4.0F);
    if (part != nullptr) {
      EXPECT_EQ(sum_of_ones(*part), 2);
    }
  });
}

TEST(SplitParts, OutliveTheWholeAndItsFailure) {
  std::latch ready(3);
  std::latch used(3);
  run_threads_as_ranks(3, [&](Communicator& comm) {
    const auto part = split(comm, 0);
    const auto inner = split(*part, 0);
    EXPECT_TRUE(comm.barrier().ok());
    ready.arrive_and_wait();  // a rank may be through the barrier before the others
    if (comm.rank() == 1) comm.abort(Status(StatusCode::kIo, "the disk is full"));
    EXPECT_EQ(comm.start_barrier().wait(10s).code(), StatusCode::kIo);
    EXPECT_EQ(sum_of_ones(*part), 3);
    used.arrive_and_wait();
    part->abort(Status(StatusCode::kIo, "another one"));
    EXPECT_EQ(sum_of_ones(*inner), 3);
  });
}

TEST(SplitParts, FailWithTheWholeWhenARankDies) {
  ThreadWorld network(4);
  std::latch connected(4);
  run_threads_as_ranks(network, 4, [&](Communicator& comm) {
    const auto part = split(comm, comm.rank() / 2);
    connected.arrive_and_wait();
    if (comm.rank() == 3) {
      network.kill(3);
      return;
    }
    EXPECT_EQ(comm.barrier().peer(), 3);
    if (comm.rank() < 2) {
      EXPECT_EQ(sum_of_ones(*part), 2) << "nobody of this part died";
    } else {
      const Status status = part->barrier();
      EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.to_string();
      EXPECT_EQ(status.peer(), 1) << "rank 3 of the whole";
      EXPECT_THAT(status.to_string(),
                  AllOf(StartsWith("in part world/1.1, whose rank 1 is rank 3 of the world: "),
                        HasSubstr(": peer 1: ")));
    }
  });
}

// Every kind of call, and what is called after the failure.
TEST(SplitParts, SayInTheirErrorsWhichRanksOfTheWorldTheyMean) {
  std::latch ended(2);
  run_threads_as_ranks(4, [&](Communicator& comm) {
    const auto part = split(comm, comm.rank() / 2, -comm.rank());
    const auto inner = split(*part, 7, -part->rank());
    const auto again = split(*inner, 0);
    if (comm.rank() >= 2) {
      std::vector<float> data(10);
      const std::string words = ", whose rank 1 is rank 2 of the world: ";
      if (comm.rank() == 3) {
        const auto expect_timeout = [&](Communicator& in, int awaited, const Status& status,
                                        const std::string& begin) {
          EXPECT_EQ(status.code(), StatusCode::kTimeout);
          EXPECT_THAT(
              status.to_string(),
              AllOf(StartsWith(begin), HasSubstr("waiting for rank " + std::to_string(awaited))));
          EXPECT_THAT(in.barrier().to_string(),
                      StartsWith(begin + "the communicator failed earlier: "));
        };
        for (Communicator* each : {part.get(), inner.get(), again.get()}) each->set_timeout(50ms);
        expect_timeout(*part, 1, part->start_recv(data, 1).wait(), "in part world/1.1" + words);
        const std::string other = ", whose rank 0 is rank 2 of the world: ";
        expect_timeout(*inner, 0, inner->recv(data, 0), "in part world/1.1/1.7" + other);
        expect_timeout(*again, 0, again->all_reduce(data), "in part world/1.1/1.7" + other);
      }
      ended.arrive_and_wait();
    }
  });
}

TEST(SplitParts, BeginWithTheTimeoutThatTheWholeHasThen) {
  std::latch ended(2);
  run_threads_as_ranks(2, [&](Communicator& comm) {
    comm.set_timeout(3s);
    const auto part = split(comm, 0);
    if (comm.rank() == 0) {
      const Status status = part->barrier();
      EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
      EXPECT_THAT(status.to_string(), HasSubstr("timed out after 3 s waiting for rank 1"));
    }
    ended.arrive_and_wait();
  });
}

// Colors and keys are gathered like anything else, but are not taken for it.
TEST(SplitWhereAnotherRankGathers, IsAMismatch) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    std::vector<std::int64_t> pair(2);
    std::vector<std::int64_t> all(4);
    const Status status = comm.rank() == 0 ? comm.split(0, 0).status() : comm.all_gather(pair, all);
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_THAT(status.to_string(), AllOf(HasSubstr("split"), HasSubstr("all_gather i64[4]")));
  });
}

TEST(SplitOfAFailedCommunicator, SaysWhyItFailed) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    comm.abort(Status(StatusCode::kIo, "the disk is full"));
    const auto part = comm.split(0, 0);
    EXPECT_EQ(part.status().code(), StatusCode::kIo);
    EXPECT_THAT(part.status().to_string(), HasSubstr("failed earlier: the disk is full"));
  });
}

}  // namespace
}  // namespace dlaunch::testing
