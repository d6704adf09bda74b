// SyncBatchNorm on real ranks: every rank makes the same global batch from the run's seed, takes
// its share, and compares with plain batch normalisation of the whole batch in double.
#include "nn/layers/sync_batch_norm.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/core/autograd.h"
#include "nn/cpu/cpu_backend.h"
#include "nn/models/model.h"
#include "runtime/comm/counting_communicator.h"
#include "tests/nn/batch_norm_reference.h"
#include "tests/support/distributed_test.h"

namespace dlaunch::nn {
namespace {

using dlaunch::testing::run_on_ranks;

constexpr double kTolerance = 1e-5;

/// A global batch of rows x channels, cut into consecutive shares of whole samples.
struct Split {
  std::vector<std::int64_t> samples;  // of each rank
  std::int64_t pixels = 1;            // rows of each sample: 1, or H W of an image
  std::int64_t channels = 1;

  std::int64_t rows() const {
    return pixels * std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  }
  std::size_t size() const { return static_cast<std::size_t>(rows() * channels); }
  std::size_t begin(int rank) const {
    const auto before = std::accumulate(samples.begin(), samples.begin() + rank, std::int64_t{0});
    return static_cast<std::size_t>(before * pixels * channels);
  }
  std::size_t count(int rank) const {
    return static_cast<std::size_t>(samples[static_cast<std::size_t>(rank)] * pixels * channels);
  }
  /// [N, C], or [N, pixels, 1, C].
  Shape shape(int rank) const {
    const std::int64_t n = samples[static_cast<std::size_t>(rank)];
    return pixels == 1 ? Shape{n, channels} : Shape{n, pixels, 1, channels};
  }
  template <typename T>
  std::vector<T> share(const std::vector<T>& whole, int rank) const {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(begin(rank));
    return {first, first + static_cast<std::ptrdiff_t>(count(rank))};
  }
};

Split even_split(int workers, std::int64_t batch, std::int64_t pixels, std::int64_t channels) {
  return {.samples = std::vector<std::int64_t>(static_cast<std::size_t>(workers), batch / workers),
          .pixels = pixels,
          .channels = channels};
}

void expect_near(std::span<const float> actual, const std::vector<double>& expected,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], tolerance) << what << " at " << i;
  }
}

/// One rank's layer under test, with its collectives counted.
struct Rank {
  Rank(Communicator& world, std::int64_t channels, BatchNormOptions options = {})
      : world(world),
        counting(world),
        layer(*backend, channels, counting, options, "stem.bn1"),
        random(dlaunch::testing::run_seed()) {}

  /// Collectives that forward and backward each make: alone there is nobody to ask.
  std::uint64_t each_way() const { return world.size() > 1 ? 1 : 0; }
  /// This rank's share as a leaf.
  Tensor input(const Split& split, const std::vector<float>& whole) {
    Tensor x = Tensor::from(*backend, split.shape(world.rank()), split.share(whole, world.rank()));
    x.set_requires_grad(true);
    return x;
  }
  Tensor gradient(const Split& split, const std::vector<float>& whole) {
    return Tensor::from(*backend, split.shape(world.rank()), split.share(whole, world.rank()));
  }
  /// Forward and backward of the share; compares outputs and input gradients.
  void compare(const Split& split, const std::vector<float>& x, const std::vector<float>& dy,
               BatchNormReference reference) {
    reference.forward(in_double(x));
    // Few rows may happen to lie close together; gradients are then large, and so is their error.
    const double steepest =
        1 / std::sqrt(*std::min_element(reference.variance.begin(), reference.variance.end()));
    const double gradient_tolerance =
        split.rows() < 32 ? kTolerance * std::max(1.0, steepest) : kTolerance;
    reference.backward(in_double(x), in_double(dy));
    const Tensor in = input(split, x);
    const Tensor out = layer.forward(in);
    backward(out, {.gradient = gradient(split, dy)});
    expect_near(out.values<const float>(), split.share(reference.y, world.rank()), kTolerance,
                "output");
    expect_near(in.grad().values<const float>(), split.share(reference.dx, world.rank()),
                gradient_tolerance, "input gradient");
  }

