// Random sequences of collectives, of any kind, type, size and root, on a few ranks over every
// transport, with every result checked; in some of them a rank is killed at a random moment, and
// every other one must name it.
#include <signal.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/comm/random_collectives.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/soon.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::uint64_t fresh_seed() {
  std::random_device source;
  return std::uint64_t{source()} << 32 | source();
}

TEST(Stress, OfThreadsOverLoopbackGivesTheRightResults) {
  const std::uint64_t seed = fresh_seed();
  for (const int world : {3, 4, 5}) {
    run_threads_as_ranks(world, [&](Communicator& comm) {
      EXPECT_EQ(run_random_collectives(comm, seed, 0, 250, 50'000), "");
    });
  }
}

class Stress : public ::testing::TestWithParam<const char*> {
 protected:
  static ForkedRanks::Options options(int world) {
    return {.hosts = std::vector<int>(static_cast<std::size_t>(world), 0),
            .environment = {{"DLAUNCH_TRANSPORT", GetParam()}}};
  }
};

TEST_P(Stress, OfProcessesGivesTheRightResults) {
  const std::uint64_t seed = fresh_seed();
  for (const int world : {3, 4, 5}) {
    ForkedRanks ranks(options(world), [&](Communicator& comm, LineChannel&) {
      return run_random_collectives(comm, seed, 0, 250, 50'000);
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
  for (std::uint64_t step = 0;; ++step) {
    if (step == turning_point) test.write_line("going");
    const RandomCollective what = random_collective(seed, step, comm.size(), 20'000);
    const Verdict verdict = carry_out(what, comm);
    if (verdict.status.code() == StatusCode::kPeerLost && verdict.status.peer().has_value()) {
      return "lost " + std::to_string(*verdict.status.peer());
    }
    if (!verdict.status.ok()) return what.description + ": " + verdict.status.to_string();
    if (!verdict.wrong.empty()) return what.description + ": " + verdict.wrong;
  }
}

TEST_P(Stress, AndTheDeathOfARankAtAnyMomentIsNamedByEverySurvivorPromptly) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 15; ++turn) {
    const int world = 3 + turn % 3;
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

INSTANTIATE_TEST_SUITE_P(Transports, Stress, ::testing::Values("tcp", "shm"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace dlaunch::testing
