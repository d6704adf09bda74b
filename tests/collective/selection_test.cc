#include "runtime/collective/selection.h"

#include <gtest/gtest.h>

namespace dlaunch {
namespace {

TEST(Selection, TakesTheButterflyForShortVectorsAndTheRingForLongOnes) {
  for (const int ranks : {3, 4, 5, 8, 16, 17}) {
    EXPECT_EQ(choose_all_reduce(8, ranks), Algorithm::kButterfly) << ranks;
    EXPECT_EQ(choose_all_reduce(std::size_t{64} << 20, ranks), Algorithm::kRing) << ranks;
  }
}

TEST(Selection, SwitchesOnceAsVectorsGrow) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    bool ring = false;
    for (std::size_t bytes = 1; bytes < (std::size_t{1} << 30); bytes *= 2) {
      const bool now_ring = choose_all_reduce(bytes, ranks) == Algorithm::kRing;
      EXPECT_TRUE(now_ring || !ring) << ranks << " ranks, " << bytes << " bytes";
      ring = now_ring;
    }
  }
}

// Four ranks, alpha = 1, beta = gamma = 0.01, 100 bytes: 2 exchanges of 1 + 1 + 1 against
// 6 messages of 1, 1.5 transfers of 1 and 0.75 reductions of 1.
TEST(Selection, PredictsWhatTheFormulasSay) {
  const CostModel cost{1, 0.01, 0.01};
  EXPECT_DOUBLE_EQ(butterfly_seconds(cost, 100, 4), 6.0);
  EXPECT_DOUBLE_EQ(ring_seconds(cost, 100, 4), 8.25);
  // One more rank folds in (1 + 1 + 1) and out (1 + 1).
  EXPECT_DOUBLE_EQ(butterfly_seconds(cost, 100, 5), 11.0);
}

}  // namespace
}  // namespace dlaunch
