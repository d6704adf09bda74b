// Ways to sum gradients: each against double precision, and what it sends.
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "runtime/comm/counting_communicator.h"
#include "runtime/parallel/gradient_reducer.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch {
namespace {

using testing::run_threads_as_ranks;

/// Two matrices and two vectors, one of them odd.
const std::vector<GradientRange> kRanges{
    {0, 60 * 40, 60}, {2400, 33, 1}, {2448, 48 * 64, 48}, {5520, 48, 1}};
constexpr std::size_t kSize = 5568;

std::vector<float> random_values(std::size_t count, std::initializer_list<unsigned> seeds) {
  std::seed_seq sequence(seeds);
  std::mt19937 random(sequence);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

/// A rank's gradients of a step; zeros in the padding.
std::vector<float> gradients_of(unsigned seed, int rank, int step) {
  const auto values =
      random_values(kSize, {seed, static_cast<unsigned>(rank), static_cast<unsigned>(step)});
  std::vector<float> gradients(kSize);
  for (const GradientRange& range : kRanges)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(range.offset), range.count,
                gradients.begin() + static_cast<std::ptrdiff_t>(range.offset));
  return gradients;
}

double samples_of(int rank, int step) {
  return (rank + step) % 3;  // some have none
}

double samples_of_all(int ranks, int step) {
  double samples = 0;
  for (int rank = 0; rank < ranks; ++rank) samples += samples_of(rank, step);
  return samples;
}

std::vector<double> mean_gradients(unsigned seed, int ranks, int step) {
  std::vector<double> mean(kSize);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto part = gradients_of(seed, rank, step);
    for (std::size_t i = 0; i < kSize; ++i) mean[i] += part[i] / samples_of_all(ranks, step);
  }
  return mean;
}

/// One step, with all ranges ready from the last to the first; `update` gets means.
void run_step(
    GradientReducer& reducer, std::vector<float>& gradients, double samples,
    const std::function<void(FlatSpan)>& update = [](FlatSpan) {}) {
  reducer.begin(true, {samples, 0, 0});
  for (std::size_t range = kRanges.size(); range-- > 0;) reducer.mark_ready(range);
  throw_if_error(reducer.finish([&](FlatSpan span, double scale) {
    for (std::size_t i = span.begin; i < span.end; ++i)
      gradients[i] = static_cast<float>(gradients[i] * scale);
    update(span);
  }));
}

double norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

GradientReducerOptions options_for(GradientExchange exchange) {
  GradientReducerOptions options;
  options.limits = {.bytes = 9700, .first_bytes = 200};  // three buckets
  options.order = {3, 2, 1, 0};
  options.exchange = exchange;
  return options;
}

