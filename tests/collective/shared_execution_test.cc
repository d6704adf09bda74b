// Collectives in shared memory, carried out: long vectors in memory of every kind, by threads
// (which read each other's slots and heaps) and by processes (which may read each other's memory).
#include <csignal>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/comm/random_data.h"
#include "tests/support/distributed_test.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/soon.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Index = std::ptrdiff_t;

// Which ranks have their vectors in memory from Communicator::allocate.
enum class Allocated { kNobody, kEverybody, kRankZero, kOddRanks };
constexpr Allocated kPlacements[] = {Allocated::kNobody, Allocated::kEverybody,
                                     Allocated::kRankZero, Allocated::kOddRanks};

bool allocates(Allocated who, int rank) {
  return who == Allocated::kEverybody || (who == Allocated::kRankZero && rank == 0) ||
         (who == Allocated::kOddRanks && rank % 2 == 1);
}

// Whole numbers, so that sums are exact in whatever order.
constexpr std::size_t kPeriod = 509;
float value_of(int rank, std::size_t index) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 37 + index * 11) % kPeriod);
}
float sum_of(int world, std::size_t index) {
  float sum = 0;
  for (int rank = 0; rank < world; ++rank) sum += value_of(rank, index);
  return sum;
}

class Vector {
 public:
  Vector(Communicator& comm, Allocated who, std::size_t count) {
    if (allocates(who, comm.rank())) {
      shared_ = comm.allocate(count * sizeof(float)).value_or_throw();
      values_ = shared_.as<float>();
    } else {
      own_.resize(count);
      values_ = own_;
    }
    std::ranges::fill(values_, -1.0F);
  }
  std::span<float> all() { return values_; }
  std::span<float> part(std::size_t offset, std::size_t count) {
    return values_.subspan(offset, count);
  }

 private:
  SharedMemory shared_;
  std::vector<float> own_;
  std::span<float> values_;
};

void fill_inputs(std::span<float> values, int rank) {
  float* const begin = values.data();
  const std::size_t count = values.size();
  for (std::size_t i = 0; i < std::min(kPeriod, count); ++i) begin[i] = value_of(rank, i);
  for (std::size_t i = kPeriod; i < count; ++i) begin[i] = begin[i - kPeriod];
}

// The first element that differs from want(index), or nothing. As inputs, what is wanted repeats
// itself every kPeriod elements, so it is computed once: sanitizers make every call a slow one.
std::string first_wrong(std::span<const float> values,
                        const std::function<float(std::size_t)>& want) {
  std::array<float, kPeriod> wanted{};
  for (std::size_t i = 0; i < kPeriod; ++i) wanted[i] = want(i);
  const float* const begin = values.data();
  const float* const expected = wanted.data();
  const std::size_t count = values.size();
  std::size_t within = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (begin[i] != expected[within]) {
      return "element " + std::to_string(i) + " of " + std::to_string(count) + " is " +
             std::to_string(begin[i]) + ", not " + std::to_string(expected[within]);
    }
    if (++within == kPeriod) within = 0;
  }
  return "";
}

// Unequal parts; together longer than a slot; one is empty, another short.
std::vector<std::size_t> long_counts(int world) {
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < world; ++rank) {
    counts.push_back(rank == 1 ? 0 : rank == 2 ? 5 : 170'001 + 3 * static_cast<std::size_t>(rank));
  }
  counts[0] += 100'000;
  return counts;
}

std::size_t offset_of(const std::vector<std::size_t>& counts, int part) {
  return std::accumulate(counts.begin(), counts.begin() + part, std::size_t{0});
}

