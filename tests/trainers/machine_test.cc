// What a run needs of its machine.
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/core/flat_parameters.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/models/model.h"
#include "runtime/base/json_reader.h"
#include "runtime/base/usable_cores.h"
#include "tests/support/processor.h"
#include "trainers/training/machine.h"
#include "trainers/training/trainer_parts.h"

namespace dlaunch {
namespace {

using ::testing::HasSubstr;

TEST(Machine, IsReadFromTheSystem) {
  JobEnvironment job;
  job.store_address = "of dlaunch";
  job.local_world_size = 3;
  job.local_cores = 8;
  const Machine machine = read_machine(job);
  EXPECT_EQ(machine.ranks, 3);
  EXPECT_EQ(machine.cores, 8);
  EXPECT_GE(machine.threads, 1);
  EXPECT_GT(machine.memory, std::size_t{1} << 20);
}

// OpenMP may have bound this thread: see the ctest entry of that name.
TEST(Machine, HasAllCoresThatAProgramWithoutDlaunchMayUse) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(::sched_getaffinity(::getppid(), sizeof set, &set), 0);
  EXPECT_EQ(read_machine({}).cores, cores_with_time(CPU_COUNT(&set), cpu_quota()));
}

TEST(Machine, HasNoMoreThreadsThanCoresUnlessItIsTold) {
  const int before = omp_get_max_threads();
  const char* const told = std::getenv("OMP_NUM_THREADS");  // NOLINT(concurrency-mt-unsafe)
  const std::string text = told == nullptr ? "" : told;
  JobEnvironment job;
  job.store_address = "of dlaunch";
  job.local_cores = 1;
  omp_set_num_threads(3);
  ::setenv("OMP_NUM_THREADS", "3", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(read_machine(job).threads, 3);
  ::unsetenv("OMP_NUM_THREADS");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(read_machine(job).threads, 1);
  use_threads(read_machine(job));
  EXPECT_EQ(omp_get_max_threads(), 1);
  omp_set_num_threads(before);
  if (told != nullptr)
    ::setenv("OMP_NUM_THREADS", text.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
}

TEST(Machine, WarnsOfMoreThreadsThanCores) {
  EXPECT_EQ(warn_of_threads({.ranks = 2, .cores = 4, .threads = 2}), "");
  EXPECT_EQ(warn_of_threads({.ranks = 3, .cores = 4, .threads = 2}),
            "3 ranks x 2 threads on 4 cores: set OMP_NUM_THREADS to 1 at most");
  EXPECT_EQ(warn_of_threads({.ranks = 1, .cores = 1, .threads = 2}),
            "1 rank x 2 threads on 1 core: set OMP_NUM_THREADS to 1 at most");
}

TEST(Machine, SaysSoWhereCoresAreIdleThatAreNoHalvesOfOthers) {
  EXPECT_EQ(
      remark_on_idle_cores({.ranks = 2, .cores = 16, .threads = 1}),
      "14 of 16 cores are idle with 2 ranks x 1 thread: more ranks, or OMP_NUM_THREADS=8, would "
      "use them");
  EXPECT_EQ(remark_on_idle_cores({.ranks = 8, .cores = 16, .threads = 1}), "");
  EXPECT_EQ(remark_on_idle_cores({.ranks = 2, .cores = 16, .threads = 3}), "");
  EXPECT_EQ(remark_on_idle_cores({.ranks = 4, .cores = 2, .threads = 1}), "");
}

TEST(MemoryNeed, IsWhatBackwardNeedsAtItsLargestLayer) {
  const auto backend = nn::make_cpu_backend();
  nn::Generator generator(1);
  nn::ModelOptions options;
  options.num_classes = 10;
  const auto network = nn::make_model("small_cnn", options, *backend, generator, nullptr);
  const MemoryNeed need = least_memory(*network, {1, 32, 32, 3}, DType::kF32, 100, 4);
  // At the second convolution: both inputs, its output's gradient and its input's.
  const double images = 32 * 32 * 3, between = 30 * 30 * 32, output = 28 * 28 * 32;
  EXPECT_EQ(need.activations, 100 * 4 * (images + between + output + between));
  EXPECT_EQ(need.batches, 5 * 100 * 4 * 32 * 32 * 3);
  EXPECT_EQ(need.parameters, 2 * 4 * static_cast<double>(network->parameter_count()));
  const MemoryNeed half = least_memory(*network, {1, 32, 32, 3}, DType::kBF16, 100, 4);
  EXPECT_EQ(half.activations, need.activations / 2);
}

// What would fit must never be refused, and what would not seldom gets through.
TEST(MemoryNeed, IsLittleLessThanAStepTakes) {
  constexpr std::int64_t kImages = 16;
  const nn::Shape image{1, 32, 32, 3};
  for (const char* name : {"small_cnn", "resnet20", "resnet_bag_of_tricks", "airbench94"}) {
    SCOPED_TRACE(name);
    const auto backend = nn::make_cpu_backend();
    nn::Generator generator(1);
    const auto network = nn::make_model(name, {}, *backend, generator, nullptr);
    const nn::FlatParameters parameters = nn::flatten_parameters(*network);
    double taken = 0;
    for (int step = 0; step < 2; ++step) {  // the first one also makes what stays
      const std::size_t before = backend->memory().in_use;
      backend->reset_peak();
      const auto images = nn::Tensor::zeros(*backend, {kImages, 32, 32, 3});
      const std::vector<std::int32_t> labels(kImages);
      nn::backward(cross_entropy((*network)(images), std::span<const std::int32_t>(labels)));
      taken = static_cast<double>(backend->memory().peak - before);
    }
    const double need = least_memory(*network, image, DType::kF32, kImages, 1).activations;
    EXPECT_LE(need, taken);
    // Convolutions of processors without AVX2 take as much memory again to work in.
    if (testing::has_avx2()) {
      EXPECT_GE(need, 0.7 * taken);
    }
  }
}

// In evaluation memory is that of a layer, not of all.
TEST(ValidationBatch, TakesNoMoreMemoryThanTrainingOrLittle) {
  constexpr std::int64_t kSide = 160;
  const nn::Shape image{1, kSide, kSide, 3};
  const auto backend = nn::make_cpu_backend();
  nn::Generator generator(1);
  const auto network =
      nn::make_model("resnet20", {.height = kSide, .width = kSide}, *backend, generator, nullptr);
  const double each = least_evaluation_memory(*network, image, DType::kF32);
  EXPECT_EQ(each, 4 * 2 * 16 * kSide * kSide);
  {
    constexpr std::int64_t kImages = 4;
    const nn::NoGradGuard no_grad;
    network->eval();
    const std::size_t before = backend->memory().in_use;
    backend->reset_peak();
    (void)(*network)(nn::Tensor::zeros(*backend, {kImages, kSide, kSide, 3}));
    const auto taken = static_cast<double>(backend->memory().peak - before);
    EXPECT_LE(kImages * each, taken);
    EXPECT_GE(kImages * each, 0.5 * taken);
  }
  TrainConfig config;
  const auto batch = [&](const nn::Shape& one, std::size_t in_training) {
    return affordable_validation(config, *network, *backend,
                                 {.image = one, .in_training = in_training}, {})
        .batch_size;
  };
  EXPECT_EQ(batch({1, 32, 32, 3}, 2), 250U);
  EXPECT_EQ(batch(image, 2), static_cast<std::size_t>((128 << 20) / each));
  EXPECT_EQ(batch(image, 128), 250U);
  EXPECT_EQ(batch(image, 0), batch(image, 2));  // nothing is trained
  config.epochs = 2;
  config.data.resize = {{1, 24},
                        {2, 32}};  // smaller images are trained on, so that less may be used
  EXPECT_LT(batch(image, 128), 250U);
  config.data.resize.back().until_epochs = 1.5;
  EXPECT_EQ(batch(image, 128), 250U);
  config.validation_batch_size = 1000;
  EXPECT_EQ(batch(image, 2), 1000U);
}

TEST(ValidationBatch, IsRefusedByTheNameOfItsKeyIfTheMachineHasLess) {
  const auto backend = nn::make_cpu_backend();
  nn::Generator generator(1);
  const auto network = nn::make_model("small_cnn", {}, *backend, generator, nullptr);
  TrainConfig config;
  config.validation_batch_size = 20000;  // of which there are 10000
  const ValidationImages images{.image = {1, 32, 32, 3}, .in_training = 1, .at_most = 10000};
  const auto with = [&](std::size_t memory) {
    return affordable_validation(config, *network, *backend, images,
                                 {.ranks = 2, .memory = memory});
  };
  EXPECT_EQ(with(5ULL << 30).batch_size, 20000U);
  EXPECT_NO_THROW(refuse_unless_validation_fits({.share_bytes = 1e9, .together_bytes = 1e9},
                                                {.ranks = 2, .memory = 4'000'000'000}));
  EXPECT_THROW(refuse_unless_validation_fits({.share_bytes = 1e9, .together_bytes = 2e9},
                                             {.ranks = 2, .memory = 4'000'000'000}),
               ConfigError);
  try {
    with(3ULL << 30);
    ADD_FAILURE() << "no exception";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("train.validation_batch_size: a rank needs at least 2.0 GiB to validate "
                          "10000 images at a time, 2 of them on this machine 4.1 GiB, which has"));
  }
}

TEST(MemoryNeed, IsRefusedWithTheNumbersIfTheMachineHasLess) {
  constexpr double kGiB = 1U << 30;
  const MemoryNeed need{.parameters = 1 * kGiB, .activations = 6 * kGiB, .batches = 3 * kGiB};
  EXPECT_NO_THROW(refuse_unless_it_fits("train.batch_size_per_rank", need, 9,
                                        {.ranks = 2, .memory = 20ULL << 30}));
  EXPECT_NO_THROW(
      refuse_unless_it_fits("train.batch_size_per_rank", need, 9, {.ranks = 2, .memory = 0}));
  try {
    refuse_unless_it_fits("train.batch_size_per_rank", need, 9,
                          {.ranks = 2, .memory = 19ULL << 30});
    ADD_FAILURE() << "no exception";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a rank needs at least 10.0 GiB for micro-batches of 9 "
                                        "images (activations with gradients 6.0, images made in "
                                        "advance 3.0, parameters with gradients 1.0), 2 of them on "
                                        "this machine 20.0 GiB, which has 19.0;"));
  }
}

}  // namespace
}  // namespace dlaunch