class Exchanges : public ::testing::TestWithParam<int> {
 protected:
  const int ranks_ = GetParam();
  const unsigned seed_ = std::random_device()();
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

TEST_P(Exchanges, HalfPrecisionRoundsAndSendsHalfTheBytes) {
  for (const auto& [exchange, precision] : {std::pair(GradientExchange::kFloat16, 0x1p-11),
                                            std::pair(GradientExchange::kBFloat16, 0x1p-8)})
    run_threads_as_ranks(
        ranks_, [&, exchange = exchange, precision = precision](Communicator& inner) {
          CountingCommunicator world(inner);
          std::vector<float> gradients(kSize);
          GradientReducer reducer(world, gradients, kRanges, options_for(exchange));
          for (int step = 0; step < 3; ++step) {
            world.reset();
            std::ranges::copy(gradients_of(seed_, world.rank(), step), gradients.begin());
            run_step(reducer, gradients, samples_of(world.rank(), step) + 1);
            const double samples = samples_of_all(ranks_, step) + ranks_;
            std::vector<double> expected(kSize);
            std::vector<double> magnitude(kSize);
            for (int rank = 0; rank < ranks_; ++rank) {
              const auto part = gradients_of(seed_, rank, step);
              for (std::size_t i = 0; i < kSize; ++i) {
                expected[i] += part[i] / samples;
                magnitude[i] += std::abs(part[i]) / samples;
              }
            }
            // Each part is rounded once, and their sum.
            for (std::size_t i = 0; i < kSize; ++i)
              ASSERT_NEAR(gradients[i], expected[i], 2 * precision * magnitude[i] + 1e-6) << i;
            std::size_t sent = 0;
            for (const Bucket& bucket : reducer.buckets()) sent += 2 * bucket.span.size();
            if (ranks_ == 1) sent = 0;
            const std::size_t totals = ranks_ > 1 ? 4 * sizeof(double) : 0;
            if (step > 0) {  // the first one also tells which ranges are used
              EXPECT_EQ(world.collective_bytes(), sent + totals);
            }
          }
        });
}

TEST_P(Exchanges, HalfPrecisionHoldsMeansOfAnyNumberOfSamples) {
  run_threads_as_ranks(ranks_, [&](Communicator& world) {
    std::vector<float> gradients(kSize);
    GradientReducer reducer(world, gradients, kRanges, options_for(GradientExchange::kFloat16));
    for (const double samples : {1.0, 7.0, 1024.0, 3e6, 0.0, 2048.0})
      for (const double mean : {500.0, -0.25, 1e-5}) {
        const double rank = world.rank() + 1;  // each has as many samples as its number
        std::ranges::fill(gradients, static_cast<float>(mean * samples * rank));
        run_step(reducer, gradients, samples * rank);
        if (samples > 0) {
          EXPECT_NEAR(gradients[0], mean, 0x1p-9 * std::abs(mean)) << samples << " samples";
        }
      }
  });
}

TEST_P(Exchanges, ShardedUpdatesGiveAllRanksTheSameParametersAsWholeOnes) {
  for (const bool order_known : {false, true})
    run_threads_as_ranks(ranks_, [&](Communicator& inner) {
      CountingCommunicator world(inner);
      std::vector<float> gradients(kSize);
      std::vector<float> parameters(kSize);
      auto options = options_for(GradientExchange::kShard);
      if (!order_known) options.order = {};
      options.parameters = parameters;
      GradientReducer reducer(world, gradients, kRanges, options);
      std::vector<double> expected(kSize);
      for (int step = 0; step < 3; ++step) {
        world.reset();
        std::ranges::copy(gradients_of(seed_, world.rank(), step), gradients.begin());
        std::size_t updated = 0;
        run_step(reducer, gradients, samples_of(world.rank(), step) + 1, [&](FlatSpan span) {
          for (std::size_t i = span.begin; i < span.end; ++i) parameters[i] -= gradients[i];
          updated += span.size();
        });
        EXPECT_LE(updated, kSize / static_cast<std::size_t>(ranks_) + 16 * 3);
        std::size_t here = 0;
        for (const FlatSpan& span : reducer.updated_here()) here += span.size();
        EXPECT_EQ(here, updated);
        if (step > 0 && ranks_ > 1) {
          EXPECT_EQ(world.count(CollectiveKind::kAllReduce), 1U);  // the totals
        }
        const double samples = samples_of_all(ranks_, step) + ranks_;
        for (int rank = 0; rank < ranks_; ++rank) {
          const auto part = gradients_of(seed_, rank, step);
          for (std::size_t i = 0; i < kSize; ++i) expected[i] -= part[i] / samples;
        }
        for (std::size_t i = 0; i < kSize; ++i) ASSERT_NEAR(parameters[i], expected[i], 1e-5);
      }
    });
}

/// Gradients whose matrices are of this rank, the same columns on all ranks.
std::vector<float> low_rank_gradients(unsigned seed, int of_rank, std::size_t matrix_rank) {
  auto gradients = gradients_of(seed, of_rank, 0);
  for (const GradientRange& range : kRanges) {
    if (range.rows == 1) continue;
    const std::size_t columns = range.count / range.rows;
    const auto left = random_values(range.rows * matrix_rank, {seed, 77});
    const auto right = random_values(columns * matrix_rank, {seed, static_cast<unsigned>(of_rank)});
    for (std::size_t i = 0; i < range.rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) {
        float sum = 0;
        for (std::size_t k = 0; k < matrix_rank; ++k)
          sum += left[i * matrix_rank + k] * right[j * matrix_rank + k];
        gradients[range.offset + i * columns + j] = sum;
      }
  }
  return gradients;
}

TEST_P(Exchanges, PowerSgdIsExactForMatricesOfLowRankAndSendsLittle) {
  run_threads_as_ranks(ranks_, [&](Communicator& inner) {
    CountingCommunicator world(inner);
    std::vector<float> gradients(kSize);
    auto options = options_for(GradientExchange::kPowerSgd);
    // Two more than the matrices have: what random products of three columns nearly miss of a
    // matrix, others find.
    options.power_sgd_rank = 5;
    options.plain_steps = 1;
    GradientReducer reducer(world, gradients, kRanges, options);
    std::vector<double> expected(kSize);
    double samples = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto part = low_rank_gradients(seed_, rank, 3);
      for (std::size_t i = 0; i < kSize; ++i) expected[i] += part[i];
      samples += samples_of(rank, 1);
    }
    for (int step = 0; step < 4; ++step) {
      world.reset();
      std::ranges::copy(low_rank_gradients(seed_, world.rank(), 3), gradients.begin());
      run_step(reducer, gradients, samples_of(world.rank(), 1));
      for (std::size_t i = 0; i < kSize; ++i)
        ASSERT_NEAR(gradients[i], expected[i] / samples, 1e-3) << "step " << step << ", " << i;
      if (ranks_ == 1 || step == 0) continue;
      const std::size_t numbers = 5 * (60 + 40 + 48 + 64) + 33 + 48;
      EXPECT_EQ(world.collective_bytes(), 4 * numbers + 4 * sizeof(double));
    }
  });
}

