#include "trainers/training/running_statistics.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/checkpoint/safetensors.h"
#include "nn/core/autograd.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/layers/batch_norm.h"
#include "runtime/base/temporary_folder.h"
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

/// A batch norm whose statistics are other ones on each rank.
std::unique_ptr<nn::Module> network_of(nn::Backend& backend, int rank) {
  auto network = std::make_unique<nn::BatchNorm>(backend, kStatistics);
  std::vector<float> means, variances;
  for (int c = 0; c < kStatistics; ++c) {
    means.push_back(value_on(rank, 0, c));
    variances.push_back(static_cast<float>(1 + c + rank));
  }
  network->buffers()[0].tensor.set_values<float>(means);
  network->buffers()[1].tensor.set_values<float>(variances);
  return network;
}

std::vector<float> statistics_in(const nn::Module& network) {
  std::vector<float> all = network.buffers()[0].tensor.host_values<float>();
  const auto variances = network.buffers()[1].tensor.host_values<float>();
  all.insert(all.end(), variances.begin(), variances.end());
  return all;
}

void load(RankStatistics& statistics, Communicator& world, const std::string& path) {
  if (world.rank() == 0) {
    const nn::SafetensorsFile file(path);
    statistics.prepare(file);
    nn::load_tensors(file, statistics.tensors());
  }
  statistics.scatter();
}

TEST(RankStatistics, AreBackAfterAMergeAndGoThroughACheckpoint) {
  for (const int ranks : {2, 3, 5}) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/statistics.safetensors";
    run_threads_as_ranks(ranks, [&](Communicator& world) {
      const auto backend = nn::make_cpu_backend();
      const auto network = network_of(*backend, world.rank());
      const std::vector<float> own = statistics_in(*network);
      RankStatistics statistics(*backend, world, *network, false);
      statistics.merge();
      const std::vector<float> merged = statistics_in(*network);
      EXPECT_NE(merged, own);
      statistics.merge();
      EXPECT_EQ(statistics_in(*network), merged);
      statistics.gather();
      EXPECT_EQ(statistics.tensors().size(), world.rank() == 0 ? 1U : 0U);
      if (world.rank() == 0) {
        nn::Snapshot snapshot;
        snapshot.take(statistics.tensors());
        snapshot.write(path, {});
      }
      statistics.restore();
      EXPECT_EQ(statistics_in(*network), own);

      const auto resumed = network_of(*backend, 7);
      RankStatistics read(*backend, world, *resumed, false);
      load(read, world, path);
      EXPECT_EQ(statistics_in(*resumed), own);
    });
    // On another number of ranks all begin with what the network has.
    run_threads_as_ranks(ranks + 1, [&](Communicator& world) {
      const auto backend = nn::make_cpu_backend();
      const auto resumed = network_of(*backend, 7);
      const std::vector<float> before = statistics_in(*resumed);
      RankStatistics read(*backend, world, *resumed, false);
      load(read, world, path);
      EXPECT_EQ(statistics_in(*resumed), before);
    });
  }
}

TEST(RankStatistics, OfAnotherNetworkAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/statistics.safetensors";
  run_threads_as_ranks(1, [&](Communicator& world) {
    const auto backend = nn::make_cpu_backend();
    nn::Snapshot snapshot;
    snapshot.take(std::vector<nn::NamedTensor>{
        {"running_statistics.of_ranks", nn::Tensor::zeros(*backend, {2, 5})}});
    snapshot.write(path, {});
    const auto network = network_of(*backend, 0);
    RankStatistics statistics(*backend, world, *network, false);
    try {
      statistics.prepare(nn::SafetensorsFile(path));
      FAIL() << "taken";
    } catch (const nn::DataError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("expected [ranks, 6]"));
    }
  });
}

TEST(RankStatistics, AreAllTheSameWhereTheyAreSynchronised) {
  run_threads_as_ranks(2, [&](Communicator& world) {
    const auto backend = nn::make_cpu_backend();
    const auto network = network_of(*backend, world.rank());
    const std::vector<float> own = statistics_in(*network);
    RankStatistics statistics(*backend, world, *network, true);
    statistics.merge();
    EXPECT_EQ(statistics_in(*network), own);
    statistics.gather();
    EXPECT_TRUE(statistics.tensors().empty());
  });
}

}  // namespace
}  // namespace dlaunch
