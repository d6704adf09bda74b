// PlanExecution over the loopback network, with plans made by hand and real ones.
#include "runtime/collective/executor.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/collective/algorithms.h"
#include "tests/collective/loopback_plans.h"

namespace dlaunch::testing {
namespace {

constexpr std::size_t kSegment = kSegmentBytes / sizeof(std::int32_t);

std::byte* bytes_of(std::vector<std::int32_t>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

std::vector<std::int32_t> random_integers(std::size_t count, std::mt19937& random) {
  std::vector<std::int32_t> values(count);
  for (std::int32_t& value : values) value = static_cast<std::int32_t>(random() % 100'000);
  return values;
}

Assignment assignment_of(const Plan& plan, std::vector<std::int32_t>& data,
                         std::uint64_t sequence = 1) {
  return {.plan = &plan,
          .input = bytes_of(data),
          .output = bytes_of(data),
          .dtype = DType::kI32,
          .tag = {.sequence = sequence}};
}

std::vector<Plan> plans_of(Algorithm algorithm, int world, std::size_t count) {
  std::vector<Plan> plans;
  for (int rank = 0; rank < world; ++rank) {
    plans.push_back(make_plan({.kind = CollectiveKind::kAllReduce,
                               .algorithm = algorithm,
                               .rank = rank,
                               .world = world,
                               .count = count}));
  }
  return plans;
}

std::vector<std::int32_t> sum(const std::vector<std::vector<std::int32_t>>& vectors) {
  std::vector<std::int32_t> total(vectors[0].size());
  for (const auto& vector : vectors) {
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += vector[i];
  }
  return total;
}

class Executor : public ::testing::Test {
 protected:
  const unsigned seed_ = std::random_device{}();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  std::mt19937 random_{seed_};
};

TEST_F(Executor, CutsLongMessagesIntoSegmentsAndPutsThemTogether) {
  for (const std::size_t count :
       {kSegment - 1, kSegment, kSegment + 1, (kSegmentsInFlight + 2) * kSegment + 7}) {
    for (const Algorithm algorithm :
         {Algorithm::kButterfly, Algorithm::kRing, Algorithm::kDirect}) {
      SCOPED_TRACE(std::string(to_string(algorithm)) + " of " + std::to_string(count));
      LoopbackPlans world(3);
      const std::vector<Plan> plans = plans_of(algorithm, 3, count);
      std::vector<std::vector<std::int32_t>> data;
      for (int rank = 0; rank < 3; ++rank) data.push_back(random_integers(count, random_));
      const auto want = sum(data);
      for (std::size_t rank = 0; rank < 3; ++rank) {
        world.executions[rank]->start(assignment_of(plans[rank], data[rank]));
      }
      world.drive_all();
      for (const auto& result : data) ASSERT_EQ(result, want);
    }
  }
}

TEST_F(Executor, RunsTwoExecutionsOfOneEndpointAtOnceWithoutMixingThem) {
  constexpr std::size_t kLong = 3 * kSegment + 5;
  constexpr std::size_t kShort = 11;
  LoopbackPlans world(2);
  const std::vector<Plan> long_plans = plans_of(Algorithm::kRing, 2, kLong);
  const std::vector<Plan> short_plans = plans_of(Algorithm::kButterfly, 2, kShort);
  std::vector<std::vector<std::int32_t>> long_data;
  std::vector<std::vector<std::int32_t>> short_data;
  std::vector<std::unique_ptr<PlanExecution>> others;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    long_data.push_back(random_integers(kLong, random_));
    short_data.push_back(random_integers(kShort, random_));
    others.push_back(std::make_unique<PlanExecution>(*world.endpoints[rank]));
  }
  const auto long_want = sum(long_data);
  const auto short_want = sum(short_data);
  // Rank 0 has not begun the long one: the short one ends nevertheless.
  world.executions[1]->start(assignment_of(long_plans[1], long_data[1], 1));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    others[rank]->start(assignment_of(short_plans[rank], short_data[rank], 2));
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!(others[0]->done() && others[1]->done()) && !deadline.expired()) {
    for (std::size_t rank = 0; rank < 2; ++rank) world.drive(rank, *others[rank]);
  }
  ASSERT_TRUE(others[0]->done() && others[1]->done());
  EXPECT_EQ(short_data[0], short_want);
  EXPECT_EQ(short_data[1], short_want);
  EXPECT_FALSE(world.executions[1]->done());
  EXPECT_EQ(world.executions[1]->waiting_for(), std::vector<int>{0});
  world.executions[0]->start(assignment_of(long_plans[0], long_data[0], 1));
  world.drive_all();
  EXPECT_EQ(long_data[0], long_want);
  EXPECT_EQ(long_data[1], long_want);
}

// An endpoint that never sends anything; it counts what it was asked to send.
class SilentEndpoint final : public Endpoint {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  void start_send(Transfer& transfer) override { sends.push_back(&transfer); }
  void start_recv(Transfer& transfer) override { recvs.push_back(&transfer); }
  void cancel(Transfer& transfer, Status why) override {
    ++cancelled;
    transfer.complete(std::move(why));
  }
  void poll(Deadline /*deadline*/, const Readiness* /*also*/) override {}
  void wake() override {}
  Status failure() const override { return Status(); }
  void fail(Status /*why*/) override {}
  const char* transport_name(int /*peer*/) const override { return "none"; }