TEST_P(Exchanges, PowerSgdFindsDirectionsAgainThatAMatrixWasWithout) {
  run_threads_as_ranks(ranks_, [&](Communicator& world) {
    std::vector<float> gradients(kSize);
    auto options = options_for(GradientExchange::kPowerSgd);
    options.power_sgd_rank = 4;
    GradientReducer reducer(world, gradients, kRanges, options);
    for (const std::size_t matrix_rank : {1U, 2U}) {
      std::vector<double> expected(kSize);
      for (int rank = 0; rank < ranks_; ++rank) {
        const auto part = low_rank_gradients(seed_, rank, matrix_rank);
        for (std::size_t i = 0; i < kSize; ++i) expected[i] += part[i] / ranks_;
      }
      std::ranges::copy(low_rank_gradients(seed_, world.rank(), matrix_rank), gradients.begin());
      run_step(reducer, gradients, 1);
      for (std::size_t i = 0; i < kSize; ++i)
        ASSERT_NEAR(gradients[i], expected[i], 1e-3) << "rank " << matrix_rank << ", " << i;
    }
  });
}

TEST_P(Exchanges, PowerSgdCompressesOnlyWhatThenTakesLessThanHalf) {
  if (ranks_ == 1) return;  // sends nothing
  run_threads_as_ranks(ranks_, [&](Communicator& inner) {
    CountingCommunicator world(inner);
    constexpr std::size_t kSide = 16;
    constexpr std::size_t kElements = kSide * kSide;
    // 4 * (16 + 16) numbers would be half of the matrix.
    for (const auto& [power_sgd_rank, numbers] :
         {std::pair(3U, 3 * (kSide + kSide)), std::pair(4U, kElements)}) {
      std::vector<float> gradients(kElements);
      GradientReducer reducer(world, gradients, {{0, kElements, kSide}},
                              {.exchange = GradientExchange::kPowerSgd,
                               .power_sgd_rank = power_sgd_rank,
                               .order = {0}});
      for (int step = 0; step < 2; ++step) {
        world.reset();
        reducer.begin(true, {1, 0, 0});
        reducer.mark_ready(0);
        throw_if_error(reducer.finish([](FlatSpan, double) {}));
      }
      EXPECT_EQ(world.count(CollectiveKind::kAllReduce), numbers == kElements ? 2U : 3U);
      EXPECT_EQ(world.collective_bytes(), sizeof(float) * numbers + 4 * sizeof(double))
          << "rank " << power_sgd_rank;
    }
  });
}

