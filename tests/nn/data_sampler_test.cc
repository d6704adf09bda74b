#include "nn/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

namespace dlaunch::nn {
namespace {

TEST(EpochOrder, IsAPermutationThatDependsOnSeedAndEpoch) {
  const auto order = epoch_order(1001, 7, 3);
  auto sorted = order;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::uint32_t> all(1001);
  std::iota(all.begin(), all.end(), 0U);
  EXPECT_EQ(sorted, all);
  EXPECT_EQ(epoch_order(1001, 7, 3), order);
  EXPECT_NE(epoch_order(1001, 7, 4), order);
  EXPECT_NE(epoch_order(1001, 8, 3), order);
}

TEST(EvenPart, CoversEverythingWithSizesThatDifferByOneAtMost) {
  for (std::size_t size : {0U, 1U, 5U, 64U, 10007U})
    for (std::size_t parts : {1U, 2U, 3U, 7U, 16U}) {
      std::size_t next = 0;
      for (std::size_t i = 0; i < parts; ++i) {
        const SampleRange part = even_part(size, parts, i);
        EXPECT_EQ(part.begin, next);
        EXPECT_GE(part.size(), size / parts);
        EXPECT_LE(part.size(), size / parts + 1);
        next = part.end;
      }
      EXPECT_EQ(next, size);
    }
}

TEST(StepPlan, VisitsEverySampleOfAnEpochOnce) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto draw = [&](std::size_t low, std::size_t high) {
    return std::uniform_int_distribution<std::size_t>(low, high)(random);
  };
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t samples = draw(1, 2000), per_step = draw(1, 3000), micros = draw(1, 5),
                      ranks = draw(1, 9);
    const StepPlan plan(samples, per_step, micros, ranks);
    SCOPED_TRACE(::testing::Message() << samples << " samples, " << per_step << " per step, "
                                      << micros << " micro-batches, " << ranks << " ranks");
    std::vector<int> visits(samples);
    std::size_t largest = 0;
    for (std::size_t step = 0; step < plan.steps(); ++step) {
      ASSERT_GE(plan.micro_batches(step), 1U);
      ASSERT_LE(plan.micro_batches(step), micros);
      for (std::size_t micro = 0; micro < plan.micro_batches(step); ++micro)
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const SampleRange range = plan.micro_batch(step, micro, rank);
          largest = std::max(largest, range.size());
          for (std::size_t i = range.begin; i < range.end; ++i) ++visits[i];
        }
    }
    EXPECT_EQ(plan.largest_micro_batch(), largest);
    EXPECT_EQ(std::count(visits.begin(), visits.end(), 1), static_cast<std::ptrdiff_t>(samples));
  }
}

TEST(StepPlan, GivesAStepTheSameSamplesForAnyNumberOfRanks) {
  for (std::size_t ranks : {1U, 2U, 3U, 4U}) {
    const StepPlan plan(1000, 96, 2, ranks);
    EXPECT_EQ(plan.steps(), 11U);
    EXPECT_EQ(plan.step_range(0), (SampleRange{0, 96}));
    EXPECT_EQ(plan.step_range(10), (SampleRange{960, 1000}));
    // Also of a micro-batch over all ranks: what a synchronised normalisation sees.
    EXPECT_EQ(plan.micro_batch(1, 0, 0).begin, 96U);
    EXPECT_EQ(plan.micro_batch(1, 0, ranks - 1).end, 144U);
    EXPECT_EQ(plan.micro_batch(1, 1, ranks - 1).end, 192U);
  }
}

TEST(StepPlan, ReachesFractionsOfAnEpochThatAreWrittenInDecimal) {
  const StepPlan plan(50, 1, 1, 1);
  EXPECT_EQ(plan.progress(1, 18), 1.36);
  for (int hundredths = 0; hundredths < 20'000; hundredths += 2) {
    const auto steps = static_cast<std::size_t>(hundredths / 2);
    const std::string written =
        std::to_string(hundredths / 100) + "." + std::to_string(hundredths % 100 + 100).substr(1);
    EXPECT_EQ(plan.progress(steps / 50, steps % 50), std::stod(written)) << written;
  }
}

TEST(StepPlan, RunsNoMoreMicroBatchesInTheLastStepThanItNeeds) {
  const StepPlan plan(50000, 128, 2, 2);  // 390 full steps, 80 samples are left
  EXPECT_EQ(plan.steps(), 391U);
  EXPECT_EQ(plan.micro_batches(390), 2U);
  EXPECT_EQ(plan.micro_batch(390, 0, 0).size(), 20U);
  const StepPlan small(50, 48, 3, 2);  // 2 are left
  EXPECT_EQ(small.micro_batches(1), 1U);
  EXPECT_EQ(small.micro_batch(1, 0, 1), (SampleRange{49, 50}));
  const StepPlan tiny(49, 48, 3, 2);  // 1 is left: one rank gets nothing, and runs all the same
  EXPECT_EQ(tiny.micro_batch(1, 0, 0).size() + tiny.micro_batch(1, 0, 1).size(), 1U);
}

}  // namespace
}  // namespace dlaunch::nn