  /// Gives the layer's parameters values, the same on all ranks, and tells the reference.
  void randomise(BatchNormReference& reference) {
    for (const NamedParameter& parameter : layer.parameters()) {
      const std::vector<float> values = normal_values(reference.channels, random, 0.5);
      std::copy(values.begin(), values.end(), parameter.tensor.values<float>().begin());
      (parameter.name == "weight" ? reference.gamma : reference.beta) = in_double(values);
    }
  }
  Tensor buffer(const std::string& name) const {
    const auto buffers = layer.buffers();
    return std::find_if(buffers.begin(), buffers.end(),
                        [&](const NamedBuffer& candidate) { return candidate.name == name; })
        ->tensor;
  }

  std::unique_ptr<Backend> backend = make_cpu_backend();
  Communicator& world;
  CountingCommunicator counting;
  SyncBatchNorm layer;
  std::mt19937_64 random;
};

/// The gradient of the sum of the outputs of the first half of the global batch.
std::vector<float> first_half(const Split& split) {
  std::vector<float> dy(split.size());
  std::fill_n(dy.begin(), dy.size() / 2, 1.0F);
  return dy;
}

class SyncBatchNormGrid : public dlaunch::testing::DistributedTestWith<int, int> {};

TEST_P(SyncBatchNormGrid, EqualsBatchNormOverTheWholeBatch) {
  const auto [workers, features, batch] = GetParam();
  const Split split = even_split(workers, batch, 1, features);
  run([&](Communicator& world) {
    Rank rank(world, split.channels, {.affine = false});
    rank.compare(split, normal_values(split.size(), rank.random), first_half(split),
                 {.channels = static_cast<std::size_t>(split.channels)});
  });
}

INSTANTIATE_TEST_SUITE_P(WorkersFeaturesBatch, SyncBatchNormGrid,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values(128, 256, 512, 1024),
                                            ::testing::Values(32, 64)));

struct SplitCase {
  std::string name;
  Split split;
};

void PrintTo(const SplitCase& split_case, std::ostream* out) {
  *out << split_case.name;
}

class SyncBatchNormSplits : public ::testing::TestWithParam<SplitCase> {};

TEST_P(SyncBatchNormSplits, EqualBatchNormOverTheWholeBatch) {
  const Split& split = GetParam().split;
  run_on_ranks(static_cast<int>(split.samples.size()), [&](Communicator& world) {
    Rank rank(world, split.channels);
    BatchNormReference reference{.channels = static_cast<std::size_t>(split.channels)};
    rank.randomise(reference);
    const std::vector<float> x = normal_values(split.size(), rank.random, 0.5, 2.0);
    const std::vector<float> dy = normal_values(split.size(), rank.random);
    rank.compare(split, x, dy, reference);
    EXPECT_EQ(rank.counting.collectives(), 2U);  // this rank's share may be empty
  });
}

INSTANTIATE_TEST_SUITE_P(
    Splits, SyncBatchNormSplits,
    ::testing::Values(
        SplitCase{"an image batch", {.samples = {4, 4}, .pixels = 35, .channels = 16}},
        SplitCase{"an image batch of odd channels",
                  {.samples = {5, 5, 5}, .pixels = 12, .channels = 67}},
        SplitCase{"one channel", {.samples = {8, 8}, .channels = 1}},
        SplitCase{"unequal shares", {.samples = {1, 17, 6, 40}, .channels = 129}},
        SplitCase{"unequal shares of images", {.samples = {7, 1, 2}, .pixels = 21, .channels = 33}},
        SplitCase{"single samples", {.samples = {1, 1, 1}, .channels = 31}},
        SplitCase{"an empty share", {.samples = {9, 0, 5}, .channels = 64}},
        SplitCase{"several empty shares in a row",
                  {.samples = {0, 0, 5, 0, 1, 0, 3}, .channels = 9}},
        SplitCase{"only one share of images, not the first's",
                  {.samples = {0, 0, 3, 0}, .pixels = 16, .channels = 19}}),
    [](const auto& instance) {
      std::string name = instance.param.name;
      std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
      return name;
    });

