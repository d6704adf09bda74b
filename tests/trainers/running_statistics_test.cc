#include "trainers/training/running_statistics.h"

#include <vector>

#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/layers/batch_norm.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch {
namespace {

using testing::run_threads_as_ranks;

/// Value `channel` of image `image` on a rank: ranks differ in mean and in deviation.
float value_on(int rank, int image, int channel) {
  const double spread = (1 + rank) * ((image * 5 + channel) % 8 - 3.5);
  return static_cast<float>(100 * channel + 10 * rank * rank + spread);
}

constexpr int kImagesOfARank = 8, kStatistics = 3;

TEST(RunningStatistics, BecomeThoseOfTheImagesOfAllRanks) {
  for (const int ranks : {1, 2, 3, 5})
    run_threads_as_ranks(ranks, [&](Communicator& world) {
      const auto backend = nn::make_cpu_backend();
      nn::Sequential network;
      // A momentum of 1: the statistics are those of the one batch that comes.
      network.append("bn1", std::make_unique<nn::BatchNorm>(*backend, kStatistics,
                                                            nn::BatchNormOptions{.momentum = 1}));
      std::vector<float> values;
      for (int image = 0; image < kImagesOfARank; ++image)
        for (int c = 0; c < kStatistics; ++c) values.push_back(value_on(world.rank(), image, c));
      {
        const nn::NoGradGuard no_grad;
        network.forward(nn::Tensor::from<float>(*backend, {kImagesOfARank, kStatistics}, values));
      }
      merge_running_statistics(world, network);

      const auto means = network.buffers()[0].tensor.host_values<float>();
      const auto variances = network.buffers()[1].tensor.host_values<float>();
      for (int c = 0; c < kStatistics; ++c) {
        double mean = 0, within = 0, between = 0;
        std::vector<double> rank_means;
        for (int rank = 0; rank < ranks; ++rank) {
          double sum = 0, squares = 0;
          for (int image = 0; image < kImagesOfARank; ++image) sum += value_on(rank, image, c);
          rank_means.push_back(sum / kImagesOfARank);
          for (int image = 0; image < kImagesOfARank; ++image) {
            const double distance = value_on(rank, image, c) - sum / kImagesOfARank;
            squares += distance * distance;
          }
          mean += sum / kImagesOfARank / ranks;
          within += squares / (kImagesOfARank - 1) / ranks;  // running variances are unbiased
        }
        for (const double one : rank_means) between += (one - mean) * (one - mean) / ranks;
        const auto channel = static_cast<std::size_t>(c);
        EXPECT_NEAR(means[channel], mean, 1e-4);
        EXPECT_NEAR(variances[channel], within + between, 1e-5 * (within + between));
      }
    });
}

}  // namespace
}  // namespace dlaunch
