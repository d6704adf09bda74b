#include "runtime/parallel/gradient_reducer.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "runtime/comm/counting_communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch {
namespace {

using testing::run_threads_as_ranks;

/// Ranges with gaps between them, as aligned parameters have.
std::vector<GradientRange> ranges_with_gaps(const std::vector<std::size_t>& counts) {
  std::vector<GradientRange> ranges;
  std::size_t offset = 0;
  for (const std::size_t count : counts) {
    ranges.push_back({offset, count});
    offset += (count + 3) / 4 * 4;
  }
  return ranges;
}

/// A rank's random numbers that every other rank can compute too.
std::vector<float> gradients_of(int rank, int pass, std::size_t size, unsigned seed) {
  std::mt19937 random(seed + 1000U * static_cast<unsigned>(rank) + static_cast<unsigned>(pass));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(size);
  for (float& value : values) value = uniform(random);
  return values;
}

constexpr double kSamples[] = {5, 0, 3, 1, 7};  // of ranks, in each pass

class GradientReducerWorlds : public ::testing::TestWithParam<int> {};

TEST_P(GradientReducerWorlds, AveragesOverTheGlobalNumberOfSamples) {
  const int world_size = GetParam();
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto ranges = ranges_with_gaps({7, 1, 40, 13, 64, 2});
  const std::size_t size = ranges.back().offset + ranges.back().count;

  double samples = 0, loss = 0;
  std::vector<double> expected(size);
  for (int rank = 0; rank < world_size; ++rank)
    for (int pass = 0; pass < 3; ++pass) {
      samples += kSamples[rank];
      loss += rank + 10 * pass;
      const auto part = gradients_of(rank, pass, size, seed);
      for (std::size_t i = 0; i < size; ++i) expected[i] += part[i];
    }

  // From one bucket per range to one for everything.
  for (const std::size_t bucket_bytes : {std::size_t{4}, std::size_t{128}, std::size_t{1} << 20}) {
    run_threads_as_ranks(world_size, [&](Communicator& world) {
      std::vector<float> gradients(size);
      GradientReducer reducer(world, gradients, ranges,
                              {.bucket_bytes = bucket_bytes, .first_bucket_bytes = bucket_bytes});
      for (int step = 0; step < 2; ++step) {  // the second step starts from nothing
        std::fill(gradients.begin(), gradients.end(), 0.0F);
        for (int pass = 0; pass < 3; ++pass) {
          reducer.begin(pass == 2, {kSamples[world.rank()], world.rank() + 10.0 * pass, 0});
          const auto part = gradients_of(world.rank(), pass, size, seed);
          // Ranges become ready in an order of each rank's own.
          std::vector<std::size_t> order(ranges.size());
          std::iota(order.begin(), order.end(), 0U);
          std::mt19937 random(seed + static_cast<unsigned>(world.rank() + step));
          std::shuffle(order.begin(), order.end(), random);
          for (const std::size_t index : order) {
            const std::size_t end = ranges[index].offset + ranges[index].count;
            for (std::size_t i = ranges[index].offset; i < end; ++i) gradients[i] += part[i];
            reducer.mark_ready(index);
          }
        }
        const StepTotals totals = reducer.finish().value_or_throw();
        EXPECT_EQ(totals.samples, samples);
        EXPECT_NEAR(totals.loss, loss, 1e-4);
        for (const GradientRange& range : ranges)
          for (std::size_t i = range.offset; i < range.offset + range.count; ++i)
            EXPECT_NEAR(gradients[i], expected[i] / samples, 1e-6) << "element " << i;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, GradientReducerWorlds, ::testing::Values(1, 2, 3, 5));

TEST(GradientReducer, SendsNothingWhileGradientsAccumulate) {
  run_threads_as_ranks(2, [](Communicator& inner) {
    CountingCommunicator world(inner);
    std::vector<float> gradients(100);
    GradientReducer reducer(world, gradients, {{0, 50}, {50, 50}},
                            {.bucket_bytes = 200, .first_bucket_bytes = 200});
    ASSERT_EQ(reducer.bucket_count(), 2U);
    for (int pass = 0; pass < 4; ++pass) {
      reducer.begin(false, {1, 0, 0});
      reducer.mark_ready(1);
      reducer.mark_ready(0);
      EXPECT_EQ(world.collectives(), 0U);
      EXPECT_EQ(world.messages_sent(), 0U);
    }
    reducer.begin(true, {1, 0, 0});
    EXPECT_EQ(world.collectives(), 0U);
    reducer.mark_ready(1);
    EXPECT_EQ(world.collectives(), 1U);  // while backward goes on
    reducer.mark_ready(0);
    EXPECT_EQ(reducer.finish().value_or_throw().samples, 10);
    EXPECT_EQ(world.count(CollectiveKind::kAllReduce), 2U);
    EXPECT_EQ(world.collectives(), 2U);
    EXPECT_EQ(world.collective_bytes(), (100U + 3U) * sizeof(float));
  });
}

TEST(GradientReducer, FillsBucketsFromTheLastRangeAndKeepsTheFirstSmall) {
  run_threads_as_ranks(1, [](Communicator& world) {
    std::vector<float> gradients(1000);
    const auto buckets = [&](const std::vector<GradientRange>& ranges) {
      return GradientReducer(world, gradients, ranges,
                             {.bucket_bytes = 400, .first_bucket_bytes = 40})
          .bucket_count();
    };
    EXPECT_EQ(buckets({{0, 10}}), 1U);
    EXPECT_EQ(buckets({{0, 100}, {100, 10}}), 2U);
    EXPECT_EQ(buckets({{0, 50}, {50, 50}, {100, 10}}), 2U);
    EXPECT_EQ(buckets({{0, 51}, {51, 50}, {101, 10}}), 3U);
    EXPECT_EQ(buckets({{0, 500}, {500, 500}}), 2U);  // larger than a bucket: one each
    EXPECT_EQ(buckets({}), 1U);                      // the totals still travel
  });
}

TEST(GradientReducer, SumsRangesThatNobodyMarked) {
  run_threads_as_ranks(3, [](Communicator& world) {
    std::vector<float> gradients(8);
    GradientReducer reducer(world, gradients, {{0, 4}, {4, 4}}, {.first_bucket_bytes = 16});
    reducer.begin(true, {1, 0, 0});
    std::fill(gradients.begin(), gradients.begin() + 4, 2.0F);
    reducer.mark_ready(0);  // 1 is a parameter that the loss does not depend on
    ASSERT_TRUE(reducer.finish().ok());
    EXPECT_EQ(gradients, (std::vector<float>{2, 2, 2, 2, 0, 0, 0, 0}));
  });
}

TEST(GradientReducer, LeavesGradientsAloneIfNoRankHadASample) {
  run_threads_as_ranks(2, [](Communicator& world) {
    std::vector<float> gradients(4);
    GradientReducer reducer(world, gradients, {{0, 4}});
    reducer.begin(true, {});
    reducer.mark_ready(0);
    EXPECT_EQ(reducer.finish().value_or_throw().samples, 0);
    EXPECT_EQ(gradients, std::vector<float>(4));
  });
}

TEST(GradientReducer, CountsTheRanksThatWantToStop) {
  run_threads_as_ranks(3, [](Communicator& world) {
    std::vector<float> gradients(4);
    GradientReducer reducer(world, gradients, {{0, 4}});
    reducer.begin(true, {1, 0, world.rank() == 1 ? 1.0 : 0.0});
    reducer.mark_ready(0);
    EXPECT_EQ(reducer.finish().value_or_throw().stop_votes, 1);
  });
}

TEST(GradientReducer, NamesTheBucketWhenAPeerIsLost) {
  testing::ThreadWorld network(2);
  run_threads_as_ranks(network, 2, [&](Communicator& world) {
    if (world.rank() == 1) {
      network.kill(1);
      return;
    }
    std::vector<float> gradients(4);
    GradientReducer reducer(world, gradients, {{0, 4}});
    reducer.begin(true, {});
    reducer.mark_ready(0);
    const Status status = reducer.finish().status();
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_EQ(status.peer(), 1);
    EXPECT_EQ(status.to_string().rfind("gradient bucket 1 of 1: ", 0), 0U) << status.to_string();
  });
}

}  // namespace
}  // namespace dlaunch
