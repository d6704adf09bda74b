// dlaunch under a real Slurm: one task on each node, by srun and by the batch script of the
// documentation. Skipped, with the reason, where there is no Slurm or no root.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launcher/launcher_runs.h"
#include "tests/launcher/slurm_cluster.h"

namespace dlaunch::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class UnderSlurm : public ::testing::Test {
 protected:
  static constexpr int kNodes = 3;

  // One cluster for all tests: it takes seconds to come up.
  static void SetUpTestSuite() {
    auto started = SlurmCluster::start(kNodes);
    if (started.ok()) {
      cluster_ = *std::move(started);
    } else {
      reason_ = started.status().to_string();
    }
  }
  static void TearDownTestSuite() { cluster_.reset(); }
  void SetUp() override {
    if (cluster_ == nullptr) GTEST_SKIP() << reason_;
  }

  static Deadline patiently() { return Deadline::after(std::chrono::seconds(90)); }

  // srun, one task on each node: dlaunch --nproc 2 OPTIONS test_rank ACTIONS.
  static CompletedProcess run_ranks(const Strings& options, const Strings& actions) {
    Command command =
        cluster_->command({"/usr/bin/srun", "-N3", "--ntasks-per-node=1", "--kill-on-bad-exit=0",
                           built_program("dlaunch"), "--nproc", "2", "--bind", "none"});
    const auto append = [&](const Strings& words) {
      command.arguments.insert(command.arguments.end(), words.begin(), words.end());
    };
    append(options);
    append({built_program("test_rank")});
    append(actions);
    command.environment.emplace_back("DLAUNCH_TOKEN", std::string(64, '7'));
    return run_command(command, patiently());
  }

  static inline std::unique_ptr<SlurmCluster> cluster_;
  static inline std::string reason_;
};

TEST_F(UnderSlurm, TheTasksOfSrunAreTheNodesOfOneJob) {
  const auto result = run_ranks({"--explain"}, {"env=WORLD_SIZE", "env=GROUP_RANK"});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  for (int rank = 0; rank < 2 * kNodes; ++rank) {
    const std::string own = std::to_string(rank);
    EXPECT_THAT(result.out, AllOf(HasSubstr(own + " WORLD_SIZE=6\n"),
                                  HasSubstr(own + " GROUP_RANK=" + std::to_string(rank / 2))));
  }
  EXPECT_THAT(result.error, AllOf(HasSubstr("dlaunch: started by: Slurm\n"),
                                  HasSubstr("host from SLURM_STEP_NODELIST")));
}

TEST_F(UnderSlurm, AFailureEndsTheStepWithItsCodeOnAllNodes) {
  const std::string mark = fresh_mark();
  const auto result =
      run_ranks({}, {mark, "only=4", "err=out of luck", "exit=7", "only=all", "pause"});
  EXPECT_EQ(result.exit_code, 7) << result.error;
  EXPECT_THAT(result.error, HasSubstr("dlaunch: rank 4 (pid "));
  EXPECT_TRUE(all_gone(mark, soon()));
}

// With a program called dtrain that says who it is.
TEST_F(UnderSlurm, TheBatchScriptOfTheDocumentationRuns) {
  const std::string folder = cluster_->folder() + "/batch";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/dtrain") << "#!/bin/sh\necho rank $RANK of $WORLD_SIZE\n";
  std::filesystem::permissions(folder + "/dtrain", std::filesystem::perms::owner_all);
  std::filesystem::create_symlink(built_program("dlaunch"), folder + "/dlaunch");
  Command command = cluster_->command({"/usr/bin/sbatch", "--wait", "--nodes", "3", "--chdir",
                                       folder, "--output", folder + "/out", DLAUNCH_SBATCH_SCRIPT});
  command.environment.emplace_back("PATH", folder + ":/usr/bin:/bin");
  const auto result = run_command(command, patiently());
  std::ifstream file(folder + "/out");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(result.exit_code, 0) << result.error << text;
  std::istringstream lines(text);
  std::set<std::string> ranks;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("rank ")) ranks.insert(line);
  }
  // As many on each node as it has cores (--nproc auto).
  EXPECT_FALSE(ranks.empty()) << text;
  EXPECT_EQ(ranks.size() % kNodes, 0U) << text;
  EXPECT_THAT(text, HasSubstr("rank 0 of " + std::to_string(ranks.size()) + "\n"));
}

}  // namespace
}  // namespace dlaunch::testing
