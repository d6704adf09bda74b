#include "nn/optim/schedule.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "nn/core/error.h"

namespace dlaunch::nn {
namespace {

TEST(Schedule, ConstantStaysWhereItIs) {
  const Schedule schedule = constant_schedule(0.25);
  EXPECT_EQ(schedule(0), 0.25);
  EXPECT_EQ(schedule(1e6), 0.25);
}

TEST(Schedule, MultiStepDropsAtEachMilestone) {
  const Schedule schedule = multi_step_schedule(0.1, {60, 120, 160}, 0.2);
  EXPECT_DOUBLE_EQ(schedule(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule(59.999), 0.1);
  EXPECT_DOUBLE_EQ(schedule(60), 0.02);
  EXPECT_DOUBLE_EQ(schedule(120), 0.004);
  EXPECT_DOUBLE_EQ(schedule(159.5), 0.004);
  EXPECT_DOUBLE_EQ(schedule(160), 0.0008);
  EXPECT_DOUBLE_EQ(schedule(1000), 0.0008);
}

TEST(Schedule, MultiStepWithoutMilestonesIsConstant) {
  EXPECT_EQ(multi_step_schedule(0.3, {}, 0.1)(77), 0.3);
}

TEST(Schedule, CosineFollowsTheClosedForm) {
  const Schedule schedule = cosine_schedule(0.4, 0, 30, 0.01);
  EXPECT_DOUBLE_EQ(schedule(0), 0.4);
  EXPECT_DOUBLE_EQ(schedule(15), 0.205);
  EXPECT_NEAR(schedule(10), 0.01 + 0.39 * 0.75, 1e-15);  // cos(pi / 3) = 1 / 2
  EXPECT_NEAR(schedule(30), 0.01, 1e-15);
  EXPECT_NEAR(schedule(31), 0.01, 1e-15);
  for (double t = 0; t < 30; t += 0.37) {
    // The half-angle form, so that the expectation is not the same expression.
    const double half = std::cos(std::numbers::pi * t / 60);
    EXPECT_NEAR(schedule(t), 0.01 + 0.39 * half * half, 1e-14) << "at " << t;
  }
}

TEST(Schedule, CosineMayBeginLater) {
  const Schedule schedule = cosine_schedule(0.2, 2, 8);
  EXPECT_EQ(schedule(0), 0.2);
  EXPECT_EQ(schedule(2), 0.2);
  EXPECT_NEAR(schedule(4), 0.15, 1e-15);  // a third of the way
  EXPECT_NEAR(schedule(5), 0.1, 1e-15);
  EXPECT_NEAR(schedule(8), 0, 1e-15);
}

TEST(Schedule, PiecewiseLinearDrawsLinesBetweenItsPoints) {
  const Schedule schedule = piecewise_linear_schedule({{0, 0}, {194, 2e-3}, {582, 2e-4}});
  EXPECT_EQ(schedule(0), 0);
  EXPECT_NEAR(schedule(97), 1e-3, 1e-15);
  EXPECT_NEAR(schedule(194), 2e-3, 1e-15);
  EXPECT_NEAR(schedule(388), 1.1e-3, 1e-15);
  EXPECT_NEAR(schedule(582), 2e-4, 1e-15);
  EXPECT_EQ(schedule(9999), 2e-4);
}

TEST(Schedule, PiecewiseLinearIsConstantBeforeItsFirstPointAndMayJump) {
  const Schedule schedule = piecewise_linear_schedule({{5, 1}, {10, 3}, {10, 0.5}, {20, 0.5}});
  EXPECT_EQ(schedule(0), 1);
  EXPECT_NEAR(schedule(9.999999), 3, 1e-5);
  EXPECT_EQ(schedule(10), 0.5);
  EXPECT_EQ(schedule(15), 0.5);
}

TEST(Schedule, WarmupRisesLinearlyThenHandsOver) {
  const Schedule schedule = with_linear_warmup(multi_step_schedule(0.1, {2}, 0.5), 4, 0.2);
  EXPECT_NEAR(schedule(0), 0.02, 1e-15);
  EXPECT_NEAR(schedule(1), 0.1 * 0.4, 1e-15);
  EXPECT_NEAR(schedule(3), 0.05 * 0.8, 1e-15);  // scales whatever the schedule says by then
  EXPECT_NEAR(schedule(4), 0.05, 1e-15);
  EXPECT_NEAR(schedule(5), 0.05, 1e-15);
}

TEST(Schedule, WarmupOfLengthZeroIsNone) {
  EXPECT_EQ(with_linear_warmup(constant_schedule(1), 0)(0), 1);
}

TEST(Schedule, RefusesWhatIsNoSchedule) {
  EXPECT_THROW(multi_step_schedule(0.1, {5, 3}, 0.1), Error);
  EXPECT_THROW(cosine_schedule(0.1, 0, 0), Error);
  EXPECT_THROW(cosine_schedule(0.1, -1, 1), Error);
  EXPECT_THROW(cosine_schedule(0.1, 3, 2), Error);
  EXPECT_THROW(piecewise_linear_schedule({}), Error);
  EXPECT_THROW(piecewise_linear_schedule({{3, 1}, {2, 1}}), Error);
  EXPECT_THROW(with_linear_warmup(constant_schedule(1), -1), Error);
}

}  // namespace
}  // namespace dlaunch::nn
