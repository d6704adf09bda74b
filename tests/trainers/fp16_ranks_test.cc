// Training in f16 on several ranks, on the CUDA backend: on GPUs in builds that can, else with its
// kernels on the CPU (tests/cuda_on_host). The reference is training in f32 on the CPU.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nn/cpu/cpu_backend.h"
#include "nn/cuda/cuda_backend.h"
#include "nn/parallel/tensor_memory.h"
#include "runtime/base/job_environment.h"
#include "runtime/base/temporary_folder.h"
#include "runtime/cuda/cuda_communicator.h"
#include "runtime/cuda/environment.h"
#include "tests/support/distributed_test.h"
#include "trainers/training/loss_scaler.h"
#include "trainers/training/trainer.h"

namespace dlaunch::testing {
namespace {

using nlohmann::json;

constexpr std::size_t kSteps = 6;
constexpr double kScale = 65536;  // fits gradients of images of usual size
constexpr float kInfinity = std::numeric_limits<float>::infinity();
[[maybe_unused]] const bool kAskedOfCuda = (set_gpu_environment(), true);

/// A GPU, with the ranks that `world` has.
struct Gpu {
  explicit Gpu(Communicator& world)
      : backend(nn::make_cuda_backend({.device = device_of_rank()})),
        communicator(make_cuda_communicator(world.split(0, world.rank()).value_or_throw(),
                                            backend->device(), backend->stream())
                         .value_or_throw()) {}
  static int device_of_rank() {
    return read_job_environment().value_or_throw().local_rank % nn::cuda_devices();
  }

  std::unique_ptr<nn::CudaBackend> backend;
  std::unique_ptr<Communicator> communicator;
};

struct Outcome {
  std::vector<float> parameters;
  // By step; zeros if the loss is not scaled:
  std::vector<double> skipped;  // until then
  std::vector<double> scales;
};

/// On all ranks, from rank 0's metrics.
void read_steps(Communicator& world, const std::string& metrics, Outcome& outcome) {
  outcome.skipped.resize(kSteps);
  outcome.scales.resize(kSteps);
  std::size_t step = 0;
  std::ifstream file(metrics);  // others have none
  for (std::string line; std::getline(file, line);) {
    const json parsed = json::parse(line);
    if (parsed.at("event") != "step") continue;
    outcome.skipped.at(step) = parsed.value("skipped_steps", 0.0);
    outcome.scales.at(step++) = parsed.value("loss_scale", 0.0);
  }
  throw_if_error(world.broadcast(outcome.skipped, 0));
  throw_if_error(world.broadcast(outcome.scales, 0));
}

/// An epoch of 6 steps of 12 samples. `changes` may differ between ranks, where training allows it.
Outcome train(Communicator& world, bool on_gpu, const json& changes) {
  const TemporaryFolder folder;
  json wanted = {
      {"data",
       {{"set", "synthetic"},
        {"synthetic",
         {{"classes", 3}, {"train_size", 72}, {"test_size", 6}, {"height", 8}, {"width", 8}}}}},
      {"model", {{"name", "resnet20"}}},
      {"optimizer", {{"learning_rate", 0.001}, {"momentum", 0}}},
      {"train", {{"epochs", 1}, {"global_batch_size", 12}, {"cuda_graphs", false}}},
      {"output",
       {{"directory", folder.path()},
        {"progress", "none"},
        {"tensorboard", ""},
        {"log_every", 1}}}};
  wanted.merge_patch(changes);
  const TrainConfig config = read_train_config(wanted, "test");
  std::optional<Gpu> gpu;
  if (on_gpu) gpu.emplace(world);
  const auto cpu = on_gpu ? nullptr : nn::make_cpu_backend();
  std::ostringstream screen;
  Outcome outcome;
  {
    Trainer trainer(
        config, {.world = gpu ? *gpu->communicator : world, .backend = gpu ? *gpu->backend : *cpu},
        {.out = screen}, {});
    (void)trainer.run();
    outcome.parameters = trainer.parameters().values.host_values<float>();
  }
  read_steps(world, folder.path() + "/metrics.jsonl", outcome);
  return outcome;
}

json standing_still(json changes) {
  changes["optimizer"]["learning_rate"] = 0;
  return changes;
}

/// A schedule whose rate is 0 in the steps that were skipped, else 1.
json standing_in(const std::vector<double>& skipped) {
  std::vector<double> epochs;
  std::vector<double> factors;
  double before = 0;
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    const double factor = skipped[i] > std::exchange(before, skipped[i]) ? 0 : 1;
    for (const double edge : {-0.25, 0.25}) {
      epochs.push_back(std::max(0.0, (static_cast<double>(i) + edge) / kSteps));
      factors.push_back(factor);
    }
  }
  return {{"name", "piecewise_linear"}, {"point_epochs", epochs}, {"point_factors", factors}};
}

json fp16(double scale, json changes) {
  changes["train"]["compute_type"] = "fp16";
  changes["train"]["loss_scale"] = scale;
  return changes;
}

/// How far two ways from the same beginning have come apart, of the way.
double distance(const std::vector<float>& a, const std::vector<float>& b,
                const std::vector<float>& beginning) {
  double apart = 0;
  double way = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    way += std::pow(static_cast<double>(b[i]) - static_cast<double>(beginning[i]), 2);
  }
  return std::sqrt(apart / way);
}

void expect_the_same_on_all_ranks(Communicator& world, const std::vector<float>& values) {
  std::vector<float> of_first = values;
  throw_if_error(world.broadcast(of_first, 0));
  EXPECT_EQ(values, of_first);
}

