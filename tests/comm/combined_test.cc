// Coalesced all_reduces and reductions of the caller's own, with threads as ranks.
#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/collective/algorithms.h"
#include "runtime/comm/communicator.h"
#include "tests/comm/random_data.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Worlds : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  const std::uint64_t seed_ = std::random_device{}();
};

// --- many buffers as one

class Coalesced : public Worlds {};

TEST_P(Coalesced, ReducesEveryPieceOfAnyLengthAndType) {
  const std::vector<std::size_t> lengths{3, 0, 1, 1'000, 17, 70'001, 0};
  run_threads_as_ranks(world(), [&](Communicator& comm) {
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
  run_threads_as_ranks(world(), [](Communicator& comm) {
    EXPECT_TRUE(comm.all_reduce(std::span<const Buffer>()).ok());
    std::vector<float> nothing;
    const std::vector<Buffer> pieces{nothing, nothing};
    EXPECT_TRUE(comm.all_reduce(pieces).ok());
  });
}

TEST(CoalescedMismatch, OfLengthsOrOrderIsFoundEvenIfTheTotalsAgree) {
  run_threads_as_ranks(3, [](Communicator& comm) {
    std::vector<float> two(2);
    std::vector<float> five(5);
    std::vector<Buffer> pieces{two, five};
    if (comm.rank() == 1) std::swap(pieces[0], pieces[1]);
    Status status = comm.all_reduce(pieces);
    if (status.ok()) status = comm.barrier();
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("f32[7]"));
    EXPECT_THAT(status.to_string(), HasSubstr("pieces #"));
  });
}

TEST(CoalescedValidation, RefusesTypesThatDifferAndOverlaps) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    std::vector<float> floats(4);
    std::vector<double> doubles(4);
    const auto refused = [&](const std::vector<Buffer>& pieces, const std::string& words) {
      const Status status = comm.all_reduce(pieces);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
      EXPECT_THAT(status.to_string(), HasSubstr(words));
    };
    refused({floats, doubles}, "all_reduce: piece 1 differs in type");
    refused({floats, floats}, "two pieces overlap");
    refused({std::span(floats).subspan(2, 2), std::span(floats).first(3)}, "two pieces overlap");
    refused({floats, Buffer(nullptr, 2, DType::kF32)}, "piece 1 is null");
    const std::vector<Buffer> descending{std::span(floats).last(2), std::span(floats).first(2)};
    EXPECT_TRUE(comm.all_reduce(descending).ok());
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
  run_threads_as_ranks(world(), [&](Communicator& comm) {
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
      ASSERT_TRUE(comm.all_reduce_records(std::span(records), kBetter).ok());
      expect_best(records, 0);
      records = inputs(count);
      ASSERT_TRUE(comm.start_all_reduce_records(std::span(records), kBetter).wait().ok());
      expect_best(records, 0);

      const int root = world() - 1;
      const std::vector<Candidate> input = inputs(count);
      std::vector<Candidate> output(comm.rank() == root ? count : 0);
      ASSERT_TRUE(comm.reduce_records(std::span(input), std::span(output), kBetter, root).ok());
      expect_best(output, 0);

      const std::vector<Candidate> whole = inputs(count * p);
      std::vector<Candidate> part(count);
      ASSERT_TRUE(comm.reduce_scatter_records(std::span(whole), std::span(part), kBetter).ok());
      expect_best(part, own * count);
    }
    std::vector<std::size_t> counts(p, 2);
    counts[0] = 5;
    const std::vector<Candidate> whole = inputs(2 * p + 3);
    std::vector<Candidate> part(counts[own]);
    ASSERT_TRUE(
        comm.reduce_scatter_records(std::span(whole), std::span(part), kBetter, counts).ok());
    expect_best(part, own == 0 ? 0 : 2 * own + 3);
  });
}

TEST_P(Records, GoThroughEveryAlgorithm) {
  run_threads_as_ranks(world(), [&](Communicator& comm) {
    const RecordReduction reduction = record_reduction_of<Candidate>(kBetter);
    for (const Algorithm algorithm : algorithms_of(CollectiveKind::kAllReduce)) {
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

TEST(RecordMismatch, OfSizesNamesBoth) {
  run_threads_as_ranks(3, [](Communicator& comm) {
    std::vector<std::uint32_t> words(12);
    std::vector<std::uint64_t> doubled(6);
    const auto first = []<typename T>(T& /*a*/, const T& /*b*/) {};
    Status status = comm.rank() == 2 ? comm.all_reduce_records(std::span(doubled), first)
                                     : comm.all_reduce_records(std::span(words), first);
    if (status.ok()) status = comm.barrier();
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_THAT(status.to_string(), AllOf(HasSubstr("all_reduce record(4 bytes)[12]"),
                                          HasSubstr("all_reduce record(8 bytes)[6]")));
  });
}

TEST(RecordValidation, RefusesWhatCannotBe) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    RecordReduction reduction = record_reduction_of<Candidate>(kBetter);
    std::vector<std::uint8_t> bytes(25);
    const auto refused = [&](CollectiveKind kind, Buffer data, const std::string& words) {
      const Status status =
          comm.run({.kind = kind, .input = data, .output = data, .record = &reduction});
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
      EXPECT_THAT(status.to_string(), HasSubstr(words));
    };
    refused(CollectiveKind::kAllReduce, bytes, "do not hold whole records");
    std::vector<float> floats(3);
    refused(CollectiveKind::kAllReduce, floats, "buffers of records are bytes");
    refused(CollectiveKind::kAllGather, bytes, "does not reduce");
    reduction.bytes = 0;
    refused(CollectiveKind::kAllReduce, bytes, "between 1 and 65535 bytes");
    reduction.combine = nullptr;
    refused(CollectiveKind::kAllReduce, bytes, "no function");
  });
}

INSTANTIATE_TEST_SUITE_P(Of, Coalesced, ::testing::Values(1, 2, 3, 4, 5, 8));
INSTANTIATE_TEST_SUITE_P(Of, Records, ::testing::Values(1, 2, 3, 4, 5, 8));

}  // namespace
}  // namespace dlaunch::testing
