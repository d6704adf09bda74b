// all_reduce over the loopback network, ranks as threads: every type, reduction and algorithm.
#include <cstring>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/comm/random_data.h"
#include "tests/support/thread_ranks.h"

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

  const std::uint64_t seed_ = std::random_device{}();
};

TEST_P(AllReduce, IsRightForEveryTypeReductionAndCountAndTheSameOnEveryRank) {
  std::mutex mutex;
  std::set<std::string> results;  // the bits of all results of a rank
  const auto p = static_cast<std::size_t>(world());
  const auto body = [&](Communicator& comm) {
    std::string bits;
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, p - 1, std::size_t{13},
                                    std::size_t{127}, std::size_t{257}}) {
      for (const DType dtype : kAllDTypes) {
        for (const ReduceOp op : kAllReduceOps) {
          visit_dtype(dtype, [&]<typename T>() {
            const auto data = reduce_and_check<T>(comm, op, count);
            bits.append(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T));
          });
        }
      }
    }
    const std::scoped_lock lock(mutex);
    results.insert(bits);
  };
  run_threads_as_ranks(world(), body);
  EXPECT_EQ(results.size(), 1U) << "ranks hold different bits, seed " << seed_;
  run_threads_as_ranks(world(), body);
  EXPECT_EQ(results.size(), 1U) << "a second run gave other bits, seed " << seed_;
}

// Longer than the segments of a message and than all staging slots together.
TEST_P(AllReduce, IsRightForLongVectors) {
  run_threads_as_ranks(world(), [&](Communicator& comm) {
    reduce_and_check<float>(comm, ReduceOp::kSum, 300'007);
    reduce_and_check<std::uint8_t>(comm, ReduceOp::kAvg, 40'009);
    reduce_and_check<BFloat16>(comm, ReduceOp::kMax, 140'009);
  });
}

TEST_P(AllReduce, LeavesTheInputAloneUnlessItIsTheOutput) {
  run_threads_as_ranks(world(), [&](Communicator& comm) {
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

INSTANTIATE_TEST_SUITE_P(Worlds, AllReduce,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4, 5, 8),
                                            ::testing::Values(Algorithm::kRing,
                                                              Algorithm::kButterfly)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) + "_" +
                                  std::string(to_string(std::get<1>(test.param)));
                         });

TEST(AllReduceChoice, AgreesOnAnAlgorithmForEverySize) {
  run_threads_as_ranks(5, [](Communicator& comm) {
    for (std::size_t count = 1; count < 100'000; count = count * 7 + 1) {
      std::vector<std::int64_t> ones(count, 1);
      ASSERT_TRUE(comm.all_reduce(ones).ok());
      ASSERT_EQ(ones, std::vector<std::int64_t>(count, 5));
    }
  });
}

TEST(AllReduceNan, ReachesEveryRankFromAnyRank) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kButterfly}) {
    run_threads_as_ranks(4, [&](Communicator& comm) {
      for (const ReduceOp op : kAllReduceOps) {
        std::vector<float> data(4, 1.0F);  // element i is NaN on rank i
        data[static_cast<std::size_t>(comm.rank())] = std::nanf("");
        ASSERT_TRUE(comm.all_reduce(data, op, algorithm).ok());
        for (const float value : data) EXPECT_TRUE(std::isnan(value)) << to_string(op);
      }
    });
  }
}

}  // namespace
}  // namespace dlaunch::testing