class Fp16Ranks : public DistributedTestWith<const char*> {
 protected:
  void SetUp() override {
    if (const std::string why = nn::why_no_cuda(); !why.empty())
      GTEST_SKIP() << "all tests on CUDA are skipped: " << why;
  }
  json changes() const { return {{"parallel", {{"gradients", std::get<1>(GetParam())}}}}; }
  bool sharded() const { return std::string(std::get<1>(GetParam())) == "shard"; }
};

// The gradients of a network with ReLUs in f16 are less exact than its numbers: inputs near 0 are
// on their other side. A sum over ranks with a wrong weight would be off by half or more.
constexpr double kOfRounding = 0.2;
// Several networks one after the other, on a busy machine.
const RunOptions kSeveralTrainings{.deadline = std::chrono::seconds(200)};

TEST_P(Fp16Ranks, TrainAsF32OnTheCpu) {
  run(
      [how = changes()](Communicator& world) {
        const std::vector<float> beginning = train(world, false, standing_still(how)).parameters;
        const Outcome exact = train(world, false, how);
        const Outcome rounded = train(world, true, fp16(kScale, how));
        expect_the_same_on_all_ranks(world, rounded.parameters);
        EXPECT_EQ(rounded.skipped.back(), 0);
        EXPECT_LT(distance(rounded.parameters, exact.parameters, beginning), kOfRounding);
      },
      kSeveralTrainings);
}

// Sums over ranks are made in another order, and round otherwise.
TEST_P(Fp16Ranks, MakeTheStepOfOneRankWithAllImages) {
  run(
      [how = changes()](Communicator& world) {
        json one_step = how;
        one_step["train"]["max_steps"] = 1;
        const std::vector<float> beginning =
            train(world, false, standing_still(one_step)).parameters;
        const Outcome all = train(world, true, fp16(kScale, one_step));
        const auto alone = world.split(world.rank(), 0).value_or_throw();
        const Outcome one = train(*alone, true, fp16(kScale, one_step));
        EXPECT_LT(distance(all.parameters, one.parameters, beginning), kOfRounding);
      },
      kSeveralTrainings);
}

// Batch norm makes much of small images, and of their gradients, which do not fit into f16 then.
// The reference does not move in steps that are skipped.
TEST_P(Fp16Ranks, AllSkipStepsThatOverflowOnOne) {
  run(
      [how = changes()](Communicator& world) {
        json usual = how;
        usual["train"]["sync_batch_norm"] = false;
        EXPECT_EQ(train(world, true, fp16(kScale, usual)).skipped.back(), 0);
        json own = usual;
        if (world.rank() == world.size() - 1) own["data"]["std"] = {2, 2, 2};
        const Outcome outcome = train(world, true, fp16(kScale, own));
        expect_the_same_on_all_ranks(world, outcome.parameters);
        ASSERT_EQ(outcome.skipped.size(), kSteps);
        EXPECT_EQ(outcome.skipped.front(), 1);
        EXPECT_LT(outcome.skipped.back(), kSteps);
        for (std::size_t i = 0; i < kSteps; ++i)
          EXPECT_EQ(outcome.scales[i], kScale * std::pow(0.5, outcome.skipped[i])) << i;

        const std::vector<float> beginning = train(world, false, standing_still(own)).parameters;
        own["schedule"] = standing_in(outcome.skipped);
        const Outcome exact = train(world, false, own);
        EXPECT_LT(distance(outcome.parameters, exact.parameters, beginning), kOfRounding);
      },
      kSeveralTrainings);
}

TEST_P(Fp16Ranks, AgreeOnTheScaleWhicheverOfThemOverflows) {
  run([is_sharded = sharded()](Communicator& world) {
    const Gpu gpu(world);
    LossScaler scaler(*gpu.backend, *gpu.communicator,
                      {.enabled = true, .scale = 1024, .growth_steps = 2}, is_sharded);
    constexpr std::size_t kCount = 1001;
    const auto gradients = nn::Tensor::zeros(*gpu.backend, {kCount});
    double scale = 1024;
    int good = 0;
    int skipped = 0;
    for (int step = 0; step < 4 * world.size(); ++step) {
      const int bad = step % 4;  // from rank world.size() on, nobody's
      std::vector<float> values(kCount, static_cast<float>(scale));
      if (world.rank() == bad) values[static_cast<std::size_t>(step)] = kInfinity;
      gradients.set_values<float>(values);
      scaler.prepare(12, 2);
      EXPECT_FLOAT_EQ(scaler.begin_step().item(),
                      static_cast<float>(scale * 2 * world.size() / 12));
      if (!is_sharded) throw_if_error(gpu.communicator->all_reduce(memory_of(gradients)));
      scaler.unscale(kCount, gradients.data<float>());
      scaler.decide();
      // Each of them gave the scale, of which each micro-batch of each rank has its part.
      EXPECT_FLOAT_EQ(gradients.host_values<float>().back(),
                      is_sharded ? 0.5F / static_cast<float>(world.size()) : 0.5F);
      const bool skips = bad < world.size();
      EXPECT_EQ(scaler.skip().host_values<float>()[0], skips ? 1 : 0);
      skipped += skips ? 1 : 0;
      good = skips ? 0 : good + 1;
      if (skips) scale /= 2;
      if (good == 2) scale *= 2;
      if (good == 2) good = 0;
      EXPECT_EQ(scaler.read().scale, scale) << "step " << step << ", rank " << world.rank();
      EXPECT_EQ(scaler.read().skipped_steps, skipped);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Fp16Ranks,
                         ::testing::Combine(::testing::Values(2, 3),
                                            ::testing::Values("all_reduce", "shard")));

}  // namespace
}  // namespace dlaunch::testing