TEST_P(SyncBatchNormSplits, WithResidualAndReluEqualThoseOfTheWholeBatch) {
  const Split& split = GetParam().split;
  run_on_ranks(static_cast<int>(split.samples.size()), [&](Communicator& world) {
    Rank rank(world, split.channels, {.affine = false, .activation = NormActivation::kRelu});
    const std::vector<float> x = normal_values(split.size(), rank.random, 0.5, 2.0);
    const std::vector<float> added = normal_values(split.size(), rank.random);
    const std::vector<float> dy = normal_values(split.size(), rank.random);
    BatchNormReference reference{.channels = static_cast<std::size_t>(split.channels)};
    reference.forward(in_double(x));
    std::vector<double> output(x.size());
    std::vector<double> masked(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double sum = reference.y[i] + static_cast<double>(added[i]);
      output[i] = std::max(sum, 0.0);
      masked[i] = sum > 0 ? static_cast<double>(dy[i]) : 0;
    }
    reference.backward(in_double(x), masked);
    const double steepest =
        1 / std::sqrt(*std::min_element(reference.variance.begin(), reference.variance.end()));

    const Tensor in = rank.input(split, x);
    const Tensor residual = rank.input(split, added);
    const Tensor out = rank.layer.forward(in, residual);
    backward(out, {.gradient = rank.gradient(split, dy)});
    expect_near(out.values<const float>(), split.share(output, world.rank()), kTolerance, "output");
    expect_near(in.grad().values<const float>(), split.share(reference.dx, world.rank()),
                kTolerance * std::max(1.0, steepest), "input gradient");
    expect_near(residual.grad().values<const float>(), split.share(masked, world.rank()),
                kTolerance, "residual's gradient");
    EXPECT_EQ(rank.counting.collectives(), 2U);
  });
}

TEST_P(SyncBatchNormSplits, WithSmoothActivationsEqualThoseOfTheWholeBatch) {
  const Split& split = GetParam().split;
  run_on_ranks(static_cast<int>(split.samples.size()), [&](Communicator& world) {
    for (const auto activation :
         {NormActivation::kGelu, NormActivation::kSilu, NormActivation::kCelu}) {
      Rank rank(world, split.channels, {.activation = activation, .celu_alpha = kReferenceAlpha});
      BatchNormReference reference{.channels = static_cast<std::size_t>(split.channels)};
      rank.randomise(reference);
      const std::vector<float> x = normal_values(split.size(), rank.random, 0.5, 2.0);
      const std::vector<float> dy = normal_values(split.size(), rank.random);
      reference.forward(in_double(x));
      std::vector<double> output(x.size());
      std::vector<double> dz(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto at = activation_reference(activation, reference.y[i]);
        output[i] = at.value;
        dz[i] = static_cast<double>(dy[i]) * at.slope;
      }
      reference.backward(in_double(x), dz);
      const double steepest =
          1 / std::sqrt(*std::min_element(reference.variance.begin(), reference.variance.end()));

      const Tensor in = rank.input(split, x);
      const Tensor out = rank.layer.forward(in);
      backward(out, {.gradient = rank.gradient(split, dy)});
      expect_near(out.values<const float>(), split.share(output, world.rank()), kTolerance,
                  "output");
      expect_near(in.grad().values<const float>(), split.share(reference.dx, world.rank()),
                  kTolerance * std::max(1.0, steepest), "input gradient");
      EXPECT_EQ(rank.counting.collectives(), 2U);
    }
  });
}

/// Those rows of `whole` that are in a part of any rank's samples, in the order of ranks.
std::vector<double> rows_of_part(const Split& split, const std::vector<double>& whole,
                                 std::int64_t part, std::int64_t parts) {
  std::vector<double> rows;
  const std::int64_t sample = split.pixels * split.channels;
  for (std::size_t rank = 0; rank < split.samples.size(); ++rank) {
    const auto first =
        whole.begin() + static_cast<std::ptrdiff_t>(split.begin(static_cast<int>(rank)));
    rows.insert(rows.end(), first + split.samples[rank] * part / parts * sample,
                first + split.samples[rank] * (part + 1) / parts * sample);
  }
  return rows;
}