void check_rooted(Communicator& comm, Allocated who, std::size_t count) {
  for (int root = 0; root < comm.size(); ++root) {
    Vector data(comm, who, count);
    if (comm.rank() == root) fill_inputs(data.all(), root);
    ASSERT_TRUE(comm.broadcast(data.all(), root).ok());
    ASSERT_EQ(first_wrong(data.all(), [&](std::size_t i) { return value_of(root, i); }), "");
    // Written over at once, in case somebody still reads it.
    fill_inputs(data.all(), comm.rank());
    Vector result(comm, who, count);
    const bool in_place = root % 2 == 0;
    const std::span<float> into = in_place ? data.all() : result.all();
    ASSERT_TRUE(comm.reduce(data.all(), into, ReduceOp::kSum, root).ok());
    if (comm.rank() != root) continue;
    ASSERT_EQ(first_wrong(into, [&](std::size_t i) { return sum_of(comm.size(), i); }), "");
  }
}

void check_parts_of_root(Communicator& comm, Allocated who, bool in_place) {
  const auto counts = long_counts(comm.size());
  const std::size_t own = offset_of(counts, comm.rank());
  const std::size_t mine = counts[static_cast<std::size_t>(comm.rank())];
  const std::size_t whole = offset_of(counts, comm.size());
  for (const int root : {0, comm.size() - 1}) {
    Vector data(comm, who, whole);
    Vector part(comm, who, mine);
    if (comm.rank() == root) fill_inputs(data.all(), root);
    const std::span<float> into =
        in_place && comm.rank() == root ? data.part(own, mine) : part.all();
    ASSERT_TRUE(comm.scatter(data.all(), into, root, counts).ok());
    ASSERT_EQ(first_wrong(into, [&](std::size_t i) { return value_of(root, own + i); }), "");
    fill_inputs(into, comm.rank());
    ASSERT_TRUE(comm.gather(into, data.all(), root, counts).ok());
    std::ranges::fill(part.all(), -2.0F);
    if (comm.rank() != root) continue;
    for (int from = 0; from < comm.size(); ++from) {
      const auto piece = data.part(offset_of(counts, from), counts[static_cast<std::size_t>(from)]);
      ASSERT_EQ(first_wrong(piece, [&](std::size_t i) { return value_of(from, i); }), "");
    }
  }
}

void check_all_gather(Communicator& comm, Allocated who, bool in_place) {
  const auto counts = long_counts(comm.size());
  const std::size_t mine = counts[static_cast<std::size_t>(comm.rank())];
  Vector data(comm, who, offset_of(counts, comm.size()));
  Vector part(comm, who, mine);
  const std::span<float> from =
      in_place ? data.part(offset_of(counts, comm.rank()), mine) : part.all();
  fill_inputs(from, comm.rank());
  ASSERT_TRUE(comm.all_gather(from, data.all(), counts).ok());
  std::ranges::fill(part.all(), -2.0F);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto piece = data.part(offset_of(counts, rank), counts[static_cast<std::size_t>(rank)]);
    ASSERT_EQ(first_wrong(piece, [&](std::size_t i) { return value_of(rank, i); }), "");
  }
}

void check_reduce_scatter(Communicator& comm, Allocated who) {
  const auto counts = long_counts(comm.size());
  const std::size_t own = offset_of(counts, comm.rank());
  const std::size_t mine = counts[static_cast<std::size_t>(comm.rank())];
  Vector apart(comm, who, mine);
  for (const int where : {0, 1, 2}) {
    Vector data(comm, who, offset_of(counts, comm.size()));
    fill_inputs(data.all(), comm.rank());
    // Beside the input, where the part lies in it, and at its beginning, which others read.
    const std::span<float> into = where == 0   ? apart.all()
                                  : where == 1 ? data.part(own, mine)
                                               : data.part(0, mine);
    const Status status = comm.reduce_scatter(data.all(), into, ReduceOp::kSum, counts);
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_EQ(first_wrong(into, [&](std::size_t i) { return sum_of(comm.size(), own + i); }), "")
        << "output " << where;
  }
}

