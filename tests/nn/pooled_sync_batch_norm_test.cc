// SyncBatchNorm that pools its input first, on real ranks: every rank makes the same global batch
// from the run's seed and takes its share.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/layers/sync_batch_norm.h"
#include "runtime/comm/counting_communicator.h"
#include "tests/nn/batch_norm_reference.h"
#include "tests/nn/reference.h"
#include "tests/support/distributed_test.h"

namespace dlaunch::nn {
namespace {

using dlaunch::testing::run_on_ranks;
using reference::Array;

struct PooledSplit {
  std::vector<std::int64_t> samples;  // of each rank
  Shape image;                        // [1, H, W, C]
  Pool2dOptions pool;
};

/// A rank's share of an array of all samples.
Array share_of(const Array& whole, const std::vector<std::int64_t>& samples, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  const auto before = std::accumulate(samples.begin(), samples.begin() + rank, std::int64_t{0});
  Array share(whole.shape.with(0, samples[own]));
  const std::int64_t sample = whole.shape.with(0, 1).size();
  std::copy_n(whole.values.begin() + before * sample, share.shape.size(), share.values.begin());
  return share;
}

/// The first of a window's greatest elements gets its gradient; windows are beside each other.
Array unpooled(const Array& x, const Array& y, const std::vector<double>& dy, std::int64_t kernel) {
  Array dx(x.shape);
  for (std::int64_t n = 0; n < y.shape[0]; ++n)
    for (std::int64_t r = 0; r < y.shape[1]; ++r)
      for (std::int64_t c = 0; c < y.shape[2]; ++c)
        for (std::int64_t k = 0; k < y.shape[3]; ++k) {
          std::int64_t place = 0;
          const auto row = [&] { return r * kernel + place / kernel; };
          const auto column = [&] { return c * kernel + place % kernel; };
          while (x.at(n, row(), column(), k) != y.at(n, r, c, k)) ++place;
          const std::int64_t i = ((n * y.shape[1] + r) * y.shape[2] + c) * y.shape[3] + k;
          dx.at(n, row(), column(), k) = dy[static_cast<std::size_t>(i)];
        }
  return dx;
}

class PooledSyncBatchNorm : public ::testing::TestWithParam<PooledSplit> {};

TEST_P(PooledSyncBatchNorm, EqualsPoolingAndNormalisingTheWholeBatch) {
  const std::vector<std::int64_t>& samples = GetParam().samples;
  const Shape& image = GetParam().image;
  const Pool2dOptions& pool = GetParam().pool;
  const std::int64_t all = std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  run_on_ranks(static_cast<int>(samples.size()), [&](Communicator& world) {
    const auto backend = make_cpu_backend();
    CountingCommunicator counting(world);
    SyncBatchNorm layer(*backend, image[3], counting, {.pool = pool}, "group1_norm");
    std::mt19937_64 random(dlaunch::testing::run_seed());
    BatchNormReference expected{.channels = static_cast<std::size_t>(image[3])};
    give_values(layer, expected, random);
    const Array x = reference::random_array(image.with(0, all), random);
    Array y = reference::max_pool2d(x, pool.kernel, pool.kernel, 0);
    const Array dy = reference::random_array(y.shape, random);
    expected.forward(y.values);
    expected.backward(y.values, dy.values);
    const Array dx = unpooled(x, y, expected.dx, pool.kernel);
    y.values = expected.y;

    Tensor input = reference::to_tensor(*backend, share_of(x, samples, world.rank()));
    input.set_requires_grad(true);
    const Tensor output = layer.forward(input);
    const std::uint64_t each_way = world.size() > 1 ? 1 : 0;
    EXPECT_EQ(counting.collectives(), each_way);
    EXPECT_EQ(counting.collective_bytes(), each_way * (2 * expected.channels + 1) * sizeof(double));
    backward(output,
             {.gradient = reference::to_tensor(*backend, share_of(dy, samples, world.rank()))});
    EXPECT_EQ(counting.collectives(), 2 * each_way);  // this rank's share may be empty
    reference::expect_close(output, share_of(y, samples, world.rank()), 1e-5, "output");
    reference::expect_close(input.grad(), share_of(dx, samples, world.rank()), 2e-5, "gradient");
  });
}

INSTANTIATE_TEST_SUITE_P(
    Splits, PooledSyncBatchNorm,
    ::testing::Values(PooledSplit{{4, 4}, {1, 6, 6, 16}, {2}},
                      PooledSplit{{5, 1, 3}, {1, 7, 5, 33}, {2}},      // borders
                      PooledSplit{{3, 0, 2, 4}, {1, 8, 11, 19}, {3}},  // an empty share
                      PooledSplit{{0, 7}, {1, 4, 4, 5}, {2}},          // not the first's
                      PooledSplit{{2}, {1, 9, 9, 7}, {4}}));

}  // namespace
}  // namespace dlaunch::nn