TEST_P(SyncBatchNormSplits, InPartsNormaliseTheSamePartOfAllRanks) {
  const Split& split = GetParam().split;
  constexpr std::int64_t kParts = 2;
  run_on_ranks(static_cast<int>(split.samples.size()), [&](Communicator& world) {
    Rank rank(world, split.channels, {.parts = kParts});
    BatchNormReference reference{.channels = static_cast<std::size_t>(split.channels)};
    rank.randomise(reference);
    const std::vector<float> x = normal_values(split.size(), rank.random, 0.5, 2.0);
    const std::vector<float> dy = normal_values(split.size(), rank.random);
    bool too_small = false;
    double steepest = 1;
    std::vector<double> output, gradient;  // of this rank
    for (std::int64_t part = 0; part < kParts; ++part) {
      const auto x_part = rows_of_part(split, in_double(x), part, kParts);
      too_small |= x_part.size() == reference.channels;
      if (x_part.size() <= reference.channels) continue;
      reference.forward(x_part);
      reference.backward(x_part, rows_of_part(split, in_double(dy), part, kParts));
      for (const double variance : reference.variance)
        steepest = std::max(steepest, 1 / std::sqrt(variance));
      // This rank's rows are behind those of the ranks before it.
      std::size_t begin = 0;
      const auto of_rank = [&](int which) {
        const std::int64_t n = split.samples[static_cast<std::size_t>(which)];
        return static_cast<std::size_t>((n * (part + 1) / kParts - n * part / kParts) *
                                        split.pixels * split.channels);
      };
      for (int before = 0; before < world.rank(); ++before) begin += of_rank(before);
      const std::size_t end = begin + of_rank(world.rank());
      const auto keep = [&](const std::vector<double>& from, std::vector<double>& to) {
        to.insert(to.end(), from.begin() + static_cast<std::ptrdiff_t>(begin),
                  from.begin() + static_cast<std::ptrdiff_t>(end));
      };
      keep(reference.y, output);
      keep(reference.dx, gradient);
    }
    const Tensor in = rank.input(split, x);
    if (too_small) {
      EXPECT_THROW(rank.layer.forward(in), Error);
      return;
    }
    const Tensor out = rank.layer.forward(in);
    backward(out, {.gradient = rank.gradient(split, dy)});
    expect_near(out.values<const float>(), output, kTolerance, "output");
    expect_near(in.grad().values<const float>(), gradient, kTolerance * steepest, "gradient");
    EXPECT_EQ(rank.counting.collectives(), 2U);
  });
}

class SyncBatchNormTest : public dlaunch::testing::DistributedTest {};

TEST_P(SyncBatchNormTest, MakesOneCollectiveEachWayAndNoneAloneOrInEvaluation) {
  const Split split = even_split(workers(), 16, 1, 24);
  run([&](Communicator& world) {
    Rank rank(world, split.channels);
    const std::vector<float> x = normal_values(split.size(), rank.random);
    const Tensor out = rank.layer.forward(rank.input(split, x));
    EXPECT_EQ(rank.counting.collectives(), rank.each_way());
    EXPECT_EQ(rank.counting.count(CollectiveKind::kAllReduce), rank.each_way());
    EXPECT_EQ(rank.counting.collective_bytes(),
              rank.each_way() * (std::size_t{2} * 24 + 1) * sizeof(double));
    rank.counting.reset();
    backward(out, {.gradient = rank.gradient(split, x)});
    EXPECT_EQ(rank.counting.collectives(), rank.each_way());
    EXPECT_EQ(rank.counting.count(CollectiveKind::kAllReduce), rank.each_way());
    EXPECT_EQ(rank.counting.collective_bytes(),
              rank.each_way() * std::size_t{2} * 24 * sizeof(double));
    rank.counting.reset();
    rank.layer.eval();
    backward(rank.layer.forward(rank.input(split, x)), {.gradient = rank.gradient(split, x)});
    EXPECT_EQ(rank.counting.collectives(), 0U);
    EXPECT_EQ(rank.counting.messages_sent() + rank.counting.messages_received(), 0U);
  });
}

TEST_P(SyncBatchNormTest, JoinsInBackwardWhoeverWantsTheInputsGradient) {
  const Split split = even_split(workers(), 8, 1, 6);
  run([&](Communicator& world) {
    Rank rank(world, split.channels);
    const std::vector<float> x = normal_values(split.size(), rank.random);
    Tensor in = rank.input(split, x);
    in.set_requires_grad(world.rank() == 0);
    backward(rank.layer.forward(in), {.gradient = rank.gradient(split, x)});
    EXPECT_EQ(rank.counting.collectives(), 2 * rank.each_way());
    EXPECT_EQ(in.grad().defined(), world.rank() == 0);
  });
}