void check_all_to_all(Communicator& comm, Allocated who) {
  const std::size_t each = 120'007;
  const auto p = static_cast<std::size_t>(comm.size());
  Vector from(comm, who, p * each);
  Vector into(comm, who, p * each);
  fill_inputs(from.all(), comm.rank());
  ASSERT_TRUE(comm.all_to_all(from.all(), into.all()).ok());
  std::ranges::fill(from.all(), -2.0F);
  const std::size_t own = static_cast<std::size_t>(comm.rank()) * each;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto piece = into.part(static_cast<std::size_t>(rank) * each, each);
    ASSERT_EQ(first_wrong(piece, [&](std::size_t i) { return value_of(rank, own + i); }), "");
  }
}

void check_everything(Communicator& comm) {
  for (const Allocated who : kPlacements) {
    SCOPED_TRACE("placement " + std::to_string(static_cast<int>(who)));
    for (const std::size_t count : {std::size_t{6'007}, std::size_t{700'001}}) {
      Vector data(comm, who, count);
      fill_inputs(data.all(), comm.rank());
      ASSERT_TRUE(comm.all_reduce(data.all()).ok());
      ASSERT_EQ(first_wrong(data.all(), [&](std::size_t i) { return sum_of(comm.size(), i); }), "");
      ASSERT_NO_FATAL_FAILURE(check_rooted(comm, who, count));
    }
    for (const bool in_place : {false, true}) {
      ASSERT_NO_FATAL_FAILURE(check_parts_of_root(comm, who, in_place));
      ASSERT_NO_FATAL_FAILURE(check_all_gather(comm, who, in_place));
    }
    ASSERT_NO_FATAL_FAILURE(check_reduce_scatter(comm, who));
    ASSERT_NO_FATAL_FAILURE(check_all_to_all(comm, who));
  }
}

void check_averages_and_records(Communicator& comm, std::uint64_t seed) {
  for (const DType dtype : kAllDTypes) {
    visit_dtype(dtype, [&]<typename T>() {
      const std::size_t count = (std::size_t{1} << 20) / sizeof(T) + 1'009;
      std::vector<std::vector<T>> inputs;
      for (int rank = 0; rank < comm.size(); ++rank) {
        inputs.push_back(random_values<T>(seed, rank, count));
      }
      std::vector<T> data = inputs[static_cast<std::size_t>(comm.rank())];
      ASSERT_TRUE(comm.all_reduce(data, ReduceOp::kAvg).ok());
      EXPECT_EQ(wrong_element(ReduceOp::kAvg, inputs, 0, data), "") << "seed " << seed;
    });
  }
  using Record = std::array<std::int32_t, 7>;
  const auto greater = [](Record& a, const Record& b) {
    if (b[0] > a[0]) a = b;
  };
  std::vector<Record> records(60'013);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const int rank = comm.rank();
    const auto turn = static_cast<int>(i % static_cast<std::size_t>(comm.size()));
    records[i] = {rank == turn ? 100 : rank, rank, static_cast<std::int32_t>(i)};
  }
  ASSERT_TRUE(comm.all_reduce_records(std::span(records), greater).ok());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto turn = static_cast<std::int32_t>(i % static_cast<std::size_t>(comm.size()));
    ASSERT_EQ(records[i], (Record{100, turn, static_cast<std::int32_t>(i)})) << i;
  }
}

void check_rank_order(Communicator& comm, std::uint64_t seed) {
  comm.set_reduce_order(ReduceOrder::kRanks);
  for (const std::size_t count : {std::size_t{97}, std::size_t{30'011}, std::size_t{400'003}}) {
    const auto input = random_values<float>(seed, comm.rank(), count);
    std::vector<float> expected(count);
    for (int rank = 0; rank < comm.size(); ++rank) {
      const auto theirs = random_values<float>(seed, rank, count);
      for (std::size_t i = 0; i < count; ++i) {
        expected[i] = rank == 0 ? theirs[i] : expected[i] + theirs[i];
      }
    }
    for (const Algorithm algorithm :
         {Algorithm::kAuto, Algorithm::kDirect, Algorithm::kRing, Algorithm::kTree}) {
      std::vector<float> data = input;
      ASSERT_TRUE(comm.all_reduce(data, ReduceOp::kSum, algorithm).ok());
      EXPECT_EQ(std::memcmp(data.data(), expected.data(), count * sizeof(float)), 0)
          << to_string(algorithm) << ", " << count << " elements, seed " << seed;
    }
  }
  comm.set_reduce_order(ReduceOrder::kAny);
}

