// DataParallel against plain gradient descent on all samples together, in double.
#include "nn/parallel/data_parallel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/core/error.h"
#include "nn/core/module.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/layers/batch_norm.h"
#include "nn/layers/linear.h"
#include "nn/optim/adam.h"
#include "nn/optim/sgd.h"
#include "nn/parallel/flat_ranges.h"
#include "tests/support/distributed_test.h"

namespace dlaunch::nn {
namespace {

using dlaunch::testing::run_on_ranks;
using dlaunch::testing::run_seed;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using ::testing::Values;

constexpr std::int64_t kFeatures = 5;
constexpr std::int64_t kClasses = 3;
constexpr double kLearningRate = 0.3;
constexpr double kTolerance = 1e-5;

/// Samples of all ranks.
struct Samples {
  std::vector<float> features;  // [N, kFeatures]
  std::vector<std::int32_t> labels;

  Samples(std::int64_t count, Generator& random) {
    for (std::int64_t i = 0; i < count * kFeatures; ++i) features.push_back(random.normal());
    for (std::int64_t i = 0; i < count; ++i)
      labels.push_back(static_cast<std::int32_t>(random.below(kClasses)));
  }
};

/// Logistic regression in double: weight [kClasses, kFeatures], then bias [kClasses].
struct Reference {
  std::vector<double> parameters;
  // Of the last step:
  double loss = 0;
  std::vector<double> gradient;
  double gradient_norm = 0;

  void step(const Samples& samples, double clip_norm) {
    const std::size_t count = samples.labels.size();
    gradient.assign(parameters.size(), 0);
    loss = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::span<const float> x(samples.features.data() + i * kFeatures, kFeatures);
      const auto label = static_cast<std::size_t>(samples.labels[i]);
      const std::vector<double> odds = exponentials(x);
      double sum = 0;
      for (const double odd : odds) sum += odd;
      loss -= std::log(odds[label] / sum) / static_cast<double>(count);
      for (std::size_t k = 0; k < kClasses; ++k) {
        const double d = (odds[k] / sum - (k == label ? 1 : 0)) / static_cast<double>(count);
        for (std::size_t f = 0; f < kFeatures; ++f) gradient[k * kFeatures + f] += d * x[f];
        gradient[kClasses * kFeatures + k] += d;
      }
    }
    double squares = 0;
    for (const double g : gradient) squares += g * g;
    gradient_norm = std::sqrt(squares);
    const double scale = clip_norm > 0 ? std::min(1.0, clip_norm / (gradient_norm + 1e-6)) : 1;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      parameters[i] -= kLearningRate * scale * gradient[i];
  }

 private:
  std::vector<double> exponentials(std::span<const float> x) const {
    std::vector<double> all;
    for (std::size_t k = 0; k < kClasses; ++k) {
      double logit = parameters[kClasses * kFeatures + k];
      for (std::size_t f = 0; f < kFeatures; ++f) logit += parameters[k * kFeatures + f] * x[f];
      all.push_back(std::exp(logit));
    }
    return all;
  }
};

/// A rank's network, which begins with weights of its own.
struct Rank {
  std::unique_ptr<Backend> backend = make_cpu_backend();
  Generator random;
  Linear network;

  explicit Rank(const Communicator& world)
      : random(run_seed(), 7 + static_cast<std::uint64_t>(world.rank())),
        network(*backend, kFeatures, kClasses, random) {}

