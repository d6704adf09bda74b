// all_reduce: every type, reduction and algorithm.
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/comm/contract/contract.h"
#include "tests/comm/random_data.h"

namespace dlaunch::testing {
namespace {

class AllReduce : public ::testing::TestWithParam<std::tuple<int, Algorithm>> {
 protected:
  int world() const { return std::get<0>(GetParam()); }
  Algorithm algorithm() const { return std::get<1>(GetParam()); }

  // One all_reduce, checked on every rank; returns its bits.
  template <typename T>
  std::vector<T> reduce_and_check(Communicator& comm, ReduceOp op, std::size_t count) const {
    std::vector<std::vector<T>> inputs;
    for (int rank = 0; rank < world(); ++rank) {
      inputs.push_back(random_values<T>(seed_, rank, count));
    }
    std::vector<T> data = inputs[static_cast<std::size_t>(comm.rank())];
    const Status status = comm.all_reduce(data, op, algorithm());
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(wrong_element(op, inputs, 0, data), "")
        << to_string(dtype_of<T>) << " " << to_string(op) << " [" << count << "] seed " << seed_;
    return data;
  }

  const std::uint64_t seed_ = contract_seed();
};

TEST_P(AllReduce, IsRightForEveryTypeReductionAndCountAndTheSameOnEveryRank) {
  const auto p = static_cast<std::size_t>(world());
  run_ranks(world(), [&](Communicator& comm) {
    const auto bits_of_all_results = [&] {
      std::vector<std::uint8_t> bits;
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, p - 1, std::size_t{13},
                                      std::size_t{127}, std::size_t{257}}) {
        for (const DType dtype : kAllDTypes) {
          for (const ReduceOp op : reductions_of(dtype)) {
            visit_dtype(dtype, [&]<typename T>() {
              const auto data = reduce_and_check<T>(comm, op, count);
              const auto* const bytes = reinterpret_cast<const std::uint8_t*>(data.data());
              bits.insert(bits.end(), bytes, bytes + data.size() * sizeof(T));
            });
          }
        }
      }
      return bits;
    };
    const auto bits = bits_of_all_results();
    auto of_rank_0 = bits;
    ASSERT_TRUE(comm.broadcast(of_rank_0, 0).ok());
    EXPECT_EQ(bits == of_rank_0, true) << "ranks hold different bits, seed " << seed_;
    EXPECT_EQ(bits == bits_of_all_results(), true) << "again gave other bits, seed " << seed_;
  });
}

