#include "runtime/collective/selection.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/json_reader.h"
#include "runtime/collective/algorithms.h"

namespace dlaunch {
namespace {

TopologySummary one_host(int ranks, bool shared_memory) {
  return summarize({.ranks = ranks, .cores_per_host = 2, .shared_memory = shared_memory});
}

TEST(Selection, TakesFewMessagesForShortVectorsAndFewBytesForLongOnes) {
  for (const int ranks : {4, 5, 8, 16, 17}) {
    CollectiveQuery query{.bytes = 8, .topology = one_host(ranks, false)};
    const std::vector<Prediction> short_ones = predict(query, {});
    EXPECT_LE(short_ones.front().seconds, short_ones.back().seconds / 2);
    query.bytes = std::size_t{256} << 20;
    const Algorithm algorithm = choose(query, {});
    EXPECT_TRUE(algorithm == Algorithm::kRing || algorithm == Algorithm::kHalvingDoubling ||
                algorithm == Algorithm::kDirect)
        << ranks << " ranks: " << to_string(algorithm);
  }
}

// Three ranks and more on two cores: a ring keeps them all busy with more than a tree has to do.
TEST(Selection, TakesATreeForOneRootWhereRanksShareCores) {
  for (const CollectiveKind kind : {CollectiveKind::kReduce, CollectiveKind::kBroadcast}) {
    for (const int ranks : {3, 4, 5, 8}) {
      for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{1} << 20}) {
        CollectiveQuery query{.kind = kind, .bytes = bytes, .topology = one_host(ranks, false)};
        EXPECT_NE(choose(query, {}), Algorithm::kRing) << to_string(kind) << " of " << ranks;
        query.topology.cores_per_host = 8;
        query.bytes = std::size_t{64} << 20;
        EXPECT_EQ(choose(query, {}), Algorithm::kRing) << to_string(kind) << " of " << ranks;
      }
    }
  }
}

TEST(Selection, WorksInSharedMemoryWhereAllRanksShareIt) {
  for (int ranks = 2; ranks <= 64; ++ranks) {
    for (std::size_t bytes = 1; bytes < (std::size_t{1} << 30); bytes *= 2) {
      const Algorithm algorithm = choose({.bytes = bytes, .topology = one_host(ranks, true)}, {});
      EXPECT_TRUE(algorithm == Algorithm::kDirect || algorithm == Algorithm::kOneShot)
          << ranks << " ranks, " << bytes << " bytes: " << to_string(algorithm);
    }
  }
}

TEST(Selection, CountsOneMeetingWhereTheRootReducesAlone) {
  const auto meetings = [](std::size_t bytes, int cores) {
    CollectiveQuery query{
        .kind = CollectiveKind::kReduce, .bytes = bytes, .topology = one_host(4, true)};
    query.topology.cores_per_host = cores;
    for (const Prediction& prediction : predict(query, {})) {
      if (prediction.algorithm != Algorithm::kDirect) continue;
      for (const Term& term : prediction.terms) {
        if (term.effort == Effort::kSync) return term.amount;
      }
    }
    return 0.0;
  };
  constexpr std::size_t kLongest = std::size_t{16} << 10;
  EXPECT_EQ(meetings(kLongest, 2), 1);
  EXPECT_EQ(meetings(kLongest + 1, 2), 2);
  EXPECT_EQ(meetings(kLongest / 4, 4), 1);
  EXPECT_EQ(meetings(kLongest / 4 + 1, 4), 2);
}

TEST(Selection, GoesThroughTheHostsWhereMessagesBetweenThemCostMore) {
  Topology topology{.ranks = 1024 * 8, .cores_per_host = 8, .shared_memory = true};
  for (int rank = 0; rank < topology.ranks; ++rank) topology.host_of_rank.push_back(rank / 8);
  const TopologySummary summary = summarize(topology);
  EXPECT_EQ(summary.hosts, 1024);
  EXPECT_EQ(summary.most_per_host, 8);
  EXPECT_TRUE(summary.contiguous);
  for (const std::size_t bytes : {std::size_t{1000}, std::size_t{1} << 20, std::size_t{1} << 28}) {
    EXPECT_EQ(choose({.bytes = bytes, .topology = summary}, {}), Algorithm::kHierarchical) << bytes;
  }
}