  std::vector<double> parameters() {
    std::vector<double> all;
    for (const NamedParameter& each : network.parameters()) {
      const std::vector<float> values = each.tensor.host_values<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  /// backward() with samples [begin, end), perhaps none.
  void learn(DataParallel& parallel, const Samples& samples, std::int64_t begin, std::int64_t end,
             bool last = true) {
    const auto part = std::span(samples.features)
                          .subspan(static_cast<std::size_t>(begin * kFeatures),
                                   static_cast<std::size_t>((end - begin) * kFeatures));
    const auto labels =
        std::span(samples.labels)
            .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const Tensor images = Tensor::from(*backend, {end - begin, kFeatures},
                                       std::vector<float>(part.begin(), part.end()));
    parallel.backward(cross_entropy(network(images), labels), static_cast<double>(end - begin),
                      last);
  }
};

class DataParallelOf : public dlaunch::testing::DistributedTestWith<double> {};  // clip_norm

// Shares differ in size, some are empty, and every second one comes in two micro-batches.
TEST_P(DataParallelOf, UnequalSharesTrainsAsOneProcessWithAllSamples) {
  run([clip_norm = std::get<1>(GetParam())](Communicator& world) {
    Rank rank(world);
    DataParallel parallel(rank.network, world, {.clip_norm = clip_norm});
    Sgd optimizer(parallel.parameters(), {});
    Reference reference{.parameters = rank.parameters()};
    Generator random(run_seed());
    for (int step = 0; step < 4; ++step) {
      std::vector<std::int64_t> bounds{0};
      for (int other = 0; other < world.size(); ++other)
        bounds.push_back(bounds.back() + (other == step ? 0 : random.below(9)));
      if (bounds.back() == 0) bounds.back() = 1;
      const Samples samples(bounds.back(), random);
      const std::int64_t begin = bounds[static_cast<std::size_t>(world.rank())];
      const std::int64_t end = bounds[static_cast<std::size_t>(world.rank()) + 1];
      const std::int64_t middle = world.rank() % 2 == 0 ? begin : begin + (end - begin) / 2;
      if (world.rank() % 2 == 1) rank.learn(parallel, samples, begin, middle, false);
      rank.learn(parallel, samples, middle, end);
      const DataParallelReport report = parallel.step(optimizer, kLearningRate);
      reference.step(samples, clip_norm);
      EXPECT_EQ(report.samples, static_cast<double>(bounds.back()));
      EXPECT_NEAR(report.loss, reference.loss, kTolerance);
      EXPECT_NEAR(report.gradient_norm, clip_norm > 0 ? reference.gradient_norm : 0, kTolerance);
      EXPECT_THAT(rank.parameters(),
                  ::testing::Pointwise(::testing::DoubleNear(kTolerance), reference.parameters));
    }
    EXPECT_TRUE(parallel.unused().empty());
  });
}

// The second bound is below most norms of these gradients.
INSTANTIATE_TEST_SUITE_P(Worlds, DataParallelOf,
                         ::testing::Combine(Values(1, 2, 3, 5), Values(0, 0.2)));

TEST(DataParallel, ShowsMeanGradientsToItsUserWhoMayChangeThemBeforeTheyAreClipped) {
  run_on_ranks(3, [](Communicator& world) {
    constexpr std::array<std::int64_t, 4> kBounds{0, 3, 7, 7};
    Rank rank(world);
    std::vector<float> seen;
    const auto halve = [&](Tensor& gradients) {
      seen = gradients.host_values<float>();
      std::vector<float> halves = seen;
      for (float& value : halves) value /= 2;
      gradients.set_values<float>(halves);
    };
    for (const double clip_norm : {0.0, 0.1}) {
      DataParallel parallel(rank.network, world,
                            {.clip_norm = clip_norm, .on_mean_gradients = halve});
      Sgd optimizer(parallel.parameters(), {});
      Reference reference{.parameters = rank.parameters()};
      const std::vector<double> before = reference.parameters;
      Generator random(run_seed());
      const Samples samples(7, random);
      const auto share = static_cast<std::size_t>(world.rank());
      rank.learn(parallel, samples, kBounds[share], kBounds[share + 1]);
      const DataParallelReport report = parallel.step(optimizer, kLearningRate);
      reference.step(samples, 0);
      std::vector<float> gradient;
      for (const FlatView& view : parallel.parameters().views) {
        const auto first = seen.begin() + view.offset;
        gradient.insert(gradient.end(), first, first + view.count);
      }
      EXPECT_THAT(gradient,
                  ::testing::Pointwise(::testing::FloatNear(kTolerance), reference.gradient));
      const double norm = reference.gradient_norm / 2;
      const double scale = clip_norm > 0 ? std::min(1.0, clip_norm / (norm + 1e-6)) : 1;
      EXPECT_NEAR(report.gradient_norm, clip_norm > 0 ? norm : 0, kTolerance);
      const std::vector<double> after = rank.parameters();
      for (std::size_t i = 0; i < before.size(); ++i)
        EXPECT_NEAR(after[i], before[i] - kLearningRate * scale * reference.gradient[i] / 2,
                    kTolerance);
      // Without samples there are none.
      seen.clear();
      rank.learn(parallel, samples, 0, 0);
      EXPECT_EQ(parallel.step(optimizer, kLearningRate).samples, 0);
      EXPECT_TRUE(seen.empty());
    }
  });
}

TEST(DataParallel, LeavesParametersAsTheyAreIfNobodyHasSamples) {
  run_on_ranks(2, [](Communicator& world) {
    Rank rank(world);
    DataParallel parallel(rank.network, world, {.clip_norm = 1});
    Sgd optimizer(parallel.parameters(), {.momentum = 0.9});
    Generator random(run_seed());
    const Samples samples(4, random);
    rank.learn(parallel, samples, 0, 4);
    EXPECT_EQ(parallel.step(optimizer, kLearningRate).samples, 8);
    const std::vector<double> before = rank.parameters();
    rank.learn(parallel, samples, 0, 0);
    const DataParallelReport report = parallel.step(optimizer, kLearningRate);
    EXPECT_EQ(report.samples, 0);
    EXPECT_EQ(report.loss, 0);
    EXPECT_EQ(report.gradient_norm, 0);
    EXPECT_EQ(rank.parameters(), before);
  });
}

// Adam's steps depend on their number.
TEST(DataParallel, DoesNotCountAStepInWhichNobodyHasSamples) {
  run_on_ranks(2, [](Communicator& world) {
    std::vector<std::vector<double>> results;
    for (const bool pauses : {false, true}) {
      Rank rank(world);
      DataParallel parallel(rank.network, world);
      Adam optimizer(parallel.parameters(), {});
      Generator random(run_seed());
      const Samples samples(4, random);
      for (int step = 0; step < 2; ++step) {
        rank.learn(parallel, samples, 0, 4);
        (void)parallel.step(optimizer, kLearningRate);
        if (!pauses) continue;
        rank.learn(parallel, samples, 0, 0);
        EXPECT_EQ(parallel.step(optimizer, kLearningRate).samples, 0);
      }
      results.push_back(rank.parameters());
    }
    EXPECT_EQ(results[0], results[1]);
  });
}

// As with a penalty on the weights.
TEST(DataParallel, DropsTheGradientsOfAStepWithoutSamples) {
  run_on_ranks(2, [](Communicator& world) {
    Rank rank(world);
    DataParallel parallel(rank.network, world);
    Sgd optimizer(parallel.parameters(), {});
    Generator random(run_seed());
    const Samples samples(4, random);
    const Tensor images = Tensor::from(*rank.backend, {4, kFeatures}, samples.features);
    parallel.backward(cross_entropy(rank.network(images), samples.labels), 0);
    EXPECT_EQ(parallel.step(optimizer, kLearningRate).samples, 0);
    for (const float gradient : parallel.parameters().gradients.host_values<float>())
      EXPECT_EQ(gradient, 0);
  });
}

TEST(DataParallel, LeavesTheCommunicatorAsItIsAfterAWholeStep) {
  run_on_ranks(2, [](Communicator& world) {
    Rank rank(world);
    {
      DataParallel parallel(rank.network, world);
      Sgd optimizer(parallel.parameters(), {});
      Generator random(run_seed());
      const Samples samples(2, random);
      rank.learn(parallel, samples, 0, 2);
      EXPECT_EQ(parallel.step(optimizer, kLearningRate).samples, 4);
    }
    EXPECT_TRUE(world.barrier().ok());
  });
}

TEST(DataParallel, BeginsWithTheRunningStatisticsOfRankZero) {
  run_on_ranks(3, [](Communicator& world) {
    const auto backend = make_cpu_backend();
    BatchNorm network(*backend, 2);
    const float own[] = {1.0F + static_cast<float>(world.rank()), 5};
    for (const NamedBuffer& buffer : network.buffers())
      buffer.tensor.set_values(std::span<const float>(own));
    const DataParallel parallel(network, world);
    ASSERT_EQ(network.buffers().size(), 2U);
    for (const NamedBuffer& buffer : network.buffers())
      EXPECT_THAT(buffer.tensor.host_values<float>(), ElementsAre(1, 5)) << buffer.name;
  });
}

TEST(DataParallel, RefusesCallsThatMakeNoSense) {
  run_on_ranks(1, [](Communicator& world) {
    Rank rank(world);
    EXPECT_THROW(DataParallel(rank.network, world, {.clip_norm = -1}), Error);
    EXPECT_THROW(
        DataParallel(rank.network, world, {.gradients = {.exchange = GradientExchange::kShard}}),
        Error);
    DataParallel parallel(rank.network, world);
    Sgd optimizer(parallel.parameters(), {});
    EXPECT_THROW((void)parallel.step(optimizer, kLearningRate), Error);
    Generator random(run_seed());
    const Samples samples(2, random);
    rank.learn(parallel, samples, 0, 1, false);
    EXPECT_THROW((void)parallel.step(optimizer, kLearningRate), Error);
    rank.learn(parallel, samples, 1, 2);
    EXPECT_THROW(rank.learn(parallel, samples, 0, 1), Error);
    EXPECT_EQ(parallel.step(optimizer, kLearningRate).samples, 2);
    const Tensor images = Tensor::zeros(*rank.backend, {1, kFeatures});
    EXPECT_THROW(
        parallel.backward(cross_entropy(rank.network(images), std::vector<std::int32_t>{0}), -1),
        Error);
  });
}

TEST(DataParallel, RefusesANetworkThatIsInAnotherOneByNow) {
  run_on_ranks(2, [](Communicator& world) {
    Rank rank(world);
    Generator random(run_seed());
    const Samples samples(2, random);
    DataParallel first(rank.network, world);
    const DataParallel second(rank.network, world);
    EXPECT_THAT([&] { rank.learn(first, samples, 0, 2); },
                ThrowsMessage<Error>(
                    HasSubstr("weight has been moved by another DataParallel or "
                              "flatten_parameters(); a network is in one of them at a time")));
  });
}

TEST(DataParallel, RefusesAnOptimizerOfOtherParameters) {
  run_on_ranks(2, [](Communicator& world) {
    Rank rank(world);
    Rank other(world);
    Generator random(run_seed());
    const Samples samples(2, random);
    Sgd before(flatten_parameters(rank.network), {});
    Sgd of_another(flatten_parameters(other.network), {});
    DataParallel parallel(rank.network, world);
    Sgd own(parallel.parameters(), {});
    rank.learn(parallel, samples, 0, 2);
    for (Sgd* optimizer : {&before, &of_another})
      EXPECT_THAT(
          [&] { (void)parallel.step(*optimizer, kLearningRate); },
          ThrowsMessage<Error>(HasSubstr("is one of other parameters; make it of parameters()")));
    EXPECT_EQ(parallel.step(own, kLearningRate).samples, 4);  // the step is still to be ended
  });
}

TEST(DataParallel, RefusesNetworksThatDifferBetweenRanks) {
  run_on_ranks(2, [](Communicator& world) {
    const auto backend = make_cpu_backend();
    Generator random(run_seed());
    Linear network(*backend, kFeatures, 20 * (1 + world.rank()), random);
    try {
      const DataParallel parallel(network, world);
      ADD_FAILURE() << "was not refused";
    } catch (const StatusError& error) {
      EXPECT_EQ(error.status().code(), StatusCode::kMismatch) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("DataParallel: "));
    }
  });
}

// As arrays they are of the same size.
TEST(DataParallel, RefusesNetworksWhoseShapesDifferBetweenRanks) {
  run_on_ranks(3, [](Communicator& world) {
    const auto backend = make_cpu_backend();
    Generator random(run_seed());
    const bool other = world.rank() == 2;
    Sequential network;
    network.append(std::make_unique<Linear>(*backend, 4, other ? 4 : 8, random));
    network.append(std::make_unique<Linear>(*backend, other ? 4 : 8, other ? 8 : 2, random));
    try {
      const DataParallel parallel(network, world);
      ADD_FAILURE() << "was not refused";
    } catch (const StatusError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("the network of rank 2 is another one than that of rank 0: it has "
                            "0.weight [4, 4] f32 in the place of 0.weight [8, 4] f32"));
    }
    EXPECT_TRUE(world.barrier().ok());  // nothing has failed
  });
}

TEST(DataParallel, RefusesNetworksWithOtherRunningStatistics) {
  run_on_ranks(2, [](Communicator& world) {
    const auto backend = make_cpu_backend();
    BatchNorm network(*backend, 2, {.track_running_stats = world.rank() == 0});
    try {
      const DataParallel parallel(network, world);
      ADD_FAILURE() << "was not refused";
    } catch (const StatusError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("it has nothing more in the place of running_mean [2] f32"));
    }
  });
}

