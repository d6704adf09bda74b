#include <unistd.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/support/distributed_test.h"

namespace dlaunch::testing {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read only
  return value == nullptr ? "" : value;
}

// Every rank's value, on every rank, in rank order.
template <typename T>
std::vector<T> gather_values(Communicator& world, T value) {
  std::vector<T> all(static_cast<std::size_t>(world.size()));
  throw_if_error(world.all_gather(std::span<const T>(&value, 1), all));
  return all;
}

TEST(Succeeded, SaysWhyNot) {
  EXPECT_TRUE(succeeded(Status()));
  EXPECT_TRUE(succeeded(Result<int>(3)));
  const Status late(StatusCode::kTimeout, "too late");
  EXPECT_FALSE(succeeded(late));
  EXPECT_STREQ(succeeded(late).message(), "too late");
  EXPECT_STREQ(succeeded(Result<int>(late)).message(), "too late");
}

TEST(RunOnRanks, RunsTheBodyOnceOnEveryRankInProcessesOfTheirOwn) {
  run_on_ranks(3, [](Communicator& world) {
    ASSERT_EQ(world.size(), 3);
    EXPECT_THAT(gather_values<std::int32_t>(world, world.rank()), ::testing::ElementsAre(0, 1, 2));
    const auto processes = gather_values<std::int32_t>(world, ::getpid());
    EXPECT_NE(processes[0], processes[1]);
    EXPECT_NE(processes[1], processes[2]);
  });
}

TEST(RunOnRanks, DoesNotRunTheBodyInTheParent) {
  bool ran = false;
  run_on_ranks(1, [&ran](Communicator&) { ran = true; });
  EXPECT_FALSE(ran);
}

TEST(RunOnRanks, HandsOnWhatPrecedesIt) {
  const std::vector<int> captured{3, 1, 4};
  run_on_ranks(2, [&](Communicator&) { EXPECT_THAT(captured, ::testing::ElementsAre(3, 1, 4)); });
}

TEST(RunOnRanks, MayBeCalledSeveralTimesWithDifferentWorlds) {
  for (const int workers : {2, 1, 3}) {
    run_on_ranks(workers, [=](Communicator& world) { EXPECT_EQ(world.size(), workers); });
  }
}

TEST(RunOnRanks, LetsRanksEndAtDifferentTimes) {
  run_on_ranks(3, [](Communicator& world) {
    if (world.rank() == 0) return;
    std::vector<std::int32_t> value{world.rank()};
    if (world.rank() == 1) {
      EXPECT_TRUE(world.send(value, 2).ok());
    } else {
      const Status status = world.recv(value, 1);
      EXPECT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(value[0], 1);
    }
  });
}

TEST(RunOnRanks, SetsTheEnvironmentOfTheRanks) {
  const RunOptions options{.environment = {{"FIXTURE_TEST", "old"}, {"FIXTURE_TEST", "new"}}};
  run_on_ranks(
      2, [](Communicator&) { EXPECT_EQ(variable("FIXTURE_TEST"), "new"); }, options);
  EXPECT_EQ(variable("FIXTURE_TEST"), "");
}

TEST(RunOnRanks, HandsOnTheParentsEnvironmentButForWhatGoogleTestReads) {
  const std::vector<const char*> handed_on{"TEST_DATA", "TEST_TMPDIR", "MY_GTEST_DATA"};
  const std::vector<const char*> kept{"GTEST_OUTPUT", "XML_OUTPUT_FILE", "TEST_PREMATURE_EXIT_FILE",
                                      "TESTBRIDGE_TEST_ONLY"};
  std::vector<const char*> all = handed_on;
  all.insert(all.end(), kept.begin(), kept.end());
  const bool is_rank = !variable("DLAUNCH_TEST_REPORT").empty();
  if (!is_rank) {
    for (const char* name : all) ::setenv(name, "set", 1);  // NOLINT(concurrency-mt-unsafe)
  }
  run_on_ranks(2, [&](Communicator&) {
    for (const char* name : handed_on) EXPECT_EQ(variable(name), "set") << name;
    for (const char* name : kept) EXPECT_EQ(variable(name), "") << name;
  });
  for (const char* name : all) ::unsetenv(name);  // NOLINT(concurrency-mt-unsafe)
}

TEST(RunOnRanks, GivesBlockingCallsLessTimeThanTheDeadline) {
  run_on_ranks(2, [](Communicator&) { EXPECT_EQ(std::stod(variable("DLAUNCH_TIMEOUT")), 30.0); },
               {.deadline = std::chrono::seconds(40)});
}

TEST(RunSeed, IsTheSameOnAllRanksAndInTheParent) {
  const std::uint64_t before = run_seed();
  EXPECT_EQ(run_seed(), before);
  run_on_ranks(3, [before](Communicator& world) {
    EXPECT_EQ(run_seed(), before);
    const auto seeds = gather_values(world, static_cast<std::int64_t>(run_seed()));
    EXPECT_THAT(seeds, ::testing::Each(seeds[0]));
  });
}

class WorldSizes : public DistributedTest {};

TEST_P(WorldSizes, AreATestParameter) {
  run([this](Communicator& world) { EXPECT_EQ(world.size(), workers()); });
}

INSTANTIATE_TEST_SUITE_P(Worlds, WorldSizes, ::testing::Values(1, 2, 5));

class WorldSizesAndCounts : public DistributedTestWith<std::size_t, std::string> {};

TEST_P(WorldSizesAndCounts, AreTestParameters) {
  const auto& [workers, count, name] = GetParam();
  run([&, workers = workers, count = count, name = name](Communicator& world) {
    EXPECT_EQ(world.size(), workers);
    std::vector<float> ones(count, 1.0F);
    EXPECT_TRUE(world.all_reduce(ones).ok());
    EXPECT_THAT(ones, ::testing::Each(static_cast<float>(workers))) << name;
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, WorldSizesAndCounts,
                         ::testing::Combine(::testing::Values(1, 2), ::testing::Values(0U, 7U),
                                            ::testing::Values("a name")));

}  // namespace
}  // namespace dlaunch::testing
