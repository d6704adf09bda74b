// Ranks that disagree about coalesced all_reduces and reductions of the caller's own, and such
// calls as can never be.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

TEST(CoalescedMismatch, OfTheFirstPiecesIsFoundEvenIfTheLastAgrees) {
  run_threads_as_ranks(3, [](Communicator& comm) {
    std::vector<float> two(2);
    std::vector<float> five(5);
    std::vector<float> one(1);
    std::vector<Buffer> pieces{two, five, one};
    if (comm.rank() == 1) std::swap(pieces[0], pieces[1]);
    Status status = comm.all_reduce(pieces);
    if (status.ok()) status = comm.barrier();
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
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
    // Nothing overlaps nothing, wherever it is said to lie.
    const std::vector<Buffer> with_empty{std::span(floats).last(2), std::span(floats).subspan(1, 0),
                                         std::span(floats).first(2)};
    EXPECT_TRUE(comm.all_reduce(with_empty).ok());
  });
}

// Where the largest value is, and of the equal ones the one with the lowest index: 12 bytes.
struct Candidate {
  float value = 0;
  std::int32_t index = 0;
  std::uint8_t padding[4] = {};
};

constexpr auto kBetter = [](Candidate& a, const Candidate& b) {
  if (b.value > a.value || (b.value == a.value && b.index < a.index)) a = b;
};

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

TEST(RecordValidation, TakesTheLargestRecordAndNoLarger) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    const auto add_last = []<typename T>(T& a, const T& b) {
      a.back() = static_cast<std::uint8_t>(a.back() + b.back());
    };
    std::vector<std::array<std::uint8_t, 65'535>> largest(1);
    largest[0].back() = 3;
    EXPECT_TRUE(comm.all_reduce_records(std::span(largest), add_last).ok());
    EXPECT_EQ(largest[0].back(), 6);

    RecordReduction reduction = record_reduction_of<Candidate>(kBetter);
    reduction.bytes = 65'536;
    std::vector<std::uint8_t> bytes(65'536);
    EXPECT_EQ(comm.run({.kind = CollectiveKind::kAllReduce,
                        .input = bytes,
                        .output = bytes,
                        .record = &reduction})
                  .code(),
              StatusCode::kInvalidArgument);
  });
}

// More bytes than any memory has, though not more elements than of some other type.
TEST(RecordValidation, RefusesImpossibleCounts) {
  struct alignas(64) Line {
    char text[64];
  };
  run_threads_as_ranks(2, [](Communicator& comm) {
    const std::vector<Line> input(1);
    std::vector<Line> output(comm.rank() == 1 ? 1 : 0);
    const std::vector<std::size_t> counts{std::size_t{1} << 44, 1};
    const Status status = comm.reduce_scatter_records(
        std::span(input), std::span(output), [](Line& /*a*/, const Line& /*b*/) {}, counts);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("impossible count"));
  });
}

}  // namespace
}  // namespace dlaunch::testing
