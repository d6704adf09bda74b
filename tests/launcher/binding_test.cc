// The cores that ranks run on: --bind. Within whatever cores this test itself may use.
#include <sched.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/usable_cores.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using Cores = std::set<int>;

Cores own_cores() {
  Cores cores;
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.insert(core);
  }
  return cores;
}

// What every rank said, by rank: "1 may use 2,3".
std::vector<Cores> cores_of_ranks(int ranks, const Strings& options) {
  Strings all{"--nproc", std::to_string(ranks)};
  all.insert(all.end(), options.begin(), options.end());
  const auto result = run_command(ranks_that({"cores"}, all));
  EXPECT_EQ(result.exit_code, 0) << result.error;
  std::vector<Cores> cores(static_cast<std::size_t>(ranks));
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::size_t rank = 0;
    std::string may;
    std::string use;
    words >> rank >> may >> use;
    if (rank >= cores.size()) {
      ADD_FAILURE() << line;
      continue;
    }
    for (std::string core; std::getline(words >> std::ws, core, ',');) {
      cores[rank].insert(std::stoi(core));
    }
  }
  return cores;
}

class Binding : public ::testing::Test {
 protected:
  void SetUp() override {
    if (usable_.size() < 2) GTEST_SKIP() << "there is one core only";
  }
  const Cores usable_ = own_cores();
};

TEST_F(Binding, GivesEachRankAnEqualShareOfTheCoresForItself) {
  const int most = std::min(4, static_cast<int>(usable_.size()));
  for (int ranks = 2; ranks <= most; ++ranks) {
    for (const Strings& options : {Strings{}, Strings{"--bind", "core"}}) {
      Cores given;
      std::set<std::size_t> sizes;
      for (const Cores& cores : cores_of_ranks(ranks, options)) {
        sizes.insert(cores.size());
        for (const int core : cores) {
          EXPECT_TRUE(usable_.contains(core)) << core;
          EXPECT_TRUE(given.insert(core).second) << "two ranks have core " << core;
        }
      }
      EXPECT_EQ(sizes.size(), 1U);
      // Not more is left over than a core with its threads for each rank but one.
      const std::size_t threads = 2;
      EXPECT_GT(given.size() + threads * static_cast<std::size_t>(ranks), usable_.size());
    }
  }
}

TEST_F(Binding, LeavesRanksTheCoresOfDlaunchIfAsked) {
  for (const Cores& cores : cores_of_ranks(2, {"--bind=none"})) EXPECT_EQ(cores, usable_);
}

TEST_F(Binding, LeavesASingleRankAllCores) {
  EXPECT_EQ(cores_of_ranks(1, {}).front(), usable_);
}

TEST_F(Binding, GivesUpWhereThereAreMoreRanksThanCores) {
  const int ranks = static_cast<int>(usable_.size()) + 1;
  if (ranks > 64) GTEST_SKIP() << "too many cores to start a rank more";
  for (const Cores& cores : cores_of_ranks(ranks, {})) EXPECT_EQ(cores, usable_);
}

// The runtime compares ranks with the cores that all of them share, and must not be misled by the
// share of one; the thread count is what it is without binding.
TEST_F(Binding, TellsRanksHowManyCoresTheyShare) {
  for (const char* what : {"core", "none"}) {
    Command command = ranks_that({"only=1", "env=DLAUNCH_LOCAL_CORES", "env=OMP_NUM_THREADS"},
                                 Strings{"--nproc", "2", "--bind", what});
    command.unset = {"OMP_NUM_THREADS"};
    const auto result = run_command(command);
    const int cores = cores_with_time(static_cast<int>(usable_.size()), cpu_quota());
    EXPECT_EQ(result.out,
              "1 DLAUNCH_LOCAL_CORES=" + std::to_string(cores) + "\n1 OMP_NUM_THREADS=1\n");
  }
}

}  // namespace
}  // namespace dlaunch::testing