TEST_P(Exchanges, PowerSgdMakesGoodWhatItLeavesOut) {
  run_threads_as_ranks(ranks_, [&](Communicator& world) {
    std::vector<float> gradients(kSize);
    auto options = options_for(GradientExchange::kPowerSgd);
    options.power_sgd_rank = 4;
    GradientReducer reducer(world, gradients, kRanges, options);
    // The same mean gradient in every step, of which one step can send only a part, from unequal
    // and changing numbers of samples.
    std::vector<double> missing(kSize);
    double first = 0;
    double last = 0;
    constexpr int kSteps = 16;
    const auto mean = mean_gradients(seed_, ranks_, 1);
    for (int step = 0; step < kSteps; ++step) {
      const double factor = 1 + step % 4;
      std::ranges::copy(gradients_of(seed_, world.rank(), 1), gradients.begin());
      for (float& gradient : gradients) gradient *= static_cast<float>(factor);
      run_step(reducer, gradients, factor * samples_of(world.rank(), 1));
      for (std::size_t i = 0; i < kSize; ++i) missing[i] += mean[i] - gradients[i];
      if (step == 0) first = norm(missing) / norm(mean);
      last = norm(missing) / norm(mean) / kSteps;
    }
    EXPECT_GT(first, ranks_ > 1 ? 0.5 : -1);  // one rank compresses nothing
    EXPECT_LT(last, 0.5);  // of all that was to be sent; without feedback it stays as it is
  });
}

TEST_P(Exchanges, PowerSgdKeepsItsErrorsThroughAStepWithoutSamples) {
  std::vector<float> with, without;
  for (const bool pause : {false, true})
    run_threads_as_ranks(ranks_, [&](Communicator& world) {
      std::vector<float> gradients(kSize);
      GradientReducer reducer(world, gradients, kRanges, options_for(GradientExchange::kPowerSgd));
      for (int step = 0; step < 3; ++step) {
        if (pause && step == 1) {
          std::ranges::fill(gradients, 0.0F);
          run_step(reducer, gradients, 0);
        }
        std::ranges::copy(gradients_of(seed_, world.rank(), step), gradients.begin());
        run_step(reducer, gradients, 1);
      }
      if (world.rank() == 0) (pause ? with : without) = gradients;
    });
  EXPECT_EQ(with, without);
}

TEST_P(Exchanges, PowerSgdGoesOnFromItsMemoryWithTheSameBits) {
  run_threads_as_ranks(ranks_, [&](Communicator& world) {
    const auto options = options_for(GradientExchange::kPowerSgd);
    std::vector<float> gradients(kSize), others(kSize);
    GradientReducer undisturbed(world, gradients, kRanges, options);
    std::optional<GradientReducer> broken(std::in_place, world, others, kRanges, options);
    for (int step = 0; step < 5; ++step) {
      if (step == 2 && ranks_ > 1) {
        const ExchangeMemory memory = broken->memory();
        broken.emplace(world, others, kRanges, options);
        ASSERT_TRUE(broken->remember(memory).ok());
      }
      std::ranges::copy(gradients_of(seed_, world.rank(), step), gradients.begin());
      // A matrix without a second direction, of which earlier steps have left nothing out: where
      // the next one is looked for is random, before the interruption and after it.
      if (step < 3) std::fill(gradients.begin(), gradients.begin() + 2400, 1.0F);
      others = gradients;
      run_step(undisturbed, gradients, samples_of(world.rank(), step));
      run_step(*broken, others, samples_of(world.rank(), step));
      EXPECT_EQ(gradients, others) << "step " << step;
    }
  });
}

TEST_P(Exchanges, PowerSgdGoesOnFromItsMemoryWithOtherBuckets) {
  if (ranks_ == 1) return;  // has nothing to remember
  run_threads_as_ranks(ranks_, [&](Communicator& world) {
    const auto options = options_for(GradientExchange::kPowerSgd);
    auto larger = options;
    larger.limits = {.bytes = 4 * kSize, .first_bytes = 4 * kSize};
    std::vector<float> gradients(kSize), others(kSize);
    GradientReducer before(world, gradients, kRanges, options);
    GradientReducer after(world, others, kRanges, larger);
    ASSERT_GT(before.buckets().size(), after.buckets().size());
    const auto step = [&](GradientReducer& reducer, std::vector<float>& values, int number) {
      std::ranges::copy(gradients_of(seed_, world.rank(), number), values.begin());
      run_step(reducer, values, samples_of(world.rank(), number));
    };
    for (int number : {0, 1}) step(before, gradients, number);
    ASSERT_TRUE(after.remember(before.memory()).ok());
    step(before, gradients, 2);
    step(after, others, 2);
    for (std::size_t i = 0; i < kSize; ++i)
      ASSERT_NEAR(gradients[i], others[i], 1e-4 * (1 + std::abs(gradients[i]))) << i;
  });
}

