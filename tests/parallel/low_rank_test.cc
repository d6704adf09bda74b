#include "runtime/parallel/low_rank.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace dlaunch::low_rank {
namespace {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(LowRank, MultipliesAsWrittenDownPlainly) {
  for (const Extent extent : {Extent{1, 1, 1}, Extent{7, 33, 2}, Extent{40, 16, 3}}) {
    const auto m = random_values(extent.rows * extent.columns, 1);
    const auto q = random_values(extent.columns * extent.rank, 2);
    const auto p = random_values(extent.rows * extent.rank, 3);
    std::vector<float> mq(extent.rows * extent.rank, 9), mtp(extent.columns * extent.rank, 9),
        pqt(m.size(), 9), rest(m.size(), 9);
    multiply(extent, m.data(), q.data(), mq.data());
    multiply_transposed(extent, m.data(), p.data(), mtp.data());
    expand(extent, p.data(), q.data(), pqt.data());
    residual(extent, m.data(), p.data(), q.data(), 0.5F, rest.data());

    std::vector<double> mq_expected(mq.size()), mtp_expected(mtp.size());
    for (std::size_t i = 0; i < extent.rows; ++i)
      for (std::size_t j = 0; j < extent.columns; ++j) {
        const double element = m[i * extent.columns + j];
        double product = 0;
        for (std::size_t k = 0; k < extent.rank; ++k) {
          const double p_ik = p[k * extent.rows + i];
          const double q_jk = q[k * extent.columns + j];
          mq_expected[k * extent.rows + i] += element * q_jk;
          mtp_expected[k * extent.columns + j] += element * p_ik;
          product += p_ik * q_jk;
        }
        EXPECT_NEAR(pqt[i * extent.columns + j], product, 1e-5);
        EXPECT_NEAR(rest[i * extent.columns + j], 0.5 * (element - product), 1e-5);
      }
    for (std::size_t i = 0; i < mq.size(); ++i) EXPECT_NEAR(mq[i], mq_expected[i], 1e-4);
    for (std::size_t i = 0; i < mtp.size(); ++i) EXPECT_NEAR(mtp[i], mtp_expected[i], 1e-4);
  }
}

TEST(LowRank, OrthonormalisesAndDropsWhatDependsOnTheRest) {
  constexpr std::size_t kRows = 50;
  auto p = random_values(4 * kRows, 5);
  for (std::size_t i = 0; i < kRows; ++i) p[2 * kRows + i] = 3 * p[i] - 2 * p[kRows + i];
  orthonormalise(kRows, 4, p.data());
  const auto product = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < kRows; ++i)
      sum += static_cast<double>(p[a * kRows + i]) * static_cast<double>(p[b * kRows + i]);
    return sum;
  };
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b <= a; ++b)
      EXPECT_NEAR(product(a, b), a == b && a != 2 ? 1 : 0, 1e-5) << a << ", " << b;
}

TEST(LowRank, OrthonormalisesWhatNearlyDependsOnTheRest) {
  constexpr std::size_t kRows = 50;
  for (const float distance : {1e-1F, 1e-2F, 1e-3F, 1e-4F, 3e-5F}) {
    auto p = random_values(2 * kRows, 6);
    for (std::size_t i = 0; i < kRows; ++i) p[kRows + i] = p[i] + distance * p[kRows + i];
    orthonormalise(kRows, 2, p.data());
    double product = 0;
    for (std::size_t i = 0; i < kRows; ++i)
      product += static_cast<double>(p[i]) * static_cast<double>(p[kRows + i]);
    EXPECT_NEAR(product, 0, 1e-6) << distance;
  }
}

TEST(LowRank, LeavesZerosAloneAndHandsOnNotANumber) {
  std::vector<float> zeros(8);
  orthonormalise(4, 2, zeros.data());
  EXPECT_EQ(zeros, std::vector<float>(8));
  std::vector<float> bad{1, NAN, 2};
  orthonormalise(3, 1, bad.data());
  EXPECT_TRUE(std::isnan(bad[0]));
}

}  // namespace
}  // namespace dlaunch::low_rank