// Of parts that lie anywhere: the bits of the sums in the order of ranks, whatever pieces they
// take.
void check_parts_in_rank_order(Communicator& comm, std::uint64_t seed) {
  comm.set_reduce_order(ReduceOrder::kRanks);
  const auto counts = long_counts(comm.size());
  const std::size_t own = offset_of(counts, comm.rank());
  const std::size_t whole = offset_of(counts, comm.size());
  std::vector<float> expected(whole);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto theirs = random_values<float>(seed, rank, whole);
    for (std::size_t i = 0; i < whole; ++i) {
      expected[i] = rank == 0 ? theirs[i] : expected[i] + theirs[i];
    }
  }
  const auto input = random_values<float>(seed, comm.rank(), whole);
  std::vector<float> part(counts[static_cast<std::size_t>(comm.rank())]);
  ASSERT_TRUE(comm.reduce_scatter(input, part, ReduceOp::kSum, counts).ok());
  EXPECT_TRUE(std::ranges::equal(part, std::span(expected).subspan(own, part.size())))
      << "seed " << seed;
  std::vector<float> all(whole);
  const int root = comm.size() - 1;
  ASSERT_TRUE(comm.reduce(input, all, ReduceOp::kSum, root).ok());
  if (comm.rank() == root) {
    EXPECT_TRUE(std::ranges::equal(all, expected)) << "seed " << seed;
  }
  comm.set_reduce_order(ReduceOrder::kAny);
}

// Of which few fit a slot.
void check_large_records(Communicator& comm) {
  using Record = std::array<std::int32_t, 4'000>;
  const auto add = [](Record& a, const Record& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  };
  const auto p = static_cast<std::size_t>(comm.size());
  std::vector<Record> input(41 * p);
  for (std::size_t i = 0; i < input.size(); ++i) {
    input[i].fill(static_cast<std::int32_t>(i) + comm.rank());
  }
  std::vector<Record> part(41);
  ASSERT_TRUE(
      comm.reduce_scatter_records(std::span<const Record>(input), std::span(part), add).ok());
  const int ranks = comm.size() * (comm.size() - 1) / 2;
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto index = static_cast<std::int32_t>(41 * static_cast<std::size_t>(comm.rank()) + i);
    ASSERT_EQ(std::ranges::count(part[i], index * comm.size() + ranks), std::ssize(part[i])) << i;
  }
}