TEST(Exchange, OfAnotherRankRefusesAMemory) {
  run_threads_as_ranks(2, [&](Communicator& world) {
    std::vector<float> gradients(kSize);
    auto options = options_for(GradientExchange::kPowerSgd);
    const ExchangeMemory memory = GradientReducer(world, gradients, kRanges, options).memory();
    options.power_sgd_rank = 3;
    GradientReducer other(world, gradients, kRanges, options);
    EXPECT_EQ(other.remember(memory).code(), StatusCode::kMismatch);
    GradientReducer plain(world, gradients, kRanges, options_for(GradientExchange::kAllReduce));
    EXPECT_EQ(plain.remember(memory).code(), StatusCode::kMismatch);
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Exchanges, ::testing::Values(1, 2, 3, 5));

/// Least squares, X W = Y, on two ranks with unequal numbers of rows: what is left of the loss
/// after training, as a fraction.
double loss_left(GradientExchange exchange, double rate) {
  constexpr std::size_t kIn = 24, kOut = 32, kRows = 480, kSteps = 16;
  double left = 1;
  run_threads_as_ranks(2, [&](Communicator& world) {
    const auto truth = random_values(kIn * kOut, {1});
    const std::size_t begin = world.rank() == 0 ? 0 : 150;
    const std::size_t end = world.rank() == 0 ? 150 : kRows;
    const auto x = random_values(kRows * kIn, {2});
    std::vector<float> weights(kIn * kOut), gradients(kIn * kOut);
    GradientReducerOptions options;
    options.order = {0};
    options.exchange = exchange;
    options.power_sgd_rank = 4;
    options.plain_steps = 2;
    options.parameters = weights;
    GradientReducer reducer(world, gradients, {{0, kIn * kOut, kIn}}, options);
    double initial = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      std::ranges::fill(gradients, 0.0F);
      double loss = 0;
      for (std::size_t row = begin; row < end; ++row)
        for (std::size_t out = 0; out < kOut; ++out) {
          float error = 0;
          for (std::size_t in = 0; in < kIn; ++in)
            error += x[row * kIn + in] * (weights[in * kOut + out] - truth[in * kOut + out]);
          loss += error * error;
          for (std::size_t in = 0; in < kIn; ++in)
            gradients[in * kOut + out] += error * x[row * kIn + in];
        }
      reducer.begin(true, {static_cast<double>(end - begin), loss, 0});
      reducer.mark_ready(0);
      const double total = reducer.totals().value_or_throw().loss;
      if (step == 0) initial = total;
      if (world.rank() == 0) left = total / initial;
      throw_if_error(reducer.finish([&](FlatSpan span, double scale) {
        for (std::size_t i = span.begin; i < span.end; ++i)
          weights[i] -= static_cast<float>(rate * scale * gradients[i]);
      }));
    }
  });
  return left;
}

TEST(ExchangeConvergence, EveryWayOfSummingFindsTheSolution) {
  EXPECT_LT(loss_left(GradientExchange::kAllReduce, 0.8), 1e-5);
  EXPECT_LT(loss_left(GradientExchange::kShard, 0.8), 1e-5);
  EXPECT_LT(loss_left(GradientExchange::kFloat16, 0.8), 1e-5);
  EXPECT_LT(loss_left(GradientExchange::kBFloat16, 0.8), 1e-5);
  // Four columns of 24: errors are fed back some six steps late, which calls for smaller steps.
  EXPECT_LT(loss_left(GradientExchange::kPowerSgd, 0.25), 0.05);
}

}  // namespace
}  // namespace dlaunch
