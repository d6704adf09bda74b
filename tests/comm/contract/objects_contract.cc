// Bytes and objects of which each rank knows its own length only (objects.h).
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/comm/objects.h"
#include "tests/comm/contract/contract.h"

namespace dlaunch::testing {
namespace {

using Texts = std::vector<std::string>;

// Of every value that a byte has, also zero.
std::string bytes_of(int rank, std::size_t length) {
  std::string bytes(length, '\0');
  for (std::size_t i = 0; i < length; ++i) {
    bytes[i] = static_cast<char>((static_cast<std::size_t>(rank) * 31 + i * 7) % 256);
  }
  return bytes;
}

// What each rank gives: of very different lengths, none, and nobody anything.
std::vector<Texts> cases(int world) {
  std::vector<Texts> cases(4);
  for (int rank = 0; rank < world; ++rank) {
    cases[0].push_back(bytes_of(rank, static_cast<std::size_t>(rank) + 1));
    cases[1].push_back(bytes_of(rank, rank % 2 == 0 ? 0 : 300'007));
    cases[2].push_back(bytes_of(rank, rank == world - 1 ? 1'000'003 : 1));
    cases[3].emplace_back();
  }
  return cases;
}

class Objects : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
};

TEST_P(Objects, OfBytesComeTogetherOnAllRanks) {
  run_ranks(world(), [&](Communicator& comm) {
    for (const Texts& given : cases(world())) {
      const auto all = all_gather_bytes(comm, given[static_cast<std::size_t>(comm.rank())]);
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      EXPECT_EQ(*all, given);
    }
  });
}

TEST_P(Objects, OfBytesComeTogetherOnTheRoot) {
  run_ranks(world(), [&](Communicator& comm) {
    for (int root = 0; root < world(); ++root) {
      for (const Texts& given : cases(world())) {
        const auto all = gather_bytes(comm, given[static_cast<std::size_t>(comm.rank())], root);
        ASSERT_TRUE(all.ok()) << all.status().to_string();
        EXPECT_EQ(*all, comm.rank() == root ? given : Texts());
      }
    }
  });
}

TEST_P(Objects, OfBytesAreTheRootsOnAllRanks) {
  run_ranks(world(), [&](Communicator& comm) {
    for (int root = 0; root < world(); ++root) {
      for (const Texts& given : cases(world())) {
        std::string bytes = given[static_cast<std::size_t>(comm.rank())];
        const Status status = broadcast_bytes(comm, bytes, root);
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_EQ(bytes, given[static_cast<std::size_t>(root)]);
      }
    }
  });
}

TEST_P(Objects, OfBytesAreHandedOutByTheRoot) {
  run_ranks(world(), [&](Communicator& comm) {
    for (int root = 0; root < world(); ++root) {
      for (const Texts& given : cases(world())) {
        const auto own = scatter_bytes(comm, comm.rank() == root ? given : Texts(3, "x"), root);
        ASSERT_TRUE(own.ok()) << own.status().to_string();
        EXPECT_EQ(*own, given[static_cast<std::size_t>(comm.rank())]);
      }
    }
  });
}

TEST_P(Objects, OfBytesRefuseAWrongNumberOfPartsOnAllRanksAndGoOn) {
  run_ranks(world(), [&](Communicator& comm) {
    const int root = world() - 1;
    const auto own =
        scatter_bytes(comm, Texts(static_cast<std::size_t>(world()) + 1, "x"), root).status();
    EXPECT_EQ(own.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(own.to_string(), "scatter_bytes: rank " + std::to_string(root) + " gave " +
                                   std::to_string(world() + 1) + " parts for " +
                                   std::to_string(world()) + " ranks");
    EXPECT_TRUE(comm.barrier().ok());
  });
}

TEST_P(Objects, OfBytesRefuseARootThatThereIsNotAndGoOn) {
  run_ranks(world(), [&](Communicator& comm) {
    for (const int root : {-1, world()}) {
      std::string bytes;
      for (const char* own : {"x", ""}) {
        EXPECT_EQ(gather_bytes(comm, own, root).status().code(), StatusCode::kInvalidArgument);
      }
      EXPECT_EQ(broadcast_bytes(comm, bytes, root).code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(scatter_bytes(comm, {}, root).status().code(), StatusCode::kInvalidArgument);
    }
    EXPECT_TRUE(comm.barrier().ok());
  });
}

// Rank 0 takes those of all others as they come; each has several, of very different lengths.
TEST_P(Objects, OfBytesGoFromRankToRank) {
  run_ranks(world(), [&](Communicator& comm) {
    const std::vector<std::size_t> lengths{5, 0, 300'007, 1};
    if (comm.rank() > 0) {
      for (const std::size_t length : lengths) {
        ASSERT_TRUE(send_bytes(comm, bytes_of(comm.rank(), length), 0, 4).ok());
      }
      EXPECT_EQ(recv_bytes(comm, 0).value_or_throw(), bytes_of(0, 9));
      return;
    }
    std::vector<std::size_t> next(static_cast<std::size_t>(world()));
    for (std::size_t i = 0; i < lengths.size() * (next.size() - 1); ++i) {
      int sender = kAnyRank;
      const auto bytes = recv_bytes(comm, kAnyRank, 4, &sender);
      ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
      std::size_t& number = next.at(static_cast<std::size_t>(sender));
      EXPECT_EQ(*bytes, bytes_of(sender, lengths.at(number++)));
    }
    for (int rank = 1; rank < world(); ++rank) {
      ASSERT_TRUE(send_bytes(comm, bytes_of(0, 9), rank).ok());
    }
  });
}

TEST_P(Objects, OfJsonGoFromRankToRank) {
  run_ranks(world(), [&](Communicator& comm) {
    const nlohmann::json given = {{"rank", comm.rank()}, {"loss", 0.1}, {"text", "\u00e9"}};
    ASSERT_TRUE(send_json(comm, given, (comm.rank() + 1) % world(), 6).ok());
    int sender = kAnyRank;
    const nlohmann::json received = recv_json(comm, kAnyRank, 6, &sender).value_or_throw();
    EXPECT_EQ(sender, (comm.rank() + world() - 1) % world());
    EXPECT_EQ(received.at("rank"), sender);
    EXPECT_EQ(received.at("loss"), 0.1);
    EXPECT_EQ(received.at("text"), "\u00e9");
  });
}

TEST_P(Objects, OfJsonTravelAsTheyAre) {
  run_ranks(world(), [&](Communicator& comm) {
    const auto object = [&](int rank) {
      const std::vector<std::uint8_t> binary{0, 255, static_cast<std::uint8_t>(rank)};
      return nlohmann::json{{"rank", rank},
                            {"third", rank / 3.0},
                            {"big", std::uint64_t{1} << 63},
                            {"text", std::string("a\0b", 3)},
                            {"binary", nlohmann::json::binary(binary)},
                            {"list", std::vector<int>(static_cast<std::size_t>(rank), rank)}};
    };
    std::vector<nlohmann::json> expected;
    for (int rank = 0; rank < world(); ++rank) expected.push_back(object(rank));
    const int root = world() / 2;
    EXPECT_EQ(all_gather_json(comm, object(comm.rank())).value_or_throw(), expected);
    const auto gathered = gather_json(comm, object(comm.rank()), root).value_or_throw();
    EXPECT_EQ(gathered, comm.rank() == root ? expected : std::vector<nlohmann::json>());
    nlohmann::json everybodys = object(comm.rank());
    EXPECT_TRUE(broadcast_json(comm, everybodys, root).ok());
    EXPECT_EQ(everybodys, object(root));
    EXPECT_EQ(scatter_json(comm, expected, root).value_or_throw(), object(comm.rank()));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, Objects, ::testing::ValuesIn(contract_worlds()),
                         [](const auto& test) { return std::to_string(test.param) + "Ranks"; });

}  // namespace
}  // namespace dlaunch::testing
