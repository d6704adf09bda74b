// Buffers of networks that are trained data-parallel.
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/cpu/cpu_backend.h"
#include "nn/layers/linear.h"
#include "nn/parallel/data_parallel.h"
#include "tests/support/distributed_test.h"

namespace dlaunch::nn {
namespace {

/// With buffers of other types than parameters have.
class Counting : public Linear {
 public:
  Counting(Backend& backend, Generator& random, int rank)
      : Linear(backend, 5, 3, random),
        steps(add_buffer("steps", of<std::int64_t>(backend, {7 + rank, -rank}))),
        sum(add_buffer("sum", of<double>(backend, {0.1 + rank}))) {}

  const Tensor steps;
  const Tensor sum;

 private:
  template <typename T>
  static Tensor of(Backend& backend, const std::vector<T>& values) {
    return Tensor::from<T>(backend, {static_cast<std::int64_t>(values.size())}, values);
  }
};

TEST(NetworkBuffers, AreThoseOfRank0OnAllRanksWhateverTheirType) {
  dlaunch::testing::run_on_ranks(3, [](Communicator& world) {
    const auto backend = make_cpu_backend();
    Generator random(1);
    Counting network(*backend, random, world.rank());
    const DataParallel parallel(network, world);
    EXPECT_THAT(network.steps.host_values<std::int64_t>(), ::testing::ElementsAre(7, 0));
    EXPECT_THAT(network.sum.host_values<double>(), ::testing::ElementsAre(0.1));
  });
}

}  // namespace
}  // namespace dlaunch::nn