TEST(DataParallel, RefusesALossOfSeveralElements) {
  run_on_ranks(1, [](Communicator& world) {
    Rank rank(world);
    DataParallel parallel(rank.network, world);
    try {
      parallel.backward(rank.network(Tensor::zeros(*rank.backend, {2, kFeatures})), 2);
      ADD_FAILURE() << "was not refused";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "DataParallel: a loss is one element, not [2, 3]");
    }
  });
}

TEST(DataParallel, RefusesLearningRatesThatAreNone) {
  run_on_ranks(1, [](Communicator& world) {
    Rank rank(world);
    DataParallel parallel(rank.network, world);
    Sgd optimizer(parallel.parameters(), {});
    Generator random(run_seed());
    const Samples samples(2, random);
    rank.learn(parallel, samples, 0, 2);
    for (const double rate : {-1.0, std::nan(""), HUGE_VAL})
      EXPECT_THROW((void)parallel.step(optimizer, rate), Error) << rate;
    EXPECT_EQ(parallel.step(optimizer, 0).samples, 2);
  });
}

/// Takes three steps with the other ranks. Rank 1 throws in the first one, after its last
/// micro-batch or before it, and is the one that the others name, for the reason given.
void leave_step_on_rank_1(Communicator& world, bool after_backward, const std::string& reason) {
  Rank rank(world);
  Generator random(run_seed());
  const Samples samples(2, random);
  const auto steps = [&] {
    DataParallel parallel(rank.network, world);
    Sgd optimizer(parallel.parameters(), {});
    for (int i = 0; i < 3; ++i) {  // what rank 1 has sent already may serve for the first
      if (world.rank() == 1 && !after_backward) throw std::runtime_error("out of cheese");
      rank.learn(parallel, samples, 0, 2);
      if (world.rank() == 1) throw std::runtime_error("out of cheese");
      (void)parallel.step(optimizer, kLearningRate);
    }
  };
  if (world.rank() == 1) {
    EXPECT_THROW(steps(), std::runtime_error);
    EXPECT_EQ(world.barrier().code(), StatusCode::kAborted);
    return;
  }
  try {
    steps();
    ADD_FAILURE() << "there was nobody to take the step with";
  } catch (const StatusError& error) {
    EXPECT_EQ(error.status().code(), StatusCode::kAborted) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("rank 1 has left DataParallel " + reason));
  }
}