// Two hosts of eight over a network of 1 Gbit/s: a tree's message crosses it once, a ring's scatter
// and what it collects together more often.
TEST(Selection, TakesATreeForOneRootOnSeveralHosts) {
  Topology topology{.ranks = 16, .cores_per_host = 16, .shared_memory = true};
  for (int rank = 0; rank < topology.ranks; ++rank) topology.host_of_rank.push_back(rank / 8);
  CostModel model;
  model.network_message = {.latency = 60e-6, .overhead = 8e-6, .per_byte = 1 / 0.117e9};
  for (const CollectiveKind kind : {CollectiveKind::kReduce, CollectiveKind::kBroadcast}) {
    for (std::size_t bytes = 16 << 10; bytes <= 1 << 20; bytes *= 4) {
      const CollectiveQuery query{.kind = kind, .bytes = bytes, .topology = summarize(topology)};
      EXPECT_EQ(choose(query, model), Algorithm::kTree) << to_string(kind) << " of " << bytes;
    }
  }
}

TEST(Selection, PredictsAsTheSumOfItsTermsAndChoosesTheLeast) {
  for (const CollectiveKind kind : kAllCollectiveKinds) {
    for (const bool shared : {false, true}) {
      const CollectiveQuery query{.kind = kind, .bytes = 100'000, .topology = one_host(6, shared)};
      const std::vector<Prediction> predictions = predict(query, {});
      ASSERT_FALSE(predictions.empty());
      EXPECT_EQ(predictions.front().algorithm, choose(query, {}));
      for (const Prediction& prediction : predictions) {
        double sum = 0;
        for (const Term& term : prediction.terms) sum += term.seconds();
        EXPECT_NEAR(sum, prediction.seconds, 1e-12);
        EXPECT_GT(sum, 0);
      }
      EXPECT_TRUE(std::ranges::is_sorted(predictions, {}, &Prediction::seconds));
    }
  }
}

double seconds_of(const CollectiveQuery& query, Algorithm algorithm) {
  for (const Prediction& prediction : predict(query, {})) {
    if (prediction.algorithm == algorithm) return prediction.seconds;
  }
  ADD_FAILURE() << "no " << to_string(algorithm);
  return 0;
}

// A million elements: next to them the messages themselves cost nothing.
TEST(Selection, PricesTheTypeThatMessagesCarry) {
  const auto seconds = [](DType dtype, ReduceOp op, ReduceOrder order, Algorithm algorithm) {
    return seconds_of({.bytes = 1'000'000 * size_of(dtype),
                       .dtype = dtype,
                       .order = order,
                       .op = op,
                       .topology = one_host(2, false)},
                      algorithm);
  };
  constexpr auto kAny = ReduceOrder::kAny;
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kHalvingDoubling}) {
    const double of_f32 = seconds(DType::kF32, ReduceOp::kSum, kAny, algorithm);
    const double of_i64 = seconds(DType::kI64, ReduceOp::kSum, kAny, algorithm);
    // Widened, and so dearer than what they are widened to: they are copied there and back.
    EXPECT_GT(seconds(DType::kF16, ReduceOp::kSum, kAny, algorithm), of_f32);
    EXPECT_GT(seconds(DType::kI32, ReduceOp::kAvg, kAny, algorithm), of_i64);
    EXPECT_GT(seconds(DType::kU8, ReduceOp::kAvg, kAny, algorithm), of_i64);
    // Travel as they are.
    EXPECT_LT(seconds(DType::kBF16, ReduceOp::kMax, kAny, algorithm), 0.6 * of_f32);
    EXPECT_LT(seconds(DType::kU8, ReduceOp::kSum, kAny, algorithm), 0.3 * of_f32);
    EXPECT_EQ(seconds(DType::kI32, ReduceOp::kSum, kAny, algorithm), of_f32);
  }
  // In rank order the operands themselves travel, except along the ring.
  constexpr auto kRanks = ReduceOrder::kRanks;
  EXPECT_LT(seconds(DType::kF16, ReduceOp::kSum, kRanks, Algorithm::kHalvingDoubling),
            0.6 * seconds(DType::kF32, ReduceOp::kSum, kRanks, Algorithm::kHalvingDoubling));
  EXPECT_GT(seconds(DType::kF16, ReduceOp::kSum, kRanks, Algorithm::kRing),
            seconds(DType::kF32, ReduceOp::kSum, kRanks, Algorithm::kRing));
}