  std::vector<Transfer*> sends;
  std::vector<Transfer*> recvs;
  int cancelled = 0;
};

TEST_F(Executor, HandsOverOnlyAFewSegmentsToOnePeerAtATime) {
  constexpr std::size_t kSegments = 20;
  SilentEndpoint endpoint;
  PlanExecution execution(endpoint);
  auto data = random_integers(kSegments * kSegment, random_);
  const Plan plan{.steps = {{.sends = {{1, {Region::kInput, 0, data.size()}}}}}};
  execution.start(assignment_of(plan, data));
  for (std::size_t sent = 0; sent < kSegments; ++sent) {
    EXPECT_EQ(endpoint.sends.size(), std::min(sent + kSegmentsInFlight, kSegments));
    EXPECT_FALSE(execution.done());
    endpoint.sends[sent]->complete(Status());
    execution.advance();
  }
  EXPECT_TRUE(execution.done());
  EXPECT_EQ(endpoint.sends.size(), kSegments);
}

TEST_F(Executor, TellsStepAndPeerOfAFailureAndWithdrawsTheRest) {
  SilentEndpoint endpoint;
  PlanExecution execution(endpoint);
  auto data = random_integers(4, random_);
  const Slice whole{Region::kOutput, 0, 4};
  const Plan plan{.steps = {{.copies = {{whole, whole}}},
                            {.sends = {{1, whole}}, .recvs = {{.peer = 1, .into = whole}}}}};
  execution.start(assignment_of(plan, data));
  execution.advance();
  ASSERT_EQ(endpoint.recvs.size(), 1U);
  endpoint.recvs[0]->complete(Status::about_peer(StatusCode::kPeerLost, 1, "connection reset"));
  execution.advance();
  EXPECT_TRUE(execution.done());
  EXPECT_EQ(execution.status().to_string(), "step 1: peer 1: connection reset");
  EXPECT_EQ(endpoint.cancelled, 1);  // the send
}

TEST_F(Executor, EndsWhenCancelledAndCanBeStartedAgain) {
  SilentEndpoint endpoint;
  PlanExecution execution(endpoint);
  auto data = random_integers(4, random_);
  const Plan plan{.steps = {{.recvs = {{.peer = 1, .into = {Region::kOutput, 0, 4}}}}}};
  execution.start(assignment_of(plan, data));
  EXPECT_EQ(execution.waiting_for(), std::vector<int>{1});
  execution.cancel(Status(StatusCode::kTimeout, "gave up"));
  EXPECT_TRUE(execution.done());
  EXPECT_EQ(execution.status().code(), StatusCode::kTimeout);
  EXPECT_EQ(endpoint.cancelled, 1);
  EXPECT_TRUE(execution.waiting_for().empty());

  execution.start(assignment_of(plan, data));
  EXPECT_FALSE(execution.done());
  EXPECT_TRUE(execution.status().ok());
  endpoint.recvs[1]->complete(Status());
  execution.advance();
  EXPECT_TRUE(execution.done());
  EXPECT_TRUE(execution.status().ok());
}

// Records of 12 bytes: a key and a value, of which the one with the larger value stays.
struct Record {
  std::int32_t key;
  std::int32_t value;
  std::int32_t unused;
  friend bool operator==(const Record&, const Record&) = default;
};

void keep_larger(void* accumulator, const void* operand, std::size_t count, const void* context) {
  *static_cast<int*>(const_cast<void*>(context)) += 1;
  auto* mine = static_cast<Record*>(accumulator);
  const auto* theirs = static_cast<const Record*>(operand);
  for (std::size_t i = 0; i < count; ++i) {
    const auto rank_of = [](const Record& record) { return std::pair(record.value, record.key); };
    if (rank_of(mine[i]) < rank_of(theirs[i])) mine[i] = theirs[i];
  }
}

TEST_F(Executor, ReducesRecordsWithTheCallersFunction) {
  const std::size_t many = kSegmentBytes / sizeof(Record) + 3;  // more than a segment
  for (const std::size_t count : {std::size_t{0}, std::size_t{5}, many}) {
    for (const Algorithm algorithm : algorithms_of(CollectiveKind::kAllReduce)) {
      for (const ReduceOrder order : {ReduceOrder::kAny, ReduceOrder::kRanks}) {
        constexpr int kWorld = 5;
        SCOPED_TRACE(std::string(to_string(algorithm)) + " of " + std::to_string(count));
        LoopbackPlans world(kWorld);
        int calls = 0;
        const RecordReduction record{sizeof(Record), keep_larger, &calls};
        std::vector<Plan> plans;
        std::vector<std::vector<Record>> data(kWorld);
        std::vector<Record> want(count, Record{-1, -1, 0});
        for (int rank = 0; rank < kWorld; ++rank) {
          plans.push_back(make_plan({.kind = CollectiveKind::kAllReduce,
                                     .algorithm = algorithm,
                                     .order = order,
                                     .rank = rank,
                                     .world = kWorld,
                                     .count = count}));
          for (std::size_t i = 0; i < count; ++i) {
            const Record own{rank, static_cast<std::int32_t>(random_() % 50), 7};
            data[static_cast<std::size_t>(rank)].push_back(own);
            if (own.value >= want[i].value) want[i] = own;
          }
        }
        for (std::size_t rank = 0; rank < kWorld; ++rank) {
          auto* memory = reinterpret_cast<std::byte*>(data[rank].data());
          world.executions[rank]->start(
              {.plan = &plans[rank], .input = memory, .output = memory, .record = &record});
        }
        world.drive_all();
        for (const auto& result : data) ASSERT_EQ(result, want);
        EXPECT_EQ(calls > 0, count > 0);
      }
    }
  }
}

// A reduce_scatter may leave its part at the beginning of the input.
TEST_F(Executor, LeavesAPartAtTheBeginningOfTheInput) {
  const std::vector<std::size_t> counts{3, 7, 0, 5, 2};
  const Partition parts = Partition::of(counts);
  for (const Algorithm algorithm : algorithms_of(CollectiveKind::kReduceScatter)) {
    for (const ReduceOrder order : {ReduceOrder::kAny, ReduceOrder::kRanks}) {
      SCOPED_TRACE(to_string(algorithm));
      LoopbackPlans world(5);
      std::vector<Plan> plans;
      std::vector<std::vector<std::int32_t>> data;
      for (int rank = 0; rank < 5; ++rank) {
        plans.push_back(make_plan({.kind = CollectiveKind::kReduceScatter,
                                   .algorithm = algorithm,
                                   .order = order,
                                   .rank = rank,
                                   .world = 5,
                                   .count = parts.total(),
                                   .counts = counts}));
        data.push_back(random_integers(parts.total(), random_));
      }
      const auto want = sum(data);
      for (std::size_t rank = 0; rank < 5; ++rank) {
        world.executions[rank]->start(assignment_of(plans[rank], data[rank]));
      }
      world.drive_all();
      for (int rank = 0; rank < 5; ++rank) {
        const auto& result = data[static_cast<std::size_t>(rank)];
        for (std::size_t i = 0; i < parts.count(rank); ++i) {
          ASSERT_EQ(result[i], want[parts.offset(rank) + i]) << "rank " << rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace dlaunch::testing