TEST(DataParallel, EndsTheOthersStepIfItsOwnIsLeft) {
  run_on_ranks(
      3, [](Communicator& world) { leave_step_on_rank_1(world, true, "in the middle of a step"); });
}

TEST(DataParallel, EndsTheOthersStepIfItsOwnIsLeftWithoutAnException) {
  run_on_ranks(2, [](Communicator& world) {
    Rank rank(world);
    Generator random(run_seed());
    const Samples samples(2, random);
    if (world.rank() == 1) {
      {
        DataParallel parallel(rank.network, world);
        rank.learn(parallel, samples, 0, 2);
      }
      EXPECT_EQ(world.barrier().code(), StatusCode::kAborted);
      return;
    }
    const auto steps = [&] {
      DataParallel parallel(rank.network, world);
      Sgd optimizer(parallel.parameters(), {});
      for (int i = 0; i < 3; ++i) {  // what rank 1 has sent already may serve for the first
        rank.learn(parallel, samples, 0, 2);
        (void)parallel.step(optimizer, kLearningRate);
      }
    };
    EXPECT_THAT(steps, ThrowsMessage<StatusError>(
                           HasSubstr("rank 1 has left DataParallel in the middle of a step")));
  });
}

TEST(DataParallel, EndsTheOthersStepIfAnExceptionComesBeforeItsOwn) {
  run_on_ranks(2, [](Communicator& world) {
    leave_step_on_rank_1(world, false, "because of an exception");
  });
}