TEST(Selection, HasNothingToDoAlone) {
  const CollectiveQuery query{.bytes = 1000, .topology = one_host(1, false)};
  for (const Prediction& prediction : predict(query, {})) EXPECT_EQ(prediction.seconds, 0);
}

TEST(Selection, TakesAnAlgorithmThatCanDoUnequalParts) {
  const CollectiveQuery query{.kind = CollectiveKind::kAllToAll,
                              .bytes = 8,
                              .equal_parts = false,
                              .topology = one_host(16, false)};
  EXPECT_EQ(choose(query, {}), Algorithm::kDirect);
}

TEST(Topology, SeesRanksThatAreScatteredOverHosts) {
  const TopologySummary summary =
      summarize({.ranks = 5, .host_of_rank = {7, 3, 7, 7, 3}, .cores_per_host = 2});
  EXPECT_EQ(summary.hosts, 2);
  EXPECT_EQ(summary.most_per_host, 3);
  EXPECT_EQ(summary.least_per_host, 2);
  EXPECT_FALSE(summary.contiguous);
  EXPECT_DOUBLE_EQ(summary.crowd(), 1.5);
}

TEST(Topology, OfAPartKnowsTheHostsOfItsMembers) {
  const Topology world{.ranks = 5, .host_of_rank = {7, 3, 7, 7, 3}, .cores_per_host = 2};
  const Topology part = subset(world, std::vector<int>{4, 0, 3});
  EXPECT_EQ(part.ranks, 3);
  EXPECT_EQ(part.host_of_rank, (std::vector<int>{3, 7, 7}));
  EXPECT_EQ(part.cores_per_host, 2);
}

TEST(CostModel, IsReadFromJsonAndWrittenAsIt) {
  const CostModel model = parse_cost_model(
      R"({"shared_memory": {"sync_us": 2}, "tcp": {"latency_us": 50, "gb_per_s": 4}})", "test");
  EXPECT_DOUBLE_EQ(model.sync, 2e-6);
  EXPECT_DOUBLE_EQ(model.network_message.latency, 50e-6);
  EXPECT_DOUBLE_EQ(model.network_message.per_byte, 0.25e-9);
  EXPECT_DOUBLE_EQ(model.turn, CostModel().turn);
  const CostModel again = parse_cost_model(to_json(model), "test");
  EXPECT_NEAR(again.network_message.per_byte, model.network_message.per_byte, 1e-18);
  EXPECT_NEAR(again.shared_message.latency, model.shared_message.latency, 1e-15);
}

TEST(CostModel, IsWrittenInNumbersThatPeopleRead) {
  const std::string text =
      to_json({.sync = 0.48632e-6, .turn = 2e-6 / 3, .copy_per_byte = 1 / 7e9});
  for (const char* number : {"\"sync_us\": 0.48632,", "\"turn_us\": 0.666667\n",
                             "\"copy_gb_per_s\": 7.0,", "\"reduce_gb_per_s\": 12.0\n"}) {
    EXPECT_NE(text.find(number), std::string::npos) << number << " in " << text;
  }
}

TEST(CostModel, RefusesWhatItDoesNotKnowAndNamesIt) {
  try {
    parse_cost_model(R"({"tcp": {"latency": 50}})", "model.json");
    FAIL() << "an unknown key was accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("tcp.latency"), std::string::npos) << error.what();
  }
  EXPECT_THROW(parse_cost_model(R"({"tcp": {"gb_per_s": 0}})", "model.json"), ConfigError);
}

}  // namespace
}  // namespace dlaunch
