// Coalesced all_reduces and reductions of the caller's own.
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/comm/contract/contract.h"
#include "tests/comm/random_data.h"

namespace dlaunch::testing {
namespace {

class Worlds : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  const std::uint64_t seed_ = contract_seed();
};

// --- many buffers as one

class Coalesced : public Worlds {};

TEST_P(Coalesced, ReducesEveryPieceOfAnyLengthAndType) {
  const std::vector<std::size_t> lengths{3, 0, 1, 1'000, 17, 70'001, 0};
  run_ranks(world(), [&](Communicator& comm) {
    const auto check = [&]<typename T>(ReduceOp op, bool blocking) {
      std::vector<std::vector<T>> data;
      std::vector<Buffer> pieces;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        data.push_back(random_values<T>(seed_ + i, comm.rank(), lengths[i]));
      }
      for (auto& piece : data) pieces.emplace_back(piece);
      const Status status =
          blocking ? comm.all_reduce(pieces, op) : comm.start_all_reduce(pieces, op).wait();
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        std::vector<std::vector<T>> inputs;
        for (int rank = 0; rank < world(); ++rank) {
          inputs.push_back(random_values<T>(seed_ + i, rank, lengths[i]));
        }
        EXPECT_EQ(wrong_element(op, inputs, 0, data[i]), "") << "piece " << i << " seed " << seed_;
      }
    };
    for (const bool blocking : {true, false}) {
      check.operator()<float>(ReduceOp::kSum, blocking);
      check.operator()<std::int32_t>(ReduceOp::kAvg, blocking);
      check.operator()<BFloat16>(ReduceOp::kAvg, blocking);
      check.operator()<std::uint8_t>(ReduceOp::kMax, blocking);
    }
  });
}

TEST_P(Coalesced, OfNothingIsAnOperationToo) {
  run_ranks(world(), [](Communicator& comm) {
    EXPECT_TRUE(comm.all_reduce(std::span<const Buffer>()).ok());
    std::vector<float> nothing;
    const std::vector<Buffer> pieces{nothing, nothing};
    EXPECT_TRUE(comm.all_reduce(pieces).ok());
  });
}

// --- reductions of the caller's own

// Where the largest value is, and of the equal ones the one with the lowest index: 12 bytes.
struct Candidate {
  float value = 0;
  std::int32_t index = 0;
  std::uint8_t padding[4] = {};
  friend bool operator==(const Candidate&, const Candidate&) = default;
};

constexpr auto kBetter = [](Candidate& a, const Candidate& b) {
  if (b.value > a.value || (b.value == a.value && b.index < a.index)) a = b;
};

