#include "runtime/parallel/bucket_plan.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

using Ranges = std::vector<GradientRange>;
using Indices = std::vector<std::size_t>;

std::vector<FlatSpan> spans(const Ranges& ranges, const Indices& order) {
  std::vector<FlatSpan> result;
  for (const Bucket& bucket : plan_buckets(ranges, order, {.bytes = 400, .first_bytes = 40}))
    result.push_back(bucket.span);
  return result;
}

TEST(BucketPlan, FillsBucketsInTheOrderOfArrivalAndKeepsTheFirstSmall) {
  using Spans = std::vector<FlatSpan>;
  EXPECT_EQ(spans({}, {}), Spans{});
  EXPECT_EQ(spans({{0, 10}}, {0}), (Spans{{0, 10}}));
  EXPECT_EQ(spans({{0, 100}, {100, 10}}, {1, 0}), (Spans{{100, 110}, {0, 100}}));
  EXPECT_EQ(spans({{0, 50}, {50, 50}, {100, 10}}, {2, 1, 0}), (Spans{{100, 110}, {0, 100}}));
  EXPECT_EQ(spans({{0, 51}, {51, 50}, {101, 10}}, {2, 1, 0}),
            (Spans{{101, 111}, {51, 101}, {0, 51}}));
  EXPECT_EQ(spans({{0, 500}, {500, 500}}, {1, 0}), (Spans{{500, 1000}, {0, 500}}));
  // The first is beyond the first limit alone.
  EXPECT_EQ(spans({{0, 20}, {20, 20}, {40, 20}}, {2, 1, 0}), (Spans{{40, 60}, {0, 40}}));
}

TEST(BucketPlan, TakesInThePaddingBetweenNeighbours) {
  EXPECT_EQ(spans({{0, 3}, {16, 3}}, {1, 0}), (std::vector<FlatSpan>{{0, 19}}));
}

TEST(BucketPlan, SplitsWhatArrivesTogetherButLiesApart) {
  // 0 and 2 arrive before 1, which does not fit beside them; 2 is there first.
  EXPECT_EQ(spans({{0, 5}, {5, 90}, {95, 5}}, {2, 0, 1}),
            (std::vector<FlatSpan>{{95, 100}, {0, 5}, {5, 95}}));
  // The last of 0 and 1, which lie together, comes after 3.
  EXPECT_EQ(spans({{0, 3}, {3, 3}, {6, 91}, {97, 3}}, {1, 3, 0, 2}),
            (std::vector<FlatSpan>{{97, 100}, {0, 6}, {6, 97}}));
}

TEST(BucketPlan, HoldsEveryRangeOnceInBucketsThatAreFullInTheirOrder) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    Ranges ranges;
    std::size_t end = 0;
    for (std::size_t i = random() % 20; i > 0; --i) {
      ranges.push_back({end, 1 + random() % 60});
      end += (ranges.back().count + 15) / 16 * 16;
    }
    Indices order(ranges.size());
    std::iota(order.begin(), order.end(), 0U);
    std::ranges::shuffle(order, random);
    Indices position(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = i;

    Indices seen;
    for (const Bucket& bucket :
         plan_buckets(ranges, order, {.bytes = 4 * (random() % 100), .first_bytes = 40})) {
      EXPECT_EQ(bucket.span.begin, ranges[bucket.ranges.front()].offset);
      const GradientRange& last = ranges[bucket.ranges.back()];
      EXPECT_EQ(bucket.span.end, last.offset + last.count);
      EXPECT_EQ(bucket.ranges.back() - bucket.ranges.front() + 1, bucket.ranges.size());
      seen.insert(seen.end(), bucket.ranges.begin(), bucket.ranges.end());
    }
    std::ranges::sort(seen);
    Indices all(ranges.size());
    std::iota(all.begin(), all.end(), 0U);
    EXPECT_EQ(seen, all);
  }
}

TEST(EvenParts, CutsBetweenCacheLinesWithoutGaps) {
  for (const std::size_t size : {0U, 1U, 16U, 17U, 100U, 1000U})
    for (const std::size_t parts : {1U, 2U, 3U, 5U}) {
      const auto cut = even_parts({32, 32 + size}, parts);
      ASSERT_EQ(cut.size(), parts);
      std::size_t end = 32;
      for (const FlatSpan& part : cut) {
        EXPECT_EQ(part.begin, end);
        EXPECT_TRUE(part.begin % 16 == 0 || part.begin == 32 + size);
        EXPECT_LE(part.size(), (size / 16 + parts) / parts * 16);
        end = part.end;
      }
      EXPECT_EQ(end, 32 + size);
    }
}

}  // namespace
}  // namespace dlaunch
