// Communicators out of a communicator.
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/comm/contract/contract.h"
#include "tests/comm/split_helpers.h"

namespace dlaunch::testing {
namespace {

class Split : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
};

TEST_P(Split, GroupsByColorAndOrdersByKey) {
  run_ranks(world(), [&](Communicator& comm) {
    const int color = comm.rank() % 2;
    const auto part = split(comm, color, -comm.rank());  // the other way round
    ASSERT_NE(part, nullptr);
    const int size = (world() + 1 - color) / 2;
    EXPECT_EQ(part->size(), size);
    EXPECT_EQ(part->rank(), size - 1 - comm.rank() / 2);
    std::vector<std::int32_t> mine{comm.rank()};
    std::vector<std::int32_t> all(static_cast<std::size_t>(size));
    ASSERT_TRUE(part->all_gather(mine, all).ok());
    for (int i = 0; i < size; ++i) {
      EXPECT_EQ(all[static_cast<std::size_t>(i)], 2 * (size - 1 - i) + color);
    }
    EXPECT_EQ(sum_of_ones(comm), world()) << "the whole still works";
  });
}

TEST_P(Split, GivesNothingForANegativeColor) {
  run_ranks(world(), [&](Communicator& comm) {
    const auto part = split(comm, comm.rank() == 0 ? -1 : 3);
    EXPECT_EQ(part == nullptr, comm.rank() == 0);
    if (part != nullptr) {
      EXPECT_EQ(sum_of_ones(*part), world() - 1);
    }
  });
}

TEST_P(Split, CanBeRepeatedAndNested) {
  run_ranks(world(), [&](Communicator& comm) {
    std::vector<std::unique_ptr<Communicator>> parts;
    parts.push_back(split(comm, 0));
    parts.push_back(split(comm, 0));                     // again
    parts.push_back(split(*parts[0], comm.rank() / 2));  // pairs
    parts.push_back(split(*parts[2], comm.rank()));      // alone
    parts.push_back(split(*parts[1], 0, -comm.rank()));  // the other way round
    parts.push_back(split(*parts[4], parts[4]->rank() / 2, 0));
    EXPECT_EQ(sum_of_ones(*parts[1]), world());
    const bool odd_one_out = world() % 2 == 1 && comm.rank() == world() - 1;
    EXPECT_EQ(sum_of_ones(*parts[2]), odd_one_out ? 1 : 2);
    EXPECT_EQ(sum_of_ones(*parts[3]), 1);
    const bool odd_one_below = world() % 2 == 1 && comm.rank() == 0;
    EXPECT_EQ(sum_of_ones(*parts[5]), odd_one_below ? 1 : 2);
    EXPECT_TRUE(parts[5]->split(0, 0).ok());
  });
}

TEST_P(Split, KeepsTheOrderOfReductions) {
  run_ranks(world(), [&](Communicator& comm) {
    comm.set_reduce_order(ReduceOrder::kRanks);
    const auto part = split(comm, 0);
    ASSERT_NE(part, nullptr);
    EXPECT_EQ(part->reduce_order(), ReduceOrder::kRanks);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Split, ::testing::ValuesIn(contract_worlds()));

}  // namespace
}  // namespace dlaunch::testing
