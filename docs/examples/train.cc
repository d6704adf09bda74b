// A network of one's own, trained data-parallel: each rank draws its own points of the plane, and
// the network learns whether a point's coordinates have the same sign.
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include <dlaunch/nn/core/autograd.h>
#include <dlaunch/nn/cpu/cpu_backend.h>
#include <dlaunch/nn/layers/linear.h>
#include <dlaunch/nn/layers/sync_batch_norm.h>
#include <dlaunch/nn/optim/sgd.h>
#include <dlaunch/nn/parallel/data_parallel.h>
#include <dlaunch/runtime/base/run_rank.h>
#include <dlaunch/runtime/comm/communicator.h>

namespace nn = dlaunch::nn;

namespace {

constexpr std::int64_t kClasses = 2;
constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kBatch = 64;  // of each rank
constexpr int kSteps = 200;
constexpr double kLearningRate = 0.05;

struct Batch {
  nn::Tensor points;  // [N, 2]
  std::vector<std::int32_t> labels;
};

Batch draw(nn::Backend& backend, std::int64_t size, nn::Generator& generator) {
  std::vector<float> points;
  Batch batch;
  for (std::int64_t i = 0; i < size; ++i) {
    const float x = generator.uniform(-1, 1);
    const float y = generator.uniform(-1, 1);
    points.insert(points.end(), {x, y});
    batch.labels.push_back((x > 0) == (y > 0) ? 1 : 0);
  }
  batch.points = nn::Tensor::from(backend, {size, 2}, points);
  return batch;
}

// Over new points of all ranks.
double accuracy(nn::Module& network, const Batch& batch, dlaunch::Communicator& world) {
  const nn::NoGradGuard no_gradients;
  network.eval();
  const std::vector<float> scores = network(batch.points).host_values<float>();
  std::array<std::int64_t, 2> right_and_all{};
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    const int guess = scores[2 * i + 1] > scores[2 * i] ? 1 : 0;
    right_and_all[0] += guess == batch.labels[i] ? 1 : 0;
    right_and_all[1] += 1;
  }
  dlaunch::throw_if_error(world.all_reduce(right_and_all));
  return static_cast<double>(right_and_all[0]) / static_cast<double>(right_and_all[1]);
}

int train(dlaunch::Communicator& world) {
  const auto backend = nn::make_cpu_backend();
  nn::Generator generator(1, static_cast<std::uint64_t>(world.rank()));

  nn::Sequential network;
  network.append("fc1", std::make_unique<nn::Linear>(*backend, 2, kHidden, generator));
  network.append("bn1", std::make_unique<nn::SyncBatchNorm>(
                            *backend, kHidden, world,
                            nn::BatchNormOptions{.activation = nn::NormActivation::kRelu}, "bn1"));
  network.append("fc2", std::make_unique<nn::Linear>(*backend, kHidden, kClasses, generator));

  // All ranks begin with the weights of rank 0.
  nn::DataParallel parallel(network, world);
  nn::Sgd optimizer(parallel.parameters(), {.momentum = 0.9});
  for (int step = 0; step < kSteps; ++step) {
    const Batch batch = draw(*backend, kBatch, generator);
    const nn::Tensor loss = nn::cross_entropy(network(batch.points), batch.labels);  // a sum
    // Gradients are on their way to the other ranks as soon as they are final.
    parallel.backward(loss, kBatch);
    const nn::DataParallelReport report = parallel.step(optimizer, kLearningRate);
    if (world.rank() == 0 && step % 50 == 0) std::printf("step %d: loss %.3f\n", step, report.loss);
  }
  const double right = accuracy(network, draw(*backend, 1000, generator), world);
  if (world.rank() == 0) std::printf("accuracy %.3f\n", right);
  return dlaunch::kExitOk;
}

}  // namespace

int main() {
  return dlaunch::run_rank("train", [] {
    const auto world = dlaunch::connect_world().value_or_throw();
    return train(*world);
  });
}
