// Bad arguments are refused before anything is sent, and fail nothing.
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;

// Whatever is only there until the end of the expression.
static_assert(std::is_constructible_v<ConstBuffer, const std::vector<float>&>);
static_assert(std::is_constructible_v<ConstBuffer, std::span<const float>>);
static_assert(std::is_constructible_v<Buffer, std::array<std::int64_t, 3>&>);
static_assert(std::is_constructible_v<Buffer, std::span<double>>);
static_assert(!std::is_constructible_v<ConstBuffer, std::vector<float>>);
static_assert(!std::is_constructible_v<ConstBuffer, const std::array<float, 3>>);
static_assert(!std::is_constructible_v<Buffer, std::vector<float>>);
static_assert(!std::is_constructible_v<Buffer, const std::vector<float>&>);

class Validation : public ::testing::Test {
 protected:
  // `call` is refused with `words`, on every rank, and the world still works.
  static void expect_refused(const std::function<Status(Communicator&)>& call,
                             const std::string& words) {
    run_threads_as_ranks(3, [&](Communicator& comm) {
      const Status status = call(comm);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
      EXPECT_THAT(status.to_string(), HasSubstr(words));
      EXPECT_TRUE(comm.barrier().ok());
    });
  }
};

TEST_F(Validation, RefusesNullMemory) {
  expect_refused([](Communicator& c) { return c.all_reduce(Buffer(nullptr, 3, DType::kF32)); },
                 "all_reduce: input is null but has 3 elements");
  expect_refused([](Communicator& c) { return c.send(ConstBuffer(nullptr, 1, DType::kU8), 0); },
                 "send: data is null");
  expect_refused(
      [](Communicator& c) { return c.start_recv(Buffer(nullptr, 1, DType::kU8), 0).wait(); },
      "recv: data is null");
}

TEST_F(Validation, RefusesRootsAndPeersOutsideTheWorld) {
  std::vector<float> data(3);
  for (const int root : {-1, 3, std::numeric_limits<int>::max()}) {
    const auto number = std::to_string(root);
    expect_refused([&](Communicator& c) { return c.broadcast(data, root); },
                   "root " + number + " is not in a world of 3");
    expect_refused([&](Communicator& c) { return c.send(data, root); },
                   "peer " + number + " is not in a world of 3");
    if (root == kAnyRank) continue;
    expect_refused([&](Communicator& c) { return c.recv(data, root); },
                   "peer " + number + " is not in a world of 3");
  }
}

TEST_F(Validation, RefusesCountsThatDoNotAddUp) {
  std::vector<float> three(3);
  std::vector<float> ten(10);
  const std::vector<std::size_t> two_counts{1, 2};
  const std::vector<std::size_t> sum_nine{3, 3, 3};
  const std::vector<std::size_t> overflowing{3, std::numeric_limits<std::size_t>::max() - 1, 3};
  expect_refused([&](Communicator& c) { return c.all_gather(three, ten); }, "add up to 9");
  expect_refused([&](Communicator& c) { return c.all_gather(three, ten, two_counts); },
                 "2 counts for 3 ranks");
  expect_refused(
      [&](Communicator& c) { return c.reduce_scatter(ten, three, ReduceOp::kSum, sum_nine); },
      "add up to 9");
  expect_refused([&](Communicator& c) { return c.all_gather(three, ten, overflowing); },
                 "impossible total");
  expect_refused([&](Communicator& c) { return c.scatter(ten, ten, c.rank(), sum_nine); },
                 "counts says 3");
  expect_refused([&](Communicator& c) { return c.reduce(three, ten, ReduceOp::kSum, c.rank()); },
                 "differ in count");
}