TEST_P(SyncBatchNormTest, AccumulatesGradientsOverMicroBatches) {
  // Each micro-batch has its own statistics and its own collectives; the parameters' gradients
  // of all ranks and micro-batches add up to those of the whole.
  const Split split = even_split(workers(), 16, 1, 10);
  run([&](Communicator& world) {
    Rank rank(world, split.channels);
    BatchNormReference reference{.channels = 10};
    rank.randomise(reference);
    std::vector<double> dgamma(10);
    std::vector<double> dbeta(10);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      const std::vector<float> x = normal_values(split.size(), rank.random);
      const std::vector<float> dy = normal_values(split.size(), rank.random);
      rank.counting.reset();
      rank.compare(split, x, dy, reference);
      EXPECT_EQ(rank.counting.collectives(), 2 * rank.each_way());
      BatchNormReference whole = reference;
      whole.forward(in_double(x));
      whole.backward(in_double(x), in_double(dy));
      for (std::size_t c = 0; c < 10; ++c) {
        dgamma[c] += whole.dgamma[c];
        dbeta[c] += whole.dbeta[c];
      }
    }
    for (const NamedParameter& parameter : rank.layer.parameters()) {
      const auto local = parameter.tensor.grad().values<float>();
      ASSERT_TRUE(world.all_reduce(local).ok());
      expect_near(local, parameter.name == "weight" ? dgamma : dbeta, 5e-5, parameter.name);
    }
  });
}

TEST_P(SyncBatchNormTest, VarianceSurvivesAMeanFarAboveTheDeviation) {
  // The layer is fresh: its running mean, 0, says nothing about the mean to come.
  Split split{.samples = std::vector<std::int64_t>(static_cast<std::size_t>(workers())),
              .channels = 5};
  for (std::size_t r = 0; r < split.samples.size(); ++r) {
    split.samples[r] = 40 + 170 * static_cast<std::int64_t>(r);  // unequal
  }
  run([&](Communicator& world) {
    Rank rank(world, split.channels, {.momentum = 1.0, .affine = false});
    const std::vector<float> x = normal_values(split.size(), rank.random, 1000.0, 1.0);
    BatchNormReference reference{.channels = 5};
    reference.forward(in_double(x));
    rank.compare(split, x, first_half(split), reference);
    const auto count = static_cast<double>(split.rows());
    for (std::size_t c = 0; c < 5; ++c) {
      const double expected = reference.variance[c] * count / (count - 1);
      EXPECT_NEAR(rank.buffer("running_var").values<const float>()[c], expected, 1e-4 * expected);
      EXPECT_NEAR(rank.buffer("running_mean").values<const float>()[c], reference.mean[c], 1e-4);
    }
  });
}

TEST_P(SyncBatchNormTest, RunningStatisticsAreTheGlobalOnesAndEqualOnAllRanks) {
  const Split split = even_split(workers(), 12, 3, 7);
  run([&](Communicator& world) {
    Rank rank(world, split.channels, {.momentum = 0.25});
    std::vector<double> mean(7, 0.0);
    std::vector<double> variance(7, 1.0);
    for (int batch = 0; batch < 3; ++batch) {
      const std::vector<float> x = normal_values(split.size(), rank.random, -1.0, 0.7);
      rank.layer.forward(rank.input(split, x));
      BatchNormReference reference{.channels = 7};
      reference.forward(in_double(x));
      for (std::size_t c = 0; c < 7; ++c) {
        mean[c] = 0.75 * mean[c] + 0.25 * reference.mean[c];
        variance[c] = 0.75 * variance[c] + 0.25 * reference.variance[c] * 36 / 35;
      }
    }
    for (const NamedBuffer& running : rank.layer.buffers()) {
      const auto mine = running.tensor.values<const float>();
      expect_near(mine, running.name == "running_mean" ? mean : variance, 1e-5, running.name);
      std::vector<float> first(mine.begin(), mine.end());
      ASSERT_TRUE(world.broadcast(first, 0).ok());
      EXPECT_TRUE(std::equal(mine.begin(), mine.end(), first.begin()));  // to the bit
    }
  });
}

TEST_P(SyncBatchNormTest, DifferentRunningMeansDoNotSpoilTheBatchsStatistics) {
  const Split split = even_split(workers(), 8, 1, 3);
  run([&](Communicator& world) {
    Rank rank(world, split.channels);
    for (float& value : rank.buffer("running_mean").values<float>()) {
      value = static_cast<float>(100 * world.rank());
    }
    rank.compare(split, normal_values(split.size(), rank.random), first_half(split),
                 {.channels = 3});
  });
}

