#include <vector>

#include <dlaunch/tests/support/distributed_test.h>
#include <gtest/gtest.h>

TEST(Sum, IsTheSameOnEveryRank) {
  dlaunch::testing::run_on_ranks(3, [](dlaunch::Communicator& world) {
    std::vector<double> value{world.rank() + 0.5};
    ASSERT_TRUE(dlaunch::testing::succeeded(world.all_reduce(value)));
    EXPECT_EQ(value[0], 0.5 + 1.5 + 2.5);
  });
}
