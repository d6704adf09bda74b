// The cache of what was made for the shapes of calls, and of plans.
#include "runtime/comm/call_shape.h"

#include <cstddef>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/plan_cache.h"

namespace dlaunch {
namespace {

class Cache {
 public:
  // True if it was there; in either case it is the value of that shape.
  bool has(std::size_t count, std::vector<std::size_t> counts = {},
           std::vector<std::size_t> recv_counts = {}) {
    CollectiveCall call;
    call.counts = counts;
    call.recv_counts = recv_counts;
    const std::string told = tell(count, counts) + "/" + tell(0, recv_counts);
    bool made = false;
    const CallShape shape{.kind = CollectiveKind::kAllReduce, .count = count, .element = 4};
    const Told value = cache_.get(shape, call, [&] {
      made = true;
      return Told{told, size_of_each};
    });
    EXPECT_EQ(value.text, told);
    return !made;
  }
  std::size_t size_of_each = 1;  // of those that are made from now on

 private:
  static std::string tell(std::size_t count, const std::vector<std::size_t>& counts) {
    std::string text = std::to_string(count);
    for (const std::size_t each : counts) text += " " + std::to_string(each);
    return text;
  }

  struct Told {
    std::string text;
    std::size_t size = 0;
    std::size_t bytes() const { return size; }
  };
  ShapeCache<Told> cache_;
};

TEST(ShapeCache, TellsShapesAndCountsApart) {
  Cache cache;
  for (const bool again : {false, true}) {
    EXPECT_EQ(cache.has(6), again);
    EXPECT_EQ(cache.has(7), again);
    EXPECT_EQ(cache.has(6, {1, 2, 3}), again);
    EXPECT_EQ(cache.has(6, {3, 2, 1}), again);
    EXPECT_EQ(cache.has(6, {3, 2, 1}, {1, 2, 3}), again);
    EXPECT_EQ(cache.has(6, {3, 2, 1}, {1, 1, 4}), again);
  }
}

TEST(ShapeCache, KeepsManyThatTakeTurns) {
  Cache cache;
  for (std::size_t count = 0; count < 256; ++count) EXPECT_FALSE(cache.has(count));
  for (int turn = 0; turn < 3; ++turn) {
    for (std::size_t count = 0; count < 256; ++count) EXPECT_TRUE(cache.has(count)) << count;
  }
}

TEST(ShapeCache, GivesUpWhatWasNotUsedForTheLongestTime) {
  Cache cache;
  for (std::size_t count = 0; count < 256; ++count) cache.has(count);
  EXPECT_TRUE(cache.has(0));
  EXPECT_FALSE(cache.has(1'000));
  EXPECT_TRUE(cache.has(0));
  EXPECT_TRUE(cache.has(2));
  EXPECT_FALSE(cache.has(1));  // in the place of 3
  EXPECT_FALSE(cache.has(3));
  EXPECT_TRUE(cache.has(0));
}

TEST(ShapeCache, KeepsFewerLargeOnes) {
  Cache cache;
  EXPECT_FALSE(cache.has(1));
  cache.size_of_each = std::size_t{12} << 20;
  EXPECT_FALSE(cache.has(2));
  EXPECT_FALSE(cache.has(3));
  for (const std::size_t count : {1U, 2U, 3U}) EXPECT_TRUE(cache.has(count));
  EXPECT_FALSE(cache.has(4));  // in the place of 1 and 2
  EXPECT_TRUE(cache.has(3));
  EXPECT_TRUE(cache.has(4));
  cache.size_of_each = std::size_t{100} << 20;
  EXPECT_FALSE(cache.has(5));  // alone
  EXPECT_TRUE(cache.has(5));
  cache.size_of_each = 1;
  for (const std::size_t count : {1U, 2U, 3U, 4U, 5U}) EXPECT_FALSE(cache.has(count)) << count;
  for (const std::size_t count : {1U, 2U, 3U, 4U, 5U}) EXPECT_TRUE(cache.has(count)) << count;
}

TEST(ShapeCache, GivesTheRightValueWhateverWasAskedFor) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Cache cache;
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t count = random() % 400;
    cache.size_of_each = std::size_t{1} << random() % 23;
    if (random() % 2 == 0) {
      cache.has(count);
    } else {
      cache.has(count, {count, random() % 2});
    }
  }
}

// In a world so large Bruck's algorithm, which takes the fewest messages, is best for short parts.
TEST(PlanCache, ChoosesForPartsThatMayDifferWhatCanMoveThem) {
  constexpr int kWorld = 64;
  std::vector<int> host_of_rank(kWorld);
  std::iota(host_of_rank.begin(), host_of_rank.end(), 0);
  PlanCache plans(0, kWorld,
                  std::make_shared<const Tuning>(Tuning{
                      .topology = {.ranks = kWorld, .host_of_rank = std::move(host_of_rank)}}));
  std::vector<float> data(kWorld);
  std::vector<float> output(kWorld);
  const std::vector<std::size_t> counts(kWorld, 1);
  CollectiveCall call{.kind = CollectiveKind::kAllToAll, .input = data, .output = output};
  EXPECT_EQ(plans.plan_for(CallShape::of(call, kWorld), call).algorithm, Algorithm::kBruck);
  call.counts = counts;
  call.recv_counts = counts;
  EXPECT_EQ(plans.plan_for(CallShape::of(call, kWorld), call).algorithm, Algorithm::kDirect);
}

}  // namespace
}  // namespace dlaunch