TEST_P(SyncBatchNormTest, RefusesASingleGlobalSampleOnAllRanks) {
  Split split{.samples = std::vector<std::int64_t>(static_cast<std::size_t>(workers())),
              .channels = 4};
  split.samples.back() = 1;
  run([&](Communicator& world) {
    Rank rank(world, split.channels);
    const std::vector<float> x = normal_values(split.size(), rank.random);
    EXPECT_THAT([&] { rank.layer.forward(rank.input(split, x)); },
                ::testing::ThrowsMessage<Error>(::testing::HasSubstr("SyncBatchNorm stem.bn1")));
    EXPECT_TRUE(world.barrier().ok());  // nobody was left waiting
  });
}

TEST_P(SyncBatchNormTest, AGlobalBatchOfNothingChangesNothing) {
  const Split split = even_split(workers(), 0, 1, 4);
  run([&](Communicator& world) {
    Rank rank(world, split.channels);
    backward(rank.layer.forward(rank.input(split, {})), {.gradient = rank.gradient(split, {})});
    EXPECT_EQ(rank.counting.collectives(), 2 * rank.each_way());
    for (std::size_t c = 0; c < 4; ++c) {
      EXPECT_EQ(rank.buffer("running_mean").values<const float>()[c], 0.0F);
      EXPECT_EQ(rank.buffer("running_var").values<const float>()[c], 1.0F);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Workers, SyncBatchNormTest, ::testing::Values(1, 2, 4));

// As where a batch is normalised among the ranks of a host, over TCP, and while a bucket of
// gradients of all ranks is on its way.
TEST(SyncBatchNorm, OfPartsOfAWorldEqualsThatOfTheirOwnBatches) {
  const auto body = [](Communicator& world) {
    const int color = world.rank() % 2;
    const auto part = world.split(color, world.rank()).value_or_throw();
    std::vector<float> bucket(std::size_t{1} << 20, 1.0F);
    Work work = world.start_all_reduce(bucket);
    const Split split{.samples = color == 0 ? std::vector<std::int64_t>{4, 0, 2}
                                            : std::vector<std::int64_t>{1, 5, 3},
                      .pixels = 6,
                      .channels = 17};
    Rank rank(*part, split.channels);
    if (color == 1) (void)normal_values(7, rank.random);  // other values from here on
    BatchNormReference reference{.channels = static_cast<std::size_t>(split.channels)};
    rank.randomise(reference);
    const std::vector<float> x = normal_values(split.size(), rank.random, 0.5, 2.0);
    rank.compare(split, x, normal_values(split.size(), rank.random), reference);
    const Status status = work.wait();
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(bucket, std::vector<float>(bucket.size(), 6.0F));
  };
  run_on_ranks(6, body, {.environment = {{"DLAUNCH_TRANSPORT", "tcp"}}});
}

TEST(SyncBatchNorm, NamesTheLayerWhenACollectiveFails) {
  run_on_ranks(2, [](Communicator& world) {
    Rank rank(world, 3);
    const Split split = even_split(2, 4, 1, 3);
    const std::vector<float> x = normal_values(split.size(), rank.random);
    const Tensor out = rank.layer.forward(rank.input(split, x));
    if (world.rank() == 1) return;  // leaves while rank 0 still needs it
    EXPECT_THAT([&] { backward(out, {.gradient = rank.gradient(split, x)}); },
                ::testing::ThrowsMessage<StatusError>(
                    ::testing::StartsWith("SyncBatchNorm stem.bn1 backward: ")));
  });
}

TEST(GhostParts, AreOfTheBatchOfAllRanks) {
  for (const int ranks : {1, 2}) {
    run_on_ranks(ranks, [](Communicator& world) {
      const auto backend = make_cpu_backend();
      Generator generator(3);
      const auto network = make_model("resnet_bag_of_tricks", {}, *backend, generator, &world);
      const std::string parts = std::to_string(16 / world.size());
      for (const auto& [name, layer] : network->children())
        if (name == "stem_norm") {
          EXPECT_EQ(layer->kind(), "BatchNorm(64, no scale, " + parts + " parts, CELU)");
        }
    });
  }
}

}  // namespace
}  // namespace dlaunch::nn
