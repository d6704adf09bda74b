#include "nn/core/random.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace dlaunch::nn {
namespace {

using Block = std::array<std::uint32_t, 4>;

// The known-answer vectors of Random123 1.09 (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

class GeneratorTest : public testing::Test {
 protected:
  std::uint64_t seed_ = std::random_device{}();
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

TEST_F(GeneratorTest, ReadsTheBlocksOfPhiloxInOrder) {
  const std::uint64_t seed = (seed_ << 32) | 7;
  const std::uint64_t stream = (std::uint64_t{3} << 32) | 9;
  Generator generator(RandomState{seed, stream, (std::uint64_t{1} << 34) - 4});
  for (const std::uint64_t block : {(std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 32}) {
    const Block expected = philox4x32(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 9, 3},
        {7, static_cast<std::uint32_t>(seed_)});
    for (const std::uint32_t word : expected) EXPECT_EQ(generator(), word);
  }
}

TEST_F(GeneratorTest, ContinuesFromASavedState) {
  Generator generator(seed_, 3);
  for (int i = 0; i < 5; ++i) generator();
  const RandomState state = generator.state();
  std::vector<std::uint32_t> first(11);
  for (auto& word : first) word = generator();
  Generator other(0);
  other.restore(state);
  for (const auto word : first) EXPECT_EQ(other(), word);
}

TEST_F(GeneratorTest, StreamsAndSeedsAreIndependent) {
  EXPECT_NE(Generator(seed_, 0)(), Generator(seed_, 1)());
  EXPECT_NE(Generator(seed_, 0)(), Generator(seed_ + 1, 0)());
}

TEST_F(GeneratorTest, ReservesWordsFromABlockBoundaryOn) {
  Generator generator(seed_);
  generator();
  const RandomState reserved = generator.reserve(10);
  EXPECT_EQ(reserved.position, 4U);
  EXPECT_EQ(generator.state().position, 14U);
  Generator skipping(seed_);
  for (int i = 0; i < 14; ++i) skipping();
  EXPECT_EQ(generator(), skipping());
}

// Limits are six standard deviations of the statistic: wrong once in 10^9 runs.
TEST_F(GeneratorTest, UniformNumbersFillTheirRangeEvenly) {
  constexpr int kCount = 100000;
  Generator generator(seed_);
  double sum = 0;
  for (int i = 0; i < kCount; ++i) {
    const float value = generator.uniform(-2.0F, 4.0F);
    ASSERT_GE(value, -2.0F);
    ASSERT_LT(value, 4.0F);
    sum += value;
  }
  EXPECT_NEAR(sum / kCount, 1.0, 6 * std::sqrt(36.0 / 12 / kCount));
}

TEST_F(GeneratorTest, NormalNumbersHaveTheirMeanAndDeviation) {
  constexpr int kCount = 100000;
  Generator generator(seed_);
  std::vector<float> values(kCount);
  generator.fill_normal(values, 3.0F, 2.0F);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value - 3.0;
    squares += (value - 3.0) * (value - 3.0);
  }
  EXPECT_NEAR(sum / kCount, 0.0, 6 * 2 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 4.0, 6 * 4 * std::sqrt(2.0 / kCount));
}

TEST_F(GeneratorTest, NumbersBelowABoundAreEquallyOften) {
  constexpr int kCount = 60000;
  Generator generator(seed_);
  std::array<int, 6> counts{};
  for (int i = 0; i < kCount; ++i) ++counts.at(generator.below(6));
  for (const int count : counts) EXPECT_NEAR(count, kCount / 6.0, 6 * std::sqrt(kCount * 5 / 36.0));
  EXPECT_EQ(generator.below(1), 0U);
}

TEST_F(GeneratorTest, PermutationsHoldEveryIndexOnceAndAreReproducible) {
  for (const std::size_t count : {0U, 1U, 2U, 1009U}) {
    const auto order = Generator(seed_).permutation(count);
    EXPECT_EQ(order, Generator(seed_).permutation(count));
    auto sorted = order;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::uint32_t> expected(count);
    std::iota(expected.begin(), expected.end(), 0U);
    EXPECT_EQ(sorted, expected);
    if (count > 100) {
      EXPECT_NE(order, expected);
    }
  }
}

}  // namespace
}  // namespace dlaunch::nn