TEST_F(Validation, RefusesToComputeWithElementsThatAreNotAligned) {
  alignas(64) std::array<std::byte, 256> bytes{};
  for (const DType dtype : kAllDTypes) {
    const std::size_t size = size_of(dtype);
    if (size == 1) continue;
    const Buffer aligned(bytes.data(), 3, dtype);
    const Buffer other(bytes.data() + 64 + size / 2, 3, dtype);
    const std::string words = " is not aligned to its type: the address of " +
                              std::string(to_string(dtype)) + " elements is no multiple of " +
                              std::to_string(size);
    expect_refused([&](Communicator& c) { return c.all_reduce(other); },
                   "all_reduce: input" + words);
    expect_refused([&](Communicator& c) { return c.start_all_reduce(other).wait(); },
                   "all_reduce: input" + words);
    expect_refused([&](Communicator& c) { return c.reduce(other, aligned, ReduceOp::kSum, 1); },
                   "reduce: input" + words);
    expect_refused(
        [&](Communicator& c) { return c.reduce(aligned, other, ReduceOp::kSum, c.rank()); },
        "reduce: output" + words);
    const Buffer part(bytes.data() + 128 + 1, 1, dtype);
    expect_refused([&](Communicator& c) { return c.reduce_scatter(aligned, part, ReduceOp::kSum); },
                   "reduce_scatter: output" + words);
    const std::array<Buffer, 2> pieces{aligned, other};
    expect_refused([&](Communicator& c) { return c.all_reduce(pieces); },
                   "all_reduce: piece 1" + words);
  }
}

// There is nothing to compute with.
TEST_F(Validation, TakesAnyAddressOfNoElements) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    alignas(8) std::array<std::byte, 16> bytes{};
    EXPECT_TRUE(comm.all_reduce(Buffer(bytes.data() + 1, 0, DType::kF64)).ok());
  });
}

TEST_F(Validation, RefusesImpossibleCounts) {
  float one = 0;
  const std::size_t huge = std::numeric_limits<std::size_t>::max() / 2;
  expect_refused([&](Communicator& c) { return c.all_reduce(Buffer(&one, huge, DType::kF32)); },
                 "impossible count");
  // Computed with in eight bytes each.
  const Buffer bytes(&one, std::size_t{1} << 61, DType::kU8);
  expect_refused([&](Communicator& c) { return c.all_reduce(bytes, ReduceOp::kAvg); },
                 "impossible count");
}

TEST_F(Validation, RefusesTypesThatDiffer) {
  std::vector<float> floats(9);
  std::vector<double> doubles(9);
  expect_refused(
      [&](Communicator& c) { return c.reduce(floats, doubles, ReduceOp::kSum, c.rank()); },
      "differ in type");
  std::vector<double> part(3);
  expect_refused([&](Communicator& c) { return c.reduce_scatter(floats, part, ReduceOp::kSum); },
                 "differ in type");
}

TEST_F(Validation, RefusesOverlapsThatAreNotInPlace) {
  expect_refused(
      [](Communicator& c) {
        std::vector<float> data(10);
        return c.reduce(std::span(data).first(9), std::span(data).last(9), ReduceOp::kSum,
                        c.rank());
      },
      "overlap");
  expect_refused(
      [](Communicator& c) {
        std::vector<float> data(10);
        return c.all_gather(std::span(data).last(3), std::span(data).first(9));
      },
      "overlap");
}

TEST_F(Validation, TakesBuffersThatLieSideBySide) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    std::vector<float> data(10, 1.0F);
    const std::span<float> first = std::span(data).first(5);
    const std::span<float> last = std::span(data).last(5);
    EXPECT_TRUE(comm.reduce(first, last, ReduceOp::kSum, comm.size() - 1).ok());
    EXPECT_TRUE(comm.reduce(last, first, ReduceOp::kSum, comm.size() - 1).ok());
    EXPECT_EQ(first[0], comm.rank() == 1 ? 3 : 1);  // 1 + (1 + 1)
  });
}

TEST_F(Validation, RefusesBruckForPartsThatMayDiffer) {
  const std::vector<std::size_t> counts(3, 2);
  const std::vector<float> input(6);
  std::vector<float> output(6);
  expect_refused(
      [&](Communicator& c) {
        return c.run({.kind = CollectiveKind::kAllToAll,
                      .input = input,
                      .output = output,
                      .counts = counts,
                      .recv_counts = counts,
                      .algorithm = Algorithm::kBruck});
      },
      "all_to_all: bruck takes equal parts only");
}