// As in a destructor that evaluates while an exception is on its way.
TEST(DataParallel, IsNotEndedByAnExceptionThatWasOnItsWayBefore) {
  run_on_ranks(1, [](Communicator& world) {
    Rank rank(world);
    struct Trains {
      Rank& rank;
      Communicator& world;
      ~Trains() { const DataParallel parallel(rank.network, world); }
    };
    try {
      const Trains trains{rank, world};
      throw std::runtime_error("out of cheese");
    } catch (const std::runtime_error&) {
      EXPECT_TRUE(world.barrier().ok());
    }
  });
}

TEST(DataParallel, LeavesTheNetworkItsParametersWhenTheCommunicatorIsGone) {
  run_on_ranks(2, [](Communicator& world) {
    Rank rank(world);
    Generator random(run_seed());
    const Samples samples(2, random);
    std::vector<double> trained;
    {
      const std::unique_ptr<Communicator> part = world.split(0, world.rank()).value_or_throw();
      DataParallel parallel(rank.network, *part);
      Sgd optimizer(parallel.parameters(), {});
      rank.learn(parallel, samples, 0, 2);
      EXPECT_EQ(parallel.step(optimizer, kLearningRate).samples, 4);
      trained = rank.parameters();
    }
    EXPECT_EQ(rank.parameters(), trained);
    // And can be trained again.
    DataParallel parallel(rank.network, world);
    Sgd optimizer(parallel.parameters(), {});
    rank.learn(parallel, samples, 0, 2);
    EXPECT_EQ(parallel.step(optimizer, kLearningRate).samples, 4);
    EXPECT_NE(rank.parameters(), trained);
  });
}

