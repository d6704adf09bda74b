// Random sequences of collectives and messages, of any kind, type, size and root, on a few ranks
// over every transport, as if each rank had a core and as if they had to take turns, with every
// result checked; in some of them a rank is killed at a random moment, and every other one must
// name it. And several communicators at once, each used by a thread of its own.
#include <signal.h>

#include <array>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/random_collectives.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/soon.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::uint64_t fresh_seed() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

// Three of the worlds of three to seven ranks.
std::array<int, 3> some_worlds(std::uint64_t seed) {
  const int first = static_cast<int>(seed % 5);
  return {3 + first, 3 + (first + 1) % 5, 3 + (first + 3) % 5};
}

TEST(Stress, OfThreadsOverLoopbackGivesTheRightResults) {
  const std::uint64_t seed = fresh_seed();
  for (const int world : some_worlds(seed)) {
    run_threads_as_ranks(world, [&](Communicator& comm) {
      EXPECT_EQ(run_random_collectives(comm, seed, 0, 200, 50'000), "");
    });
  }
}

/// Where ranks have a core each, they are not woken but look, and shared memory has other limits.
struct Way {
  const char* transport;
  const char* cores;
};

class Stress : public ::testing::TestWithParam<Way> {
 protected:
  static ForkedRanks::Options options(int world) {
    return {.hosts = std::vector<int>(static_cast<std::size_t>(world), 0),
            .environment = {{"DLAUNCH_TRANSPORT", GetParam().transport},
                            {"DLAUNCH_LOCAL_CORES", GetParam().cores}}};
  }
};

TEST_P(Stress, OfProcessesGivesTheRightResults) {
  const std::uint64_t seed = fresh_seed();
  for (const int world : some_worlds(seed)) {
    ForkedRanks ranks(options(world), [&](Communicator& comm, LineChannel&) {
      return run_random_collectives(comm, seed, 0, 200, 50'000);
    });
    const Deadline deadline = Deadline::after(40s);
    for (int rank = 0; rank < world; ++rank) {
      EXPECT_EQ(ranks[rank].read_line(deadline).value_or("(nothing)"), "") << "rank " << rank;
    }
  }
}

// Random collectives without end; says at `turning_point` that it has come so far. Returns
// "lost N" if it failed because rank N died.
std::string run_until_a_death(Communicator& comm, LineChannel& test, std::uint64_t seed,
                              std::uint64_t turning_point) {
  RandomCollectives collectives(comm);
  for (std::uint64_t step = 0;; ++step) {
    if (step == turning_point) test.write_line("going");
    const Verdict verdict = collectives.run(random_collective(seed, step, comm.size(), 20'000));
    if (verdict.status.code() == StatusCode::kPeerLost && verdict.status.peer().has_value()) {
      return "lost " + std::to_string(*verdict.status.peer());
    }
    if (!verdict.status.ok()) return collectives.failed() + ": " + verdict.status.to_string();
    if (!verdict.wrong.empty()) return collectives.failed() + ": " + verdict.wrong;
  }
}

TEST_P(Stress, AndTheDeathOfARankAtAnyMomentIsNamedByEverySurvivorPromptly) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 10; ++turn) {
    const int world = 3 + (static_cast<int>(seed % 5) + turn) % 5;
    const int victim = static_cast<int>(random() % static_cast<std::uint64_t>(world));
    const std::uint64_t turning_point = random() % 20;
    SCOPED_TRACE("rank " + std::to_string(victim) + " of " + std::to_string(world) +
                 ", killed after step " + std::to_string(turning_point));
    ForkedRanks ranks(options(world), [&](Communicator& comm, LineChannel& test) {
      return run_until_a_death(comm, test, seed, turning_point);
    });
    for (int rank = 0; rank < world; ++rank) {
      ASSERT_EQ(ranks[rank].read_line(Deadline::after(30s)).value_or("(nothing)"), "going");
    }
    ranks.send_signal(victim, SIGKILL);
    const Deadline deadline = Deadline::after(kPromptly);
    for (int rank = 0; rank < world; ++rank) {
      if (rank == victim) continue;
      EXPECT_EQ(ranks[rank].read_line(deadline).value_or("(nothing)"),
                "lost " + std::to_string(victim))
          << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Stress,
                         ::testing::Values(Way{"tcp", "1"}, Way{"shm", "1"}, Way{"shm", "64"}),
                         [](const auto& test) {
                           return std::string(test.param.transport) + "_" + test.param.cores +
                                  "_cores";
                         });

// Two rows and three columns of ranks, as for model and data parallelism.
struct Grid {
  Communicator& world;
  std::unique_ptr<Communicator> row;
  std::unique_ptr<Communicator> column;

  explicit Grid(Communicator& comm)
      : world(comm),
        row(comm.split(comm.rank() / 3, comm.rank()).value_or_throw()),
        column(comm.split(comm.rank() % 3, comm.rank()).value_or_throw()) {}

  /// Runs `use` on each of them, in threads of their own; returns what they return.
  template <typename Use>
  std::array<std::string, 3> together(const Use& use) {
    std::array<std::string, 3> results;
    std::jthread first([&] { results[1] = use(*row); });
    std::jthread second([&] { results[2] = use(*column); });
    results[0] = use(world);
    first.join();
    second.join();
    return results;
  }
};

class Grids : public ::testing::TestWithParam<const char*> {
 protected:
  static ForkedRanks::Options options() {
    return {.hosts = std::vector<int>(6, 0), .environment = {{"DLAUNCH_TRANSPORT", GetParam()}}};
  }
};

TEST_P(Grids, ServeAThreadForEachOfTheirCommunicators) {
  const std::uint64_t seed = fresh_seed();
  ForkedRanks ranks(options(), [&](Communicator& comm, LineChannel&) {
    const auto results = Grid(comm).together([&](Communicator& each) {
      const auto own = static_cast<std::uint64_t>(each.size());  // another sequence for each
      return run_random_collectives(each, seed + own, 0, 100, 20'000);
    });
    return results[0] + results[1] + results[2];
  });
  const Deadline deadline = Deadline::after(60s);
  for (int rank = 0; rank < ranks.size(); ++rank)
    EXPECT_EQ(ranks[rank].read_line(deadline).value_or("(nothing)"), "") << "rank " << rank;
}

// Those of which the rank was a member say so in their own numbers and in the world's; the others
// go on.
TEST_P(Grids, LoseTheCommunicatorsOfARankThatDies) {
  constexpr int kVictim = 4;  // the second of the second row, and of the second column
  const std::uint64_t seed = fresh_seed();
  ForkedRanks ranks(options(), [&](Communicator& comm, LineChannel& test) {
    Grid grid(comm);
    test.write_line("going");
    const auto results = grid.together([&](Communicator& each) -> std::string {
      const bool concerned =
          &each == &grid.world || (&each == grid.row.get() ? comm.rank() / 3 == kVictim / 3
                                                           : comm.rank() % 3 == kVictim % 3);
      const auto own = static_cast<std::uint64_t>(each.size());
      if (!concerned) return run_random_collectives(each, seed + own, 0, 20, 10'000);
      RandomCollectives collectives(each);
      Verdict verdict;
      for (std::uint64_t step = 0; verdict.ok(); ++step)
        verdict = collectives.run(random_collective(seed + own, step, each.size(), 10'000));
      if (verdict.status.ok()) return collectives.failed() + ": " + verdict.wrong;
      return std::string(to_string(verdict.status.code())) + " " + verdict.status.to_string();
    });
    for (const std::string& result : results) test.write_line(result);
    return "end";
  });
  for (int rank = 0; rank < ranks.size(); ++rank)
    ASSERT_EQ(ranks[rank].read_line(Deadline::after(30s)).value_or("(nothing)"), "going");
  ranks.send_signal(kVictim, SIGKILL);
  const Deadline deadline = Deadline::after(kPromptly);
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == kVictim) continue;
    SCOPED_TRACE("rank " + std::to_string(rank));
    const auto next = [&] { return ranks[rank].read_line(deadline).value_or("(nothing)"); };
    const std::string lost(to_string(StatusCode::kPeerLost));
    const std::string of_part =
        "whose ranks? .*(is|are) ranks? .*" + std::to_string(kVictim) + ".* of the world: .*peer 1";
    EXPECT_THAT(next(), AllOf(HasSubstr(lost), HasSubstr("peer 4"))) << "the world";
    const bool in_row = rank / 3 == kVictim / 3;
    const bool in_column = rank % 3 == kVictim % 3;
    const std::string row = next();
    const std::string column = next();
    if (in_row) {
      EXPECT_THAT(row, AllOf(HasSubstr(lost), ContainsRegex(of_part))) << "row";
    } else {
      EXPECT_EQ(row, "") << "row";
    }
    if (in_column) {
      EXPECT_THAT(column, AllOf(HasSubstr(lost), ContainsRegex(of_part))) << "column";
    } else {
      EXPECT_EQ(column, "") << "column";
    }
    EXPECT_EQ(next(), "end");
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Grids, ::testing::Values("tcp", "shm"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace dlaunch::testing
