// The collectives other than all_reduce, and blocking messages.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/comm/contract/contract.h"
#include "tests/comm/random_data.h"

namespace dlaunch::testing {
namespace {

#define ASSERT_STATUS_OK(expression)                                  \
  do {                                                                \
    const Status asserted_status = (expression);                      \
    ASSERT_TRUE(asserted_status.ok()) << asserted_status.to_string(); \
  } while (false)

// Element `index` of what `rank` contributes.
std::int64_t element(int rank, std::size_t index) {
  return std::int64_t{1'000'003} * (rank + 1) + static_cast<std::int64_t>(index);
}

std::vector<std::int64_t> elements(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<std::int64_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element(rank, first + i);
  return values;
}

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  std::size_t p() const { return static_cast<std::size_t>(world()); }
  std::vector<std::size_t> counts() const { return {0, 1, p() - 1, 13, 101}; }
  // Unequal parts: some empty, the rest odd, and none at all.
  std::vector<std::vector<std::size_t>> parts() const {
    std::vector<std::size_t> some(p());
    for (std::size_t i = 0; i < p(); ++i) some[i] = (i * 7 + 3) % 5 * 3;
    std::vector<std::size_t> last_only(p());
    last_only.back() = 17;
    return {some, last_only, std::vector<std::size_t>(p(), 0)};
  }
  static std::size_t offset(const std::vector<std::size_t>& counts, int rank) {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  }
  static std::size_t total(const std::vector<std::size_t>& counts) {
    return offset(counts, static_cast<int>(counts.size()));
  }
};

TEST_P(Collectives, BroadcastCopiesTheRootsDataOfEveryType) {
  const std::uint64_t seed = contract_seed();
  run_ranks(world(), [&](Communicator& comm) {
    for (int root = 0; root < world(); ++root) {
      for (const DType dtype : kAllDTypes) {
        for (const std::size_t count : counts()) {
          visit_dtype(dtype, [&]<typename T>() {
            auto data = random_values<T>(seed, comm.rank(), count);
            ASSERT_STATUS_OK(comm.broadcast(data, root));
            EXPECT_EQ(data, random_values<T>(seed, root, count)) << "seed " << seed;
          });
        }
      }
    }
  });
}

// What is only moved may lie anywhere, as in a packed message.
TEST_P(Collectives, MoveElementsThatAreNotAligned) {
  run_ranks(world(), [&](Communicator& comm) {
    for (const std::size_t each : {0U, 1U, 4'097U}) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      const std::size_t bytes = each * sizeof(double);
      std::vector<std::uint8_t> one(bytes + 1);
      std::vector<std::uint8_t> all(p() * bytes + 1);
      std::vector<std::uint8_t> back(p() * bytes + 1);
      const Buffer own(one.data() + 1, each, DType::kF64);
      const Buffer whole(all.data() + 1, p() * each, DType::kF64);
      const Buffer whole_back(back.data() + 1, p() * each, DType::kF64);
      const auto fill = [](std::vector<std::uint8_t>& data, std::size_t value) {
        std::fill(data.begin() + 1, data.end(), static_cast<std::uint8_t>(value));
      };
      // Whether part r of `data` is full of r, counted from one.
      const auto is_in_order = [&](const std::vector<std::uint8_t>& data) {
        for (std::size_t i = 0; i + 1 < data.size(); ++i)
          if (data[i + 1] != i / bytes + 1) return false;
        return data[0] == 0;
      };
      fill(one, rank + 1);
      ASSERT_STATUS_OK(comm.all_gather(own, whole));
      EXPECT_TRUE(is_in_order(all)) << each;
      fill(all, 0);
      ASSERT_STATUS_OK(comm.gather(own, whole, 0));
      if (comm.rank() == 0) {
        EXPECT_TRUE(is_in_order(all)) << each;
      }
      fill(one, 0);
      ASSERT_STATUS_OK(comm.scatter(whole, own, 0));
      EXPECT_EQ(std::count(one.begin() + 1, one.end(), rank + 1),
                static_cast<std::ptrdiff_t>(bytes));
      fill(all, rank + 1);
      ASSERT_STATUS_OK(comm.all_to_all(whole, whole_back));
      EXPECT_TRUE(is_in_order(back)) << each;
      ASSERT_STATUS_OK(comm.broadcast(own, world() - 1));
      EXPECT_EQ(std::count(one.begin() + 1, one.end(), p()), static_cast<std::ptrdiff_t>(bytes));
      if (comm.rank() == 0) fill(one, 200);
      if (world() > 1 && comm.rank() == 0) {
        ASSERT_STATUS_OK(comm.send(own, 1));
      }
      if (comm.rank() == 1) {
        ASSERT_STATUS_OK(comm.recv(own, 0));
        EXPECT_EQ(std::count(one.begin() + 1, one.end(), 200), static_cast<std::ptrdiff_t>(bytes));
      }
    }
  });
}

TEST_P(Collectives, ScatterHandsOutEqualAndUnequalParts) {
  run_ranks(world(), [&](Communicator& comm) {
    for (int root = 0; root < world(); ++root) {
      for (const std::size_t each : counts()) {
        std::vector<std::int64_t> input;
        if (comm.rank() == root) input = elements(root, each * p());
        std::vector<std::int64_t> output(each, -1);
        ASSERT_STATUS_OK(comm.scatter(input, output, root));
        EXPECT_EQ(output, elements(root, each, each * static_cast<std::size_t>(comm.rank())));
      }
      for (const auto& counts : parts()) {
        const std::vector<std::int64_t> input = elements(root, total(counts));
        std::vector<std::int64_t> output(counts[static_cast<std::size_t>(comm.rank())], -1);
        ASSERT_STATUS_OK(comm.scatter(input, output, root, counts));
        EXPECT_EQ(output, elements(root, output.size(), offset(counts, comm.rank())));
      }
    }
  });
}

TEST_P(Collectives, GatherCollectsEqualAndUnequalPartsAtTheRoot) {
  run_ranks(world(), [&](Communicator& comm) {
    const auto check = [&](int root, const std::vector<std::size_t>& counts, bool pass_counts) {
      const auto own = counts[static_cast<std::size_t>(comm.rank())];
      std::vector<std::int64_t> output;
      if (comm.rank() == root) output.resize(total(counts), -1);
      const auto input = elements(comm.rank(), own);
      ASSERT_STATUS_OK(
          comm.gather(input, output, root, pass_counts ? counts : std::span<const std::size_t>()));
      if (comm.rank() != root) return;
      for (int rank = 0; rank < world(); ++rank) {
        const auto begin = output.begin() + static_cast<std::ptrdiff_t>(offset(counts, rank));
        const auto count = counts[static_cast<std::size_t>(rank)];
        EXPECT_TRUE(std::equal(begin, begin + static_cast<std::ptrdiff_t>(count),
                               elements(rank, count).begin()));
      }
    };
    for (int root = 0; root < world(); ++root) {
      for (const std::size_t each : counts()) {
        check(root, std::vector<std::size_t>(p(), each), false);
      }
      for (const auto& counts : parts()) check(root, counts, true);
    }
  });
}

TEST_P(Collectives, AllGatherBringsAllPartsToEveryRankAlsoInPlace) {
  run_ranks(world(), [&](Communicator& comm) {
    const auto expected = [&](const std::vector<std::size_t>& counts) {
      std::vector<std::int64_t> all;
      for (int rank = 0; rank < world(); ++rank) {
        const auto part = elements(rank, counts[static_cast<std::size_t>(rank)]);
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    };
    for (const std::size_t each : counts()) {
      std::vector<std::int64_t> output(each * p(), -1);
      const auto input = elements(comm.rank(), each);
      ASSERT_STATUS_OK(comm.all_gather(input, output));
      EXPECT_EQ(output, expected(std::vector<std::size_t>(p(), each)));
    }
    for (const auto& counts : parts()) {
      const auto own = counts[static_cast<std::size_t>(comm.rank())];
      const auto mine = elements(comm.rank(), own);
      std::vector<std::int64_t> output(total(counts), -1);
      const auto place = output.begin() + static_cast<std::ptrdiff_t>(offset(counts, comm.rank()));
      std::copy(mine.begin(), mine.end(), place);
      ASSERT_STATUS_OK(comm.all_gather(std::span(place, own), output, counts));
      EXPECT_EQ(output, expected(counts));
    }
  });
}

TEST_P(Collectives, ReduceBringsTheReductionToTheRootAlsoInPlace) {
  const std::uint64_t seed = contract_seed();
  run_ranks(world(), [&](Communicator& comm) {
    const auto check = [&]<typename T>(int root, ReduceOp op, std::size_t count, bool in_place) {
      std::vector<std::vector<T>> inputs;
      for (int rank = 0; rank < world(); ++rank) {
        inputs.push_back(random_values<T>(seed, rank, count));
      }
      const std::vector<T> original = inputs[static_cast<std::size_t>(comm.rank())];
      std::vector<T> input = original;
      std::vector<T> output(comm.rank() == root ? count : 0);
      if (in_place && comm.rank() == root) {
        ASSERT_STATUS_OK(comm.reduce(input, input, op, root));
        output = input;
      } else {
        ASSERT_STATUS_OK(comm.reduce(input, output, op, root));
        EXPECT_EQ(input, original);
      }
      if (comm.rank() == root) {
        EXPECT_EQ(wrong_element(op, inputs, 0, output), "") << "seed " << seed;
      }
    };
    for (int root = 0; root < world(); ++root) {
      for (const std::size_t count : counts()) {
        for (const bool in_place : {false, true}) {
          for (const ReduceOp op : reductions_of(DType::kF32))
            check.template operator()<float>(root, op, count, in_place);
          for (const ReduceOp op : kAllReduceOps)
            check.template operator()<std::int32_t>(root, op, count, in_place);
        }
      }
    }
  });
}

TEST_P(Collectives, ReduceWritesNothingElsewhere) {
  run_ranks(world(), [&](Communicator& comm) {
    for (int root = 0; root < world(); ++root) {
      for (const std::size_t count : counts()) {
        const std::vector<float> input(count, 1.0F);
        std::vector<float> output(count, -1.0F);
        ASSERT_STATUS_OK(comm.reduce(input, output, ReduceOp::kSum, root));
        const float expected = comm.rank() == root ? static_cast<float>(world()) : -1.0F;
        EXPECT_EQ(output, std::vector<float>(count, expected));
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterLeavesEveryRankItsPart) {
  const std::uint64_t seed = contract_seed();
  enum class Place { kElsewhere, kOwnPart, kBeginning };
  run_ranks(world(), [&](Communicator& comm) {
    const auto check = [&]<typename T>(ReduceOp op, const std::vector<std::size_t>& counts,
                                       bool pass_counts, Place place) {
      std::vector<std::vector<T>> inputs;
      for (int rank = 0; rank < world(); ++rank) {
        inputs.push_back(random_values<T>(seed, rank, total(counts)));
      }
      std::vector<T> input = inputs[static_cast<std::size_t>(comm.rank())];
      const auto own = counts[static_cast<std::size_t>(comm.rank())];
      const std::size_t begin = offset(counts, comm.rank());
      std::vector<T> separate(own);
      std::span<T> output = place == Place::kElsewhere ? std::span<T>(separate)
                            : place == Place::kOwnPart ? std::span<T>(input).subspan(begin, own)
                                                       : std::span<T>(input).first(own);
      ASSERT_STATUS_OK(comm.reduce_scatter(input, output, op,
                                           pass_counts ? counts : std::span<const std::size_t>()));
      EXPECT_EQ(wrong_element(op, inputs, begin, std::vector<T>(output.begin(), output.end())), "")
          << "seed " << seed;
    };
    for (const Place place : {Place::kElsewhere, Place::kOwnPart, Place::kBeginning}) {
      for (const std::size_t each : counts()) {
        const std::vector<std::size_t> equal(p(), each);
        for (const ReduceOp op : reductions_of(DType::kF64))
          check.template operator()<double>(op, equal, false, place);
        for (const ReduceOp op : kAllReduceOps)
          check.template operator()<std::uint8_t>(op, equal, false, place);
      }
      for (const auto& counts : parts()) {
        for (const ReduceOp op : reductions_of(DType::kF16))
          check.template operator()<Float16>(op, counts, true, place);
        for (const ReduceOp op : kAllReduceOps) {
          check.template operator()<std::int64_t>(op, counts, true, place);
          check.template operator()<std::uint64_t>(op, counts, true, place);
        }
      }
    }
  });
}

TEST_P(Collectives, WorkOnMemoryOfTheCommunicatorsOwn) {
  run_ranks(world(), [&](Communicator& comm) {
    auto memory = comm.allocate(70'001 * sizeof(float));
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    const auto values = memory->as<float>();
    ASSERT_EQ(values.size(), 70'001U);
    for (float& value : values) value = static_cast<float>(comm.rank() + 1);
    ASSERT_STATUS_OK(comm.all_reduce(values));
    const auto sum = 0.5F * static_cast<float>(world() * (world() + 1));
    for (const float value : values) ASSERT_EQ(value, sum);
  });
}

TEST_P(Collectives, RefusedOnOneRankFailNothing) {
  run_ranks(world(), [&](Communicator& comm) {
    std::vector<float> data(4, 1.0F);
    if (comm.rank() == world() - 1) {
      EXPECT_EQ(comm.broadcast(data, world()).code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(comm.start_broadcast(data, -2).wait().code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(comm.send(data, world()).code(), StatusCode::kInvalidArgument);
    }
    ASSERT_STATUS_OK(comm.all_reduce(data));
    ASSERT_STATUS_OK(comm.start_all_reduce(data).wait());
    EXPECT_EQ(data, std::vector<float>(4, static_cast<float>(world() * world())));
  });
}

TEST_P(Collectives, MessagesArriveInOrderPerTag) {
  run_ranks(world(), [&](Communicator& comm) {
    const int next = (comm.rank() + 1) % world();
    const int previous = (comm.rank() + world() - 1) % world();
    for (const std::uint64_t tag : {7U, 0U}) {
      for (std::size_t i = 0; i < 3; ++i) {
        const auto data = elements(comm.rank(), 5 + i);
        ASSERT_STATUS_OK(comm.send(data, next, tag));
      }
    }
    for (const std::uint64_t tag : {0U, 7U}) {  // the other way round
      for (std::size_t i = 0; i < 3; ++i) {
        std::vector<std::int64_t> received(5 + i);
        ASSERT_STATUS_OK(comm.recv(received, previous, tag));
        EXPECT_EQ(received, elements(previous, 5 + i));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, ::testing::ValuesIn(contract_worlds()));

}  // namespace
}  // namespace dlaunch::testing