// Of both channels at once, waited for in another order than begun.
void check_many_in_flight(Communicator& comm) {
  std::vector<std::vector<float>> data;
  for (int i = 0; i < 40; ++i) data.emplace_back(i % 5 == 0 ? 600'011 : 1 + 300 * i);
  for (auto& values : data) fill_inputs(values, comm.rank());
  std::vector<Work> works;
  for (auto& values : data) works.push_back(comm.start_all_reduce(values));
  for (std::size_t i = works.size(); i-- > 0;) {
    const Status status = works[i].wait();
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_EQ(first_wrong(data[i], [&](std::size_t k) { return sum_of(comm.size(), k); }), "") << i;
  }
}

using Body = std::function<void(Communicator&)>;

class SharedExecutions : public DistributedTestWith<bool> {
 protected:
  void run_body(const Body& body) {
    if (std::get<1>(GetParam())) {
      ASSERT_TRUE(share_memory()) << "to be run with DLAUNCH_TEST_SHARED_MEMORY=1";
      run_threads_as_ranks(workers(), body);
    } else {
      run(body, {.environment = {{"DLAUNCH_TRANSPORT", "shm"}}});
    }
  }
};

TEST_P(SharedExecutions, MoveLongVectorsWhereverTheyLie) {
  run_body(check_everything);
}

TEST_P(SharedExecutions, ReduceEveryTypeAndRecords) {
  const std::uint64_t seed = run_seed();
  run_body([&](Communicator& comm) {
    check_averages_and_records(comm, seed);
    check_large_records(comm);
  });
}

TEST_P(SharedExecutions, GiveTheBitsOfRankOrder) {
  const std::uint64_t seed = run_seed();
  run_body([&](Communicator& comm) {
    check_rank_order(comm, seed);
    check_parts_in_rank_order(comm, seed);
  });
}

TEST_P(SharedExecutions, OfManyCallsInFlightDoNotMix) {
  run_body(check_many_in_flight);
}

INSTANTIATE_TEST_SUITE_P(Worlds, SharedExecutions,
                         ::testing::Combine(::testing::Values(2, 3, 5), ::testing::Bool()),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) +
                                  (std::get<1>(test.param) ? "_threads" : "_processes");
                         });

constexpr int kWorld = 4;
constexpr int kVictim = 2;

// As if each had a core of its own, or all had to take turns.
ForkedRanks::Options four_on_one_host(const char* cores) {
  return {.hosts = std::vector<int>(kWorld, 0),
          .environment = {{"DLAUNCH_TRANSPORT", "shm"}, {"DLAUNCH_LOCAL_CORES", cores}}};
}

// Long operations until one fails, and then what it said.
std::string reduce_until_it_fails(Communicator& world, LineChannel& test, bool allocated,
                                  StatusCode code) {
  Vector data(world, allocated ? Allocated::kEverybody : Allocated::kNobody, 2'000'003);
  std::ranges::fill(data.all(), 0.0F);
  for (int round = 0;; ++round) {
    if (round == 2) test.write_line("ready");
    const Status status = world.all_reduce(data.all());
    if (status.ok()) continue;
    const bool right = status.code() == code && status.peer() == kVictim;
    return right ? "as expected" : status.to_string();
  }
}

class DyingInSharedMemory : public ::testing::TestWithParam<std::tuple<bool, const char*>> {
 protected:
  static bool allocated() { return std::get<0>(GetParam()); }
  static ForkedRanks::Options options() { return four_on_one_host(std::get<1>(GetParam())); }
};

TEST_P(DyingInSharedMemory, KilledInTheMiddleOfALongOperationIsNamedPromptly) {
  ForkedRanks ranks(options(), [](Communicator& world, LineChannel& test) {
    return reduce_until_it_fails(world, test, allocated(), StatusCode::kPeerLost);
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    ASSERT_EQ(ranks[rank].read_line(Deadline::after(30s)), "ready") << "rank " << rank;
  }
  ranks.send_signal(kVictim, SIGKILL);
  const auto killed = Clock::now();
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_EQ(ranks[rank].read_line(Deadline::after(20s)), "as expected") << "rank " << rank;
  }
  EXPECT_LT(Clock::now() - killed, kPromptly);
}

TEST_P(DyingInSharedMemory, LeavingWhileOthersNeedItIsNamed) {
  ForkedRanks ranks(options(), [](Communicator& world, LineChannel& test) {
    if (world.rank() == kVictim) return std::string("left");
    return reduce_until_it_fails(world, test, allocated(), StatusCode::kPeerLeft);
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(ranks[rank].read_line(Deadline::after(20s)), rank == kVictim ? "left" : "as expected")
        << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, DyingInSharedMemory,
                         ::testing::Combine(::testing::Bool(), ::testing::Values("1", "64")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "allocated" : "plain") +
                                  "_" + std::get<1>(test.param) + "_cores";
                         });

}  // namespace
}  // namespace dlaunch::testing