TEST_F(Validation, RefusesAnotherCountToItselfThanFromItself) {
  const std::vector<float> input(3);
  std::vector<float> output(3);
  expect_refused(
      [&](Communicator& c) {
        const auto own = static_cast<std::size_t>(c.rank());
        std::vector<std::size_t> sends(3, 1), receives(3, 1);
        --sends[own];
        ++sends[(own + 1) % 3];
        ++receives[own];
        --receives[(own + 2) % 3];
        return c.all_to_all(input, output, sends, receives);
      },
      "all_to_all: this rank sends itself 0 elements, but receives 2 from itself");
  const std::vector<float> one(1);
  std::vector<float> many(1000);
  const std::vector<std::size_t> counts{1}, more{1000};
  const auto alone = connect_world(JobEnvironment{}, nullptr).value_or_throw();
  const Status status = alone->all_to_all(one, many, counts, more);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
}

// Equal ones are the same operation whether they are written out or not.
TEST_F(Validation, TakesEqualCountsForNone) {
  run_threads_as_ranks(3, [](Communicator& comm) {
    const std::vector<std::size_t> counts(3, 2);
    const std::vector<float> input(2, static_cast<float>(comm.rank()));
    std::vector<float> output(6);
    const Status status =
        comm.rank() == 1 ? comm.all_gather(input, output, counts) : comm.all_gather(input, output);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(output, (std::vector<float>{0, 0, 1, 1, 2, 2}));
  });
}

TEST_F(Validation, RefusesBitwiseReductionsOfFloatingTypes) {
  std::vector<BFloat16> data(3);
  for (const ReduceOp op : {ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor}) {
    const std::string words = std::string(to_string(op)) + " is of integers, not of bf16";
    expect_refused([&](Communicator& c) { return c.all_reduce(data, op); }, "all_reduce: " + words);
    const std::vector<Buffer> pieces{std::span(data).first(1), std::span(data).last(1)};
    expect_refused([&](Communicator& c) { return c.all_reduce(pieces, op); }, words);
  }
}

TEST_F(Validation, RefusesNumbersThatAreNoOperation) {
  std::vector<float> data(3);
  expect_refused([&](Communicator& c) { return c.all_reduce(data, static_cast<ReduceOp>(9)); },
                 "no such reduction");
  expect_refused(
      [&](Communicator& c) {
        return c.all_reduce(data, ReduceOp::kSum, static_cast<Algorithm>(9));
      },
      "no such algorithm");
  expect_refused([](Communicator& c) { return c.run({.kind = static_cast<CollectiveKind>(77)}); },
                 "no such collective");
  expect_refused(
      [&](Communicator& c) {
        return c.all_reduce(Buffer(data.data(), 3, static_cast<DType>(std::size(kAllDTypes))));
      },
      "unknown element type");
}

TEST_F(Validation, RefusesMessagesThatAreTooLong) {
  std::byte data{};
  const std::size_t bytes = (std::size_t{1} << 38) + 1;
  expect_refused([&](Communicator& c) { return c.send(ConstBuffer(&data, bytes, DType::kU8), 0); },
                 "a message of 274877906945 bytes");
  expect_refused([&](Communicator& c) { return c.recv(Buffer(&data, bytes, DType::kU8), 0); },
                 "a message of 274877906945 bytes");
}

TEST_F(Validation, OfOneRankAloneFailsNothing) {
  run_threads_as_ranks(3, [](Communicator& comm) {
    std::vector<float> data(4, 1.0F);
    if (comm.rank() == 1) {
      EXPECT_EQ(comm.broadcast(data, 5).code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(comm.start_broadcast(data, 5).wait().code(), StatusCode::kInvalidArgument);
    }
    EXPECT_TRUE(comm.all_reduce(data).ok());
    EXPECT_TRUE(comm.start_all_reduce(data).wait().ok());
    EXPECT_EQ(data, std::vector<float>(4, 9.0F));
  });
}

}  // namespace
}  // namespace dlaunch::testing
