#include "runtime/parallel/gradient_reducer.h"

#include <algorithm>
#include <latch>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/counting_communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch {
namespace {

using testing::run_threads_as_ranks;

/// Ranges with gaps between them, as aligned parameters have.
std::vector<GradientRange> ranges_with_gaps(const std::vector<std::size_t>& counts) {
  std::vector<GradientRange> ranges;
  std::size_t offset = 0;
  for (const std::size_t count : counts) {
    ranges.push_back({offset, count});
    offset += (count + 3) / 4 * 4;
  }
  return ranges;
}

/// A rank's random numbers that every other rank can compute too.
std::vector<float> gradients_of(int rank, int pass, std::size_t size, unsigned seed) {
  std::mt19937 random(seed + 1000U * static_cast<unsigned>(rank) + static_cast<unsigned>(pass));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(size);
  for (float& value : values) value = uniform(random);
  return values;
}

/// Ends the step with means in `gradients`, and checks that every element was handed out once.
Status finish_and_scale(GradientReducer& reducer, std::vector<float>& gradients) {
  std::vector<int> times(gradients.size());
  Status status = reducer.finish([&](FlatSpan span, double scale) {
    for (std::size_t i = span.begin; i < span.end; ++i) {
      gradients[i] = static_cast<float>(gradients[i] * scale);
      ++times[i];
    }
  });
  EXPECT_LE(*std::ranges::max_element(times), 1);
  return status;
}

constexpr double kSamples[] = {5, 0, 3, 1, 7};  // of ranks, in each pass

class GradientReducerWorlds : public ::testing::TestWithParam<int> {};

TEST_P(GradientReducerWorlds, AveragesOverTheGlobalNumberOfSamples) {
  const int world_size = GetParam();
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const auto ranges = ranges_with_gaps({7, 1, 40, 13, 64, 2});
  const std::size_t size = ranges.back().offset + ranges.back().count;

  double samples = 0, loss = 0;
  std::vector<double> expected(size);
  for (int rank = 0; rank < world_size; ++rank)
    for (int pass = 0; pass < 3; ++pass) {
      samples += kSamples[rank];
      loss += rank + 10 * pass;
      const auto part = gradients_of(rank, pass, size, seed);
      for (std::size_t i = 0; i < size; ++i) expected[i] += part[i];
    }

  // From one bucket per range to one for everything.
  for (const std::size_t bucket_bytes : {std::size_t{4}, std::size_t{128}, std::size_t{1} << 20}) {
    run_threads_as_ranks(world_size, [&](Communicator& world) {
      std::vector<float> gradients(size);
      GradientReducer reducer(world, gradients, ranges,
                              {.limits = {.bytes = bucket_bytes, .first_bytes = bucket_bytes}});
      if (world_size == 1) {
        ASSERT_EQ(reducer.buckets().size(), 1U);
      }
      for (int step = 0; step < 3; ++step) {  // buckets are others from the second step on
        std::fill(gradients.begin(), gradients.end(), 0.0F);
        for (int pass = 0; pass < 3; ++pass) {
          reducer.begin(pass == 2, {kSamples[world.rank()], world.rank() + 10.0 * pass, 0});
          const auto part = gradients_of(world.rank(), pass, size, seed);
          // Ranges become ready in an order of each rank's own.
          std::vector<std::size_t> order(ranges.size());
          std::iota(order.begin(), order.end(), 0U);
          std::mt19937 random(seed + static_cast<unsigned>(world.rank() + step));
          std::shuffle(order.begin(), order.end(), random);
          for (const std::size_t index : order) {
            const std::size_t end = ranges[index].offset + ranges[index].count;
            for (std::size_t i = ranges[index].offset; i < end; ++i) gradients[i] += part[i];
            reducer.mark_ready(index);
          }
        }
        const StepTotals totals = reducer.totals().value_or_throw();
        EXPECT_EQ(totals.samples, samples);
        EXPECT_EQ(totals.loss, loss);
        ASSERT_TRUE(finish_and_scale(reducer, gradients).ok());
        for (const GradientRange& range : ranges)
          for (std::size_t i = range.offset; i < range.offset + range.count; ++i)
            EXPECT_NEAR(gradients[i], expected[i] / samples, 1e-6) << "element " << i;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, GradientReducerWorlds, ::testing::Values(1, 2, 3, 5));

const GradientReducer::Update kNoUpdate = [](FlatSpan, double) {};

TEST(GradientReducer, SendsNoGradientWhileTheyAccumulate) {
  run_threads_as_ranks(2, [](Communicator& inner) {
    CountingCommunicator world(inner);
    std::vector<float> gradients(100);
    GradientReducer reducer(world, gradients, {{0, 50}, {50, 50}},
                            {.limits = {.bytes = 200, .first_bytes = 200}, .order = {1, 0}});
    ASSERT_EQ(reducer.buckets().size(), 2U);
    for (int pass = 0; pass < 4; ++pass) {
      reducer.begin(false, {1, 0, 0});
      reducer.mark_ready(1);
      reducer.mark_ready(0);
      EXPECT_EQ(world.collectives(), 0U);
      EXPECT_EQ(world.messages_sent(), 0U);
    }
    reducer.begin(true, {1, 0, 0});
    EXPECT_EQ(world.collectives(), 1U);  // the totals
    reducer.mark_ready(1);
    EXPECT_EQ(world.collectives(), 2U);  // while backward goes on
    reducer.mark_ready(0);
    EXPECT_EQ(reducer.totals().value_or_throw().samples, 10);
    EXPECT_EQ(world.count(CollectiveKind::kAllReduce), 3U);
    EXPECT_EQ(world.collective_bytes(), 100U * sizeof(float) + 4U * sizeof(double));
    EXPECT_TRUE(reducer.finish(kNoUpdate).ok());
  });
}

TEST(GradientReducer, MakesBucketsOnceInTheOrderInWhichGradientsArriveOnRankZero) {
  run_threads_as_ranks(3, [](Communicator& world) {
    std::vector<float> gradients(40);
    GradientReducer reducer(world, gradients, {{0, 10}, {10, 10}, {20, 10}, {30, 10}},
                            {.limits = {.bytes = 80, .first_bytes = 40}});
    EXPECT_TRUE(reducer.order().empty());
    EXPECT_EQ(reducer.buckets()[0].ranges, std::vector<std::size_t>{3});
    // Rank 0 is the law, whatever the others see; what it never sees comes last.
    const std::vector<std::vector<std::size_t>> arrivals{{1, 3, 2}, {3, 2, 1, 0}, {0, 1, 2, 3}};
    const std::vector<std::size_t> expected{1, 3, 2, 0};
    for (int step = 0; step < 3; ++step) {
      reducer.begin(true, {1, 0, 0});
      for (const std::size_t range : arrivals[static_cast<std::size_t>((world.rank() + step) % 3)])
        reducer.mark_ready(range);
      ASSERT_TRUE(reducer.finish(kNoUpdate).ok());
      EXPECT_EQ(reducer.order(), expected);
      ASSERT_EQ(reducer.buckets().size(), 3U);
      EXPECT_EQ(reducer.buckets()[0].ranges, std::vector<std::size_t>{1});
      EXPECT_EQ(reducer.buckets()[1].ranges, (std::vector<std::size_t>{2, 3}));
      EXPECT_EQ(reducer.buckets()[2].ranges, std::vector<std::size_t>{0});
    }
  });
}

TEST(GradientReducer, RefusesMarksThatCannotBe) {
  run_threads_as_ranks(2, [](Communicator& world) {
    std::vector<float> gradients(2, 1.0F);
    GradientReducer reducer(world, gradients, {{0, 1}, {1, 1}});
    EXPECT_THROW(reducer.mark_ready(0), std::logic_error);  // before begin()
    for (int step = 0; step < 3; ++step) {
      std::ranges::fill(gradients, 1.0F);
      for (const bool last : {false, true}) {
        reducer.begin(last, {1, 0, 0});
        reducer.mark_ready(1);
        EXPECT_THROW(reducer.mark_ready(1), std::logic_error);  // as for a tied weight
        EXPECT_THROW(reducer.mark_ready(2), std::logic_error);
        reducer.mark_ready(0);
      }
      ASSERT_TRUE(reducer.finish(kNoUpdate).ok());
      EXPECT_EQ(gradients, std::vector<float>(2, 2.0F));
    }
  });
}

TEST(GradientReducer, RefusesToUpdateFromGradientsOfThisRankAlone) {
  run_threads_as_ranks(2, [](Communicator& world) {
    std::vector<float> gradients(1);
    GradientReducer reducer(world, gradients, {{0, 1}});
    reducer.begin(false, {1, 0, 0});
    reducer.mark_ready(0);
    EXPECT_EQ(reducer.totals().status().code(), StatusCode::kInvalidArgument);
    const auto never = [](FlatSpan, double) { FAIL() << "an update"; };
    EXPECT_EQ(reducer.finish(never).code(), StatusCode::kInvalidArgument);
    reducer.begin(true, {1, 0, 0});  // nothing is lost
    EXPECT_EQ(reducer.totals().value_or_throw().samples, 4);
    EXPECT_TRUE(reducer.finish(kNoUpdate).ok());
  });
}

TEST(GradientReducer, RefusesRangesThatAreNotThere) {
  run_threads_as_ranks(1, [](Communicator& world) {
    std::vector<float> gradients(8);
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    for (const std::vector<GradientRange>& ranges : std::vector<std::vector<GradientRange>>{
             {{0, 8}, {4, 4}}, {{4, 4}, {0, 4}}, {{0, 9}}, {{9, 0}}, {{4, most - 3}}, {{most, 1}}})
      EXPECT_THROW(GradientReducer(world, gradients, ranges), std::invalid_argument);
    GradientReducer(world, gradients, {{0, 0}, {0, 3}, {5, 3}, {8, 0}});
  });
}

TEST(GradientReducer, DoesNotLetABlockingCollectiveWaitBehindABucket) {
  run_threads_as_ranks(2, [](Communicator& world) {
    std::vector<float> gradients(100000, 1.0F);
    GradientReducer reducer(world, gradients, {{0, 100000}});
    reducer.begin(true, {1, 0, 0});
    // Rank 1 joins the bucket only after both have made a synchronised batch norm's collective.
    if (world.rank() == 0) reducer.mark_ready(0);
    std::vector<double> statistics{1, 2, 3};
    ASSERT_TRUE(world.all_reduce(statistics).ok());
    EXPECT_EQ(statistics, (std::vector<double>{2, 4, 6}));
    if (world.rank() == 1) reducer.mark_ready(0);
    ASSERT_TRUE(reducer.finish(kNoUpdate).ok());
    EXPECT_EQ(gradients.front(), 2);
    EXPECT_EQ(gradients.back(), 2);
  });
}

TEST(GradientReducer, NamesTheRangesThatNobodyMarkedAndSumsThem) {
  for (const int world_size : {1, 3})
    run_threads_as_ranks(world_size, [&](Communicator& world) {
      std::vector<float> gradients(8);
      GradientReducer reducer(world, gradients, {{0, 4}, {4, 4}},
                              {.limits = {.bytes = 16, .first_bytes = 16}});
      const int last = world.size() - 1;
      const auto step = [&](bool last_rank_uses_it) {
        std::ranges::fill(gradients, 0.0F);
        for (const bool final : {false, true}) {
          reducer.begin(final, {0.5, 0, 0});
          if (world.rank() != last || (last_rank_uses_it && !final)) {  // in one pass is enough
            std::fill(gradients.begin() + 4, gradients.end(), 3.0F);
            reducer.mark_ready(1);
          }
          std::fill(gradients.begin(), gradients.begin() + 4, 2.0F);
          reducer.mark_ready(0);
        }
        ASSERT_TRUE(finish_and_scale(reducer, gradients).ok());
        EXPECT_EQ(gradients[0], 2);
        EXPECT_FLOAT_EQ(gradients[4], last_rank_uses_it ? 3 : 3.0F * last / world.size());
      };
      step(false);
      EXPECT_EQ(reducer.unused(), (std::vector<UnusedRange>{{last, 1}}));
      step(false);
      EXPECT_EQ(reducer.unused(), (std::vector<UnusedRange>{{last, 1}}));
      step(true);
      step(true);  // a change is known everywhere a step later
      EXPECT_TRUE(reducer.unused().empty());
    });
}

TEST(GradientReducer, LeavesGradientsAloneIfNoRankHadASample) {
  run_threads_as_ranks(2, [](Communicator& world) {
    std::vector<float> gradients(4);
    GradientReducer reducer(world, gradients, {{0, 4}});
    reducer.begin(true, {});
    reducer.mark_ready(0);
    EXPECT_EQ(reducer.totals().value_or_throw().samples, 0);
    EXPECT_TRUE(reducer.finish([](FlatSpan, double) { ADD_FAILURE(); }).ok());
    EXPECT_EQ(gradients, std::vector<float>(4));
  });
}

TEST(GradientReducer, ShowsAllSumsBeforeTheFirstUpdateIfAskedTo) {
  for (const GradientExchange exchange : {GradientExchange::kAllReduce, GradientExchange::kShard})
    for (const int ranks : {1, 2, 3})
      run_threads_as_ranks(ranks, [&](Communicator& world) {
        std::vector<float> gradients(72);
        std::vector<float> parameters(72);
        GradientReducer reducer(world, gradients, ranges_with_gaps({7, 1, 40, 13}),
                                {.limits = {.bytes = 64, .first_bytes = 16},
                                 .exchange = exchange,
                                 .parameters = parameters});
        for (int step = 0; step < 3; ++step) {  // the first one is another
          std::ranges::fill(gradients, 1.0F);
          const double samples = step == 2 ? 0 : 1;
          reducer.begin(true, {samples, 0, 0});
          for (std::size_t range = 4; range-- > 0;) reducer.mark_ready(range);
          std::vector<FlatSpan> shown;
          std::vector<FlatSpan> updated;
          const auto summed = [&](double scale) {
            EXPECT_TRUE(shown.empty() && updated.empty()) << "once, before the updates";
            EXPECT_EQ(scale, 1.0 / ranks);
            shown = reducer.updated_here();
            for (const FlatSpan span : shown)
              for (std::size_t i = span.begin; i < span.end; ++i)
                EXPECT_EQ(gradients[i], static_cast<float>(ranks));
          };
          ASSERT_TRUE(
              reducer.finish([&](FlatSpan span, double) { updated.push_back(span); }, summed).ok());
          EXPECT_EQ(shown, updated);
          EXPECT_EQ(shown.empty(), samples == 0);
        }
      });
}

TEST(GradientReducer, ExchangesTotalsBeforeTheStepIfAskedToAlsoInAWorldOfOne) {
  run_threads_as_ranks(1, [](Communicator& world) {
    std::vector<float> gradients(4, 1.0F);
    GradientReducer reducer(world, gradients, {{0, 4}});
    ASSERT_TRUE(reducer.exchange_totals({6, 0, 0}).ok());
    reducer.begin(true, {2, 0, 0});  // left out
    reducer.mark_ready(0);
    double scale = 0;
    ASSERT_TRUE(reducer.finish([&](FlatSpan, double given) { scale = given; }).ok());
    EXPECT_EQ(scale, 1.0 / 6);
  });
}

TEST(GradientReducer, ExchangesTotalsBeforeTheStepIfAskedTo) {
  run_threads_as_ranks(3, [](Communicator& inner) {
    CountingCommunicator world(inner);
    std::vector<float> gradients(4, 1.0F);
    GradientReducer reducer(world, gradients, {{0, 4}}, {.order = {0}});
    for (int step = 0; step < 2; ++step) {
      const double samples = world.rank() + 1.0;
      const StepTotals totals =
          reducer.exchange_totals({samples, 0, world.rank() == 1 ? 1.0 : 0.0}).value_or_throw();
      EXPECT_EQ(totals.samples, 6);
      EXPECT_EQ(totals.stop_votes, 1);
      world.reset();
      for (const bool last : {false, true}) {
        reducer.begin(last, {});
        reducer.mark_ready(0);
      }
      double scale = 0;
      ASSERT_TRUE(reducer.finish([&](FlatSpan, double given) { scale = given; }).ok());
      EXPECT_EQ(scale, 1.0 / 6);
      EXPECT_EQ(world.count(CollectiveKind::kAllReduce), 1U) << "the gradients";
    }
    // A step without it counts its own again.
    reducer.begin(true, {2, 0, 0});
    reducer.mark_ready(0);
    EXPECT_EQ(reducer.totals().value_or_throw().samples, 6);
    EXPECT_TRUE(reducer.finish(kNoUpdate).ok());
  });
}

TEST(GradientReducer, KnowsWhatIsUsedAfterAStepThatWasRepeated) {
  run_threads_as_ranks(2, [](Communicator& inner) {
    CountingCommunicator world(inner);
    std::vector<float> gradients(8);
    GradientReducer reducer(world, gradients, {{0, 4}, {4, 4}}, {.order = {1, 0}});
    const auto step = [&](bool uses_all) {
      ASSERT_TRUE(reducer.exchange_totals({1, 0, 0}).ok());
      reducer.begin(true, {});
      reducer.mark_ready(0);
      if (uses_all) reducer.mark_ready(1);
      ASSERT_TRUE(reducer.finish(kNoUpdate).ok());
    };
    step(false);
    const std::vector<UnusedRange> unused{{0, 1}, {1, 1}};
    EXPECT_EQ(reducer.unused(), unused);
    for (int repeated = 0; repeated < 2; ++repeated) {
      ASSERT_TRUE(reducer.exchange_totals({1, 0, 0}).ok());
      world.reset();
      ASSERT_TRUE(reducer.finish_repeated().ok());
      EXPECT_EQ(world.collectives(), 0U);
      EXPECT_EQ(reducer.unused(), unused);
    }
    step(true);
    ASSERT_TRUE(reducer.exchange_totals({1, 0, 0}).ok());  // tells that something has changed
    ASSERT_TRUE(reducer.finish_repeated().ok());
    EXPECT_TRUE(reducer.unused().empty());
  });
}

TEST(GradientReducer, CountsTheRanksThatWantToStop) {
  run_threads_as_ranks(3, [](Communicator& world) {
    std::vector<float> gradients(4);
    GradientReducer reducer(world, gradients, {{0, 4}});
    for (const bool last : {false, true}) {  // one votes early, another late
      const int voter = last ? 2 : 1;
      reducer.begin(last, {1, 0, world.rank() == voter ? 1.0 : 0.0});
      reducer.mark_ready(0);
    }
    EXPECT_EQ(reducer.totals().value_or_throw().stop_votes, 2);
  });
}

TEST(GradientReducer, RefusesOptionsThatWouldLeaveGradientsUnsummed) {
  run_threads_as_ranks(1, [](Communicator& world) {
    std::vector<float> gradients(12), parameters(11);
    const auto make = [&](std::size_t rows, const GradientReducerOptions& options) {
      const GradientReducer reducer(
          world, gradients, {{.offset = 0, .count = 6}, {.offset = 6, .count = 6, .rows = rows}},
          options);
    };
    EXPECT_NO_THROW(make(3, {.order = {1, 0}}));
    EXPECT_THROW(make(4, {}), std::invalid_argument);
    EXPECT_THROW(make(0, {}), std::invalid_argument);
    EXPECT_THROW(make(3, {.power_sgd_rank = 0}), std::invalid_argument);
    for (const std::vector<std::size_t>& order :
         {std::vector<std::size_t>{0}, {0, 0}, {0, 2}, {0, 1, 1}})
      EXPECT_THROW(make(3, {.order = order}), std::invalid_argument);
    EXPECT_THROW(make(3, {.exchange = GradientExchange::kShard, .parameters = parameters}),
                 std::invalid_argument);
  });
}

TEST(GradientReducer, TellsWhichPeerIsLost) {
  testing::ThreadWorld network(2);
  std::latch begun(2);
  run_threads_as_ranks(network, 2, [&](Communicator& world) {
    std::vector<float> gradients(4);
    GradientReducer reducer(world, gradients, {{0, 4}});
    reducer.begin(true, {});
    begun.arrive_and_wait();
    if (world.rank() == 1) return network.kill(1);
    reducer.mark_ready(0);
    const Status status = reducer.finish(kNoUpdate);
    EXPECT_EQ(status.code(), StatusCode::kPeerLost);
    EXPECT_EQ(status.peer(), 1);
  });
}

TEST(GradientReducer, HasNoTotalsWithoutAPeerThatIsLost) {
  testing::ThreadWorld network(2);
  run_threads_as_ranks(network, 2, [&](Communicator& world) {
    if (world.rank() == 1) return network.kill(1);
    std::vector<float> gradients(4);
    GradientReducer reducer(world, gradients, {{0, 4}});
    reducer.begin(true, {});
    reducer.mark_ready(0);
    for (const Status& status : {reducer.totals().status(), reducer.finish(kNoUpdate)}) {
      EXPECT_EQ(status.code(), StatusCode::kPeerLost);
      EXPECT_THAT(status.to_string(), ::testing::StartsWith("totals of the step: "));
    }
  });
}

TEST(GradientReducer, TellsOfPartsOfTheParametersThatDidNotCome) {
  std::latch summed(2);
  run_threads_as_ranks(2, [&](Communicator& world) {
    std::vector<float> gradients(32), parameters(32);
    GradientReducer reducer(
        world, gradients, {{0, 32}},
        {.exchange = GradientExchange::kShard, .parameters = parameters, .order = {0}});
    reducer.begin(true, {1, 0, 0});
    reducer.mark_ready(0);
    const Status status = reducer.finish([&](FlatSpan, double) {
      summed.arrive_and_wait();
      if (world.rank() == 1) world.abort(Status(StatusCode::kAborted, "out of cheese"));
    });
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_THAT(status.to_string(), ::testing::StartsWith("gathering parameters: "));
    EXPECT_THAT(status.to_string(), ::testing::HasSubstr("out of cheese"));
  });
}

}  // namespace
}  // namespace dlaunch