// Longer than the segments of a message and than all staging slots together.
TEST_P(AllReduce, IsRightForLongVectors) {
  run_ranks(world(), [&](Communicator& comm) {
    reduce_and_check<float>(comm, ReduceOp::kSum, 300'007);
    reduce_and_check<std::uint8_t>(comm, ReduceOp::kAvg, 40'009);
    reduce_and_check<BFloat16>(comm, ReduceOp::kMax, 140'009);
  });
}

TEST_P(AllReduce, LeavesTheInputAloneUnlessItIsTheOutput) {
  run_ranks(world(), [&](Communicator& comm) {
    std::vector<std::vector<double>> inputs;
    for (int rank = 0; rank < world(); ++rank) {
      inputs.push_back(random_values<double>(seed_, rank, 101));
    }
    const std::vector<double> input = inputs[static_cast<std::size_t>(comm.rank())];
    std::vector<double> output(101);
    const Status status = comm.run({.kind = CollectiveKind::kAllReduce,
                                    .input = input,
                                    .output = output,
                                    .op = ReduceOp::kAvg,
                                    .algorithm = algorithm()});
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(input, inputs[static_cast<std::size_t>(comm.rank())]);
    EXPECT_EQ(wrong_element(ReduceOp::kAvg, inputs, 0, output), "") << "seed " << seed_;
  });
}

// In place is each rank's own choice. The longer vector is one for which Open MPI takes another
// algorithm where it works in place.
TEST_P(AllReduce, WorksInPlaceOnSomeRanksAndNotOnOthers) {
  run_ranks(world(), [&](Communicator& comm) {
    const auto check = [&]<typename T>(ReduceOp op, std::size_t count, int in_place) {
      std::vector<std::vector<T>> inputs;
      for (int rank = 0; rank < world(); ++rank) {
        inputs.push_back(random_values<T>(seed_, rank, count));
      }
      std::vector<T> data = inputs[static_cast<std::size_t>(comm.rank())];
      std::vector<T> apart(count);
      const bool own_choice = comm.rank() % 2 == in_place;
      const Status status = comm.run({.kind = CollectiveKind::kAllReduce,
                                      .input = data,
                                      .output = own_choice ? data : apart,
                                      .op = op,
                                      .algorithm = algorithm()});
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(wrong_element(op, inputs, 0, own_choice ? data : apart), "")
          << to_string(dtype_of<T>) << " [" << count << "] seed " << seed_;
    };
    for (const int in_place : {0, 1}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{16'870}}) {
        check.template operator()<float>(ReduceOp::kSum, count, in_place);
        check.template operator()<Float16>(ReduceOp::kMax, count, in_place);
        check.template operator()<std::int32_t>(ReduceOp::kAvg, count, in_place);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, AllReduce,
                         ::testing::Combine(::testing::ValuesIn(contract_worlds()),
                                            ::testing::ValuesIn(contract_algorithms())),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" +
                                  std::string(to_string(std::get<1>(test.param)));
                         });

class AllReduceOf : public ::testing::TestWithParam<int> {};

TEST_P(AllReduceOf, AnySizeFindsItsAlgorithm) {
  run_ranks(GetParam(), [](Communicator& comm) {
    for (std::size_t count = 1; count < 100'000; count = count * 7 + 1) {
      std::vector<std::int64_t> ones(count, 1);
      ASSERT_TRUE(comm.all_reduce(ones).ok());
      ASSERT_EQ(ones, std::vector<std::int64_t>(count, comm.size()));
    }
  });
}

// The reference is the sum in the order of ranks, in the type in which sums are computed, rounded
// once.
TEST_P(AllReduceOf, OperandsInRankOrderGivesTheBitsOfThePlainLoopWithEveryAlgorithm) {
  const std::uint64_t seed = contract_seed();
  const int world = GetParam();
  run_ranks(world, [&](Communicator& comm) {
    comm.set_reduce_order(ReduceOrder::kRanks);
    const auto check = [&]<typename T, typename Wide>(Algorithm algorithm, std::size_t count) {
      std::vector<Wide> sums(count);
      std::vector<T> data = random_values<T>(seed, comm.rank(), count);
      for (int rank = 0; rank < world; ++rank) {
        const auto values = random_values<T>(seed, rank, count);
        for (std::size_t i = 0; i < count; ++i) {
          const auto value = static_cast<Wide>(values[i]);
          sums[i] = rank == 0 ? value : sums[i] + value;
        }
      }
      std::vector<T> expected;
      for (const Wide sum : sums) expected.push_back(static_cast<T>(sum));
      const Status status = comm.all_reduce(data, ReduceOp::kSum, algorithm);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(data, expected) << to_string(algorithm) << " " << to_string(dtype_of<T>) << " seed "
                                << seed;
    };
    for (const Algorithm algorithm : contract_algorithms()) {
      for (const std::size_t count : {0U, 1U, 7U, 1'001U}) {
        check.operator()<float, float>(algorithm, count);
        check.operator()<double, double>(algorithm, count);
        check.operator()<Float16, float>(algorithm, count);
        check.operator()<BFloat16, float>(algorithm, count);
      }
    }
  });
}

// Index of the first element that is NaN and should not be, or the other way round; nothing if
// there is none.
template <typename T>
std::optional<std::size_t> wrong_about_nan(const std::vector<T>& data,
                                           const std::set<std::size_t>& places) {
  for (std::size_t i = 0; i < data.size(); ++i)
    if (std::isnan(to_double(data[i])) != places.contains(i)) return i;
  return std::nullopt;
}

TEST_P(AllReduceOf, NanOfAnyRankReachesEveryRankAndNothingElse) {
  const std::uint64_t seed = contract_seed();
  run_ranks(GetParam(), [&](Communicator& comm) {
    int calls = 0;
    const auto check = [&]<typename T>(Algorithm algorithm, ReduceOp op, std::size_t count) {
      std::vector<T> data = random_values<T>(seed, comm.rank(), count);
      const std::set<std::size_t> places{0, count / 2, count - 1};
      if (calls++ % comm.size() == comm.rank())
        for (const std::size_t place : places) data[place] = static_cast<T>(std::nanf(""));
      const Status status = comm.all_reduce(data, op, algorithm);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(wrong_about_nan(data, places), std::nullopt)
          << to_string(algorithm) << " " << to_string(op) << " " << to_string(dtype_of<T>) << "["
          << count << "], call " << calls << ", seed " << seed;
    };
    for (const Algorithm algorithm : contract_algorithms()) {
      for (const ReduceOp op : reductions_of(DType::kF32)) {
        for (const std::size_t count : {1U, 7U, 64U, 4'099U}) {
          check.template operator()<Float16>(algorithm, op, count);
          check.template operator()<BFloat16>(algorithm, op, count);
          check.template operator()<float>(algorithm, op, count);
          check.template operator()<double>(algorithm, op, count);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, AllReduceOf, ::testing::ValuesIn(contract_worlds()));

}  // namespace
}  // namespace dlaunch::testing
