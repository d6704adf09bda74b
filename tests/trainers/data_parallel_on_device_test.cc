// DataParallel on a network in the memory of a (fake) GPU does what it does in the host's memory.
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/core/error.h"
#include "nn/core/module.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/layers/linear.h"
#include "nn/layers/sync_batch_norm.h"
#include "nn/optim/sgd.h"
#include "nn/parallel/data_parallel.h"
#include "runtime/device/device_communicator.h"
#include "tests/support/thread_ranks.h"
#include "tests/trainers/fake_gpu.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kFeatures = 6;
constexpr std::int64_t kClasses = 4;

/// A GPU of one rank, with the communicator that knows its memory.
struct Gpu {
  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>(FakeDeviceOptions());
  std::unique_ptr<nn::Backend> backend = make_fake_gpu(device);
  std::unique_ptr<DeviceWorld> world;  // goes before the stream that it uses

  explicit Gpu(Communicator& host)
      : world(make_device_communicator(
                  host.split(0, host.rank()).value_or_throw(), device,
                  {.path = DevicePathKind::kIpc,
                   .memory = MemoryPathOptions{.slot_bytes = std::size_t{1} << 16}})
                  .value_or_throw()) {}
};

struct Learned {
  std::vector<float> parameters;
  std::vector<double> figures;  // of all steps
};

/// A few steps on shares of different sizes, of which one is empty in each.
Learned learn(nn::Backend& backend, Communicator& world, double clip_norm, unsigned seed) {
  nn::Generator weights(seed, static_cast<std::uint64_t>(world.rank()));
  nn::Sequential network;
  network.append(std::make_unique<nn::Linear>(backend, kFeatures, 8, weights));
  network.append(std::make_unique<nn::SyncBatchNorm>(backend, 8, world));
  network.append(std::make_unique<nn::Linear>(backend, 8, kClasses, weights));
  nn::DataParallel parallel(network, world, {.clip_norm = clip_norm});
  nn::Sgd optimizer(parallel.parameters(), {.momentum = 0.9});
  Learned learned;
  for (int step = 0; step < 5; ++step) {
    const std::int64_t share = (world.rank() + step) % world.size() * 3;
    std::mt19937 random(seed + static_cast<unsigned>(step * world.size() + world.rank()));
    std::normal_distribution<float> normal;
    std::vector<float> features(static_cast<std::size_t>(share * kFeatures));
    for (float& value : features) value = normal(random);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(share));
    for (std::int32_t& label : labels) label = static_cast<std::int32_t>(random() % kClasses);
    const nn::Tensor images = nn::Tensor::from(backend, {share, kFeatures}, features);
    parallel.backward(cross_entropy(network(images), labels), static_cast<double>(share));
    const nn::DataParallelReport report = parallel.step(optimizer, 0.1);
    learned.figures.insert(learned.figures.end(),
                           {report.samples, report.loss, report.gradient_norm});
  }
  learned.parameters = parallel.parameters().values.host_values<float>();
  return learned;
}

class DataParallelOnDevice : public ::testing::TestWithParam<double> {};  // clip_norm

TEST_P(DataParallelOnDevice, LearnsWhatItLearnsInTheHostsMemory) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  for (const int ranks : {1, 2, 3}) {
    run_threads_as_ranks(ranks, [&](Communicator& world) {
      const auto host = nn::make_cpu_backend();
      const Learned expected = learn(*host, world, GetParam(), seed);
      Gpu gpu(world);
      const Learned learned = learn(*gpu.backend, *gpu.world, GetParam(), seed);
      using ::testing::DoubleNear;
      using ::testing::FloatNear;
      using ::testing::Pointwise;
      EXPECT_THAT(learned.figures, Pointwise(DoubleNear(1e-5), expected.figures));
      EXPECT_THAT(learned.parameters, Pointwise(FloatNear(1e-5F), expected.parameters));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Clipping, DataParallelOnDevice, ::testing::Values(0, 0.2));

std::string refusal(nn::Backend& backend, Communicator& world, nn::DataParallelOptions options) {
  nn::Generator weights(1, 1);
  nn::Linear network(backend, kFeatures, kClasses, weights);
  try {
    const nn::DataParallel parallel(network, world, std::move(options));
  } catch (const nn::Error& error) {
    return error.what();
  }
  return "it was not refused";
}

TEST(DataParallelOnDevice, RefusesWhatItCannotDoThere) {
  run_threads_as_ranks(1, [](Communicator& world) {
    Gpu gpu(world);
    EXPECT_THAT(refusal(*gpu.backend, world, {}), HasSubstr("make_cuda_communicator"));
    EXPECT_THAT(
        refusal(*gpu.backend, *gpu.world, {.gradients = {.exchange = GradientExchange::kBFloat16}}),
        HasSubstr("not compressed"));
    EXPECT_EQ(refusal(*gpu.backend, *gpu.world, {}), "it was not refused");
  });
}

}  // namespace
}  // namespace dlaunch::testing