TEST(DataParallel, LeavesTheNetworkAloneThatAnotherHasTakenOver) {
  run_on_ranks(2, [](Communicator& world) {
    Rank rank(world);
    Generator random(run_seed());
    const Samples samples(4, random);
    auto parallel = std::make_unique<DataParallel>(rank.network, world);
    parallel = std::make_unique<DataParallel>(rank.network, world);  // the first goes afterwards
    Sgd optimizer(parallel->parameters(), {});
    Reference reference{.parameters = rank.parameters()};
    rank.learn(*parallel, samples, 0, 4);
    EXPECT_EQ(parallel->step(optimizer, kLearningRate).samples, 8);
    reference.step(samples, 0);
    EXPECT_THAT(rank.parameters(),
                ::testing::Pointwise(::testing::DoubleNear(kTolerance), reference.parameters));
  });
}

TEST(DataParallel, GoesOnAfterALossThatHasNoGraph) {
  run_on_ranks(1, [](Communicator& world) {
    Rank rank(world);
    DataParallel parallel(rank.network, world);
    Sgd optimizer(parallel.parameters(), {});
    Generator random(run_seed());
    const Samples samples(2, random);
    {
      const NoGradGuard guard;
      EXPECT_THROW(rank.learn(parallel, samples, 0, 2), Error);
    }
    rank.learn(parallel, samples, 0, 2);
    EXPECT_EQ(parallel.step(optimizer, kLearningRate).samples, 2);
  });
}

TEST(GradientRanges, AreThoseOfTheParametersAndFoundByThem) {
  const auto backend = make_cpu_backend();
  Generator random(run_seed());
  Linear network(*backend, kFeatures, kClasses, random);
  const FlatParameters parameters = flatten_parameters(network);
  const std::vector<GradientRange> ranges = gradient_ranges(parameters);
  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].count, kClasses * kFeatures);
  EXPECT_EQ(ranges[0].rows, kClasses);  // what PowerSGD takes it for
  EXPECT_EQ(ranges[1].offset, 16U);
  EXPECT_EQ(ranges[1].count, kClasses);
  EXPECT_EQ(ranges[1].rows, 1U);

  const RangeIndex index(parameters);
  EXPECT_EQ(index.find(network.parameters()[1].tensor), 1U);
  EXPECT_EQ(index.find(Tensor::zeros(*backend, {2})), std::nullopt);
  EXPECT_EQ(index.find(Tensor::zeros(*backend, {2}, DType::kBF16)), std::nullopt);
}

}  // namespace
}  // namespace dlaunch::nn
