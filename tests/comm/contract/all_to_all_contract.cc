// all_to_all with equal and unequal parts.
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/comm/contract/contract.h"

namespace dlaunch::testing {
namespace {

// Element `index` of what `from` sends to `to`.
std::int32_t element(int from, int to, std::size_t index) {
  return 10'000 * from + 100 * to + static_cast<std::int32_t>(index % 97);
}

using Matrix = std::vector<std::vector<std::size_t>>;  // counts[from][to]

class AllToAll : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  std::size_t p() const { return static_cast<std::size_t>(world()); }

  // Runs `call` on buffers of the shape that `counts` says and checks what arrived.
  template <typename Call>
  void check(Communicator& comm, const Matrix& counts, const Call& call) const {
    const auto own = static_cast<std::size_t>(comm.rank());
    std::vector<std::int32_t> input;
    std::vector<std::int32_t> expected;
    std::vector<std::size_t> send_counts = counts[own];
    std::vector<std::size_t> recv_counts;
    for (int peer = 0; peer < world(); ++peer) {
      const auto other = static_cast<std::size_t>(peer);
      for (std::size_t i = 0; i < counts[own][other]; ++i) {
        input.push_back(element(comm.rank(), peer, i));
      }
      for (std::size_t i = 0; i < counts[other][own]; ++i) {
        expected.push_back(element(peer, comm.rank(), i));
      }
      recv_counts.push_back(counts[other][own]);
    }
    std::vector<std::int32_t> output(expected.size(), -1);
    const Status status = call(input, output, send_counts, recv_counts);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(output, expected);
  }
};

using Counts = Communicator::Counts;
using Values = std::vector<std::int32_t>;

TEST_P(AllToAll, ExchangesEqualParts) {
  run_ranks(world(), [&](Communicator& comm) {
    for (const std::size_t each : {0U, 1U, 5U, 101U}) {
      const Matrix counts(p(), std::vector<std::size_t>(p(), each));
      for (const Algorithm algorithm : {Algorithm::kAuto, Algorithm::kDirect, Algorithm::kBruck}) {
        check(comm, counts, [&](Values& input, Values& output, Counts, Counts) {
          return comm.run({.kind = CollectiveKind::kAllToAll,
                           .input = input,
                           .output = output,
                           .algorithm = algorithm});
        });
      }
      check(comm, counts, [&](Values& input, Values& output, Counts, Counts) {
        return comm.start_all_to_all(input, output).wait();
      });
    }
  });
}

TEST_P(AllToAll, ExchangesUnequalPartsLongAndEmptyOnes) {
  const std::uint64_t seed = contract_seed();
  std::mt19937_64 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Matrix counts(p(), std::vector<std::size_t>(p()));
  for (auto& row : counts) {
    for (std::size_t& count : row) count = random() % 3 == 0 ? 0 : random() % 50;
  }
  counts[p() - 1][0] = 150'001;  // longer than a segment
  run_ranks(world(), [&](Communicator& comm) {
    for (int round = 0; round < 2; ++round) {
      check(comm, counts, [&](Values& input, Values& output, Counts sends, Counts recvs) {
        return comm.all_to_all(input, output, sends, recvs);
      });
      check(comm, counts, [&](Values& input, Values& output, Counts sends, Counts recvs) {
        return comm.start_all_to_all(input, output, sends, recvs, Priority::kHigh).wait();
      });
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, AllToAll, ::testing::ValuesIn(contract_worlds()));

}  // namespace
}  // namespace dlaunch::testing