// A record that follows from its arguments (the mixing step of SplitMix64).
Candidate candidate(std::uint64_t seed, int rank, std::size_t i) {
  std::uint64_t bits =
      seed + 0x9e3779b97f4a7c15U * (static_cast<std::uint64_t>(rank) * 1'000'003 + i);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return {static_cast<float>((bits >> 32) % 5), static_cast<std::int32_t>(bits % 1'000)};
}

class Records : public Worlds {};

TEST_P(Records, AreReducedByAFunctionOfTheCallers) {
  run_ranks(world(), [&](Communicator& comm) {
    const auto inputs = [&](std::size_t count) {
      std::vector<Candidate> records;
      for (std::size_t i = 0; i < count; ++i) {
        records.push_back(candidate(seed_, comm.rank(), i));
      }
      return records;
    };
    const auto expected = [&](std::size_t i) {
      Candidate best = candidate(seed_, 0, i);
      for (int rank = 1; rank < world(); ++rank) {
        const Candidate other = candidate(seed_, rank, i);
        if (other.value > best.value || (other.value == best.value && other.index < best.index)) {
          best = other;
        }
      }
      return best;
    };
    const auto expect_best = [&](std::span<const Candidate> records, std::size_t first) {
      for (std::size_t i = 0; i < records.size(); ++i) {
        ASSERT_EQ(records[i], expected(first + i)) << "seed " << seed_ << " record " << i;
      }
    };
    const auto own = static_cast<std::size_t>(comm.rank());
    const auto p = static_cast<std::size_t>(world());
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{13}, std::size_t{30'001}}) {
      std::vector<Candidate> records = inputs(count);
      ASSERT_TRUE(comm.all_reduce_records(records, kBetter).ok());
      expect_best(records, 0);
      records = inputs(count);
      ASSERT_TRUE(comm.start_all_reduce_records(std::span(records), kBetter).wait().ok());
      expect_best(records, 0);

      const int root = world() - 1;
      const std::vector<Candidate> input = inputs(count);
      std::vector<Candidate> output(comm.rank() == root ? count : 0);
      ASSERT_TRUE(comm.reduce_records(input, output, kBetter, root).ok());
      expect_best(output, 0);

      const std::vector<Candidate> whole = inputs(count * p);
      std::vector<Candidate> part(count);
      ASSERT_TRUE(comm.reduce_scatter_records(whole, part, kBetter).ok());
      expect_best(part, own * count);
    }
    std::vector<std::size_t> counts(p, 2);
    counts[0] = 5;
    const std::vector<Candidate> whole = inputs(2 * p + 3);
    std::vector<Candidate> part(counts[own]);
    ASSERT_TRUE(comm.reduce_scatter_records(whole, part, kBetter, counts).ok());
    expect_best(part, own == 0 ? 0 : 2 * own + 3);
  });
}

// As floats are added: each record once, so that another order gives another sum.
TEST_P(Records, AreCombinedInTheOrderOfRanksIfSet) {
  struct Sum {
    float value = 0;
  };
  const auto value = [](int rank, std::size_t i) {
    constexpr std::array kValues{1e8F, 1.0F, -1e8F, 1.0F};
    return kValues[(static_cast<std::size_t>(rank) + i) % kValues.size()];
  };
  const auto add = [](Sum& a, const Sum& b) { a.value += b.value; };
  const auto expect_sums = [&](std::span<const Sum> sums, std::size_t first) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      float expected = value(0, first + i);
      for (int rank = 1; rank < world(); ++rank) expected += value(rank, first + i);
      ASSERT_EQ(sums[i].value, expected) << "record " << first + i;
    }
  };
  run_ranks(world(), [&](Communicator& comm) {
    comm.set_reduce_order(ReduceOrder::kRanks);
    const auto own = static_cast<std::size_t>(comm.rank());
    const auto p = static_cast<std::size_t>(world());
    std::vector<std::size_t> counts(p, 2);
    counts[0] = 5;
    std::vector<Sum> input;
    for (std::size_t i = 0; i < 2 * p + 3; ++i) input.push_back({value(comm.rank(), i)});
    std::vector<Sum> part(counts[own]);
    ASSERT_TRUE(comm.reduce_scatter_records(input, part, add, counts).ok());
    expect_sums(part, own == 0 ? 0 : 2 * own + 3);
    std::vector<Sum> whole(comm.rank() == 0 ? input.size() : 0);
    ASSERT_TRUE(comm.reduce_records(input, whole, add, 0).ok());
    expect_sums(whole, 0);
    ASSERT_TRUE(comm.start_all_reduce_records(std::span(input), add).wait().ok());
    expect_sums(input, 0);
  });
}

TEST_P(Records, GoThroughEveryAlgorithm) {
  run_ranks(world(), [&](Communicator& comm) {
    const RecordReduction reduction = record_reduction_of<Candidate>(kBetter);
    for (const Algorithm algorithm : contract_algorithms()) {
      std::vector<Candidate> records;
      std::vector<Candidate> expected;
      for (std::size_t i = 0; i < 101; ++i) {
        records.push_back(candidate(seed_, comm.rank(), i));
        expected.push_back(candidate(seed_, 0, i));
        for (int rank = 1; rank < world(); ++rank) {
          kBetter(expected[i], candidate(seed_, rank, i));
        }
      }
      const Buffer bytes(records.data(), records.size() * sizeof(Candidate), DType::kU8);
      const Status status = comm.run({.kind = CollectiveKind::kAllReduce,
                                      .input = bytes,
                                      .output = bytes,
                                      .record = &reduction,
                                      .algorithm = algorithm});
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(records, expected) << to_string(algorithm) << " seed " << seed_;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Coalesced, ::testing::ValuesIn(contract_worlds()));
INSTANTIATE_TEST_SUITE_P(Of, Records, ::testing::ValuesIn(contract_worlds()));

}  // namespace
}  // namespace dlaunch::testing
