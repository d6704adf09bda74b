// The machine's topology and what it means for ranks, on machines made of files; GPUs; --dry-run.
#include <filesystem>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/base/number_list.h"
#include "launcher/ranks/binding.h"
#include "launcher/ranks/topology.h"
#include "runtime/base/temporary_folder.h"
#include "tests/launcher/launcher_runs.h"

namespace dlaunch::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two packages that are NUMA nodes, four cores each, two hardware threads on each core; numbered as
// is usual: first one thread of every core, 0-3 and 4-7, then the other ones, 8-11 and 12-15.
class TwoPackages : public ::testing::Test {
 protected:
  void SetUp() override {
    write("node/has_cpu", "0-1");
    write("node/node0/cpulist", "0-3,8-11");
    write("node/node1/cpulist", "4-7,12-15");
    for (int number = 0; number < 16; ++number) {
      const std::string folder = "cpu/cpu" + std::to_string(number);
      const std::string package = number % 8 < 4 ? "0-3,8-11" : "4-7,12-15";
      write(folder + "/topology/package_cpus_list", package);
      write(folder + "/cache/index3/shared_cpu_list", package);
      write(folder + "/topology/core_cpus_list",
            std::to_string(number % 8) + "," + std::to_string(number % 8 + 8));
    }
    std::vector<int> all(16);
    std::iota(all.begin(), all.end(), 0);
    threads_ = read_topology(all, sys_);
  }

  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = sys_ + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }

  const TemporaryFolder temporary_;
  const std::string sys_ = temporary_.path();
  std::vector<HardwareThread> threads_;
};

TEST_F(TwoPackages, PutNeighboursNextToEachOther) {
  std::vector<int> numbers;
  for (const HardwareThread& thread : threads_) numbers.push_back(thread.number);
  EXPECT_THAT(numbers, ElementsAre(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
}

TEST_F(TwoPackages, GiveRanksWholeCores) {
  EXPECT_THAT(core_shares(threads_, 4),
              ElementsAre(ElementsAre(0, 1, 8, 9), ElementsAre(2, 3, 10, 11),
                          ElementsAre(4, 5, 12, 13), ElementsAre(6, 7, 14, 15)));
  for (const auto& share : core_shares(threads_, 8)) EXPECT_EQ(share[1], share[0] + 8);
}

TEST_F(TwoPackages, HaveWhatIsLeftOverBetweenTheShares) {
  EXPECT_THAT(core_shares(threads_, 5),
              ElementsAre(ElementsAre(0, 8), ElementsAre(1, 9), ElementsAre(3, 11),
                          ElementsAre(4, 12), ElementsAre(6, 14)));
  std::vector<int> on_cores(8);  // more ranks than cores, of which none is without
  for (const auto& share : core_shares(threads_, 9)) {
    ASSERT_EQ(share.size(), 1U);
    ++on_cores[static_cast<std::size_t>(share[0]) % 8];
  }
  EXPECT_THAT(on_cores, ElementsAre(2, 1, 1, 1, 1, 1, 1, 1));
}

TEST_F(TwoPackages, GiveMoreRanksThanCoresAHardwareThreadEach) {
  const Shares shares = core_shares(threads_, 16);
  ASSERT_EQ(shares.size(), 16U);
  EXPECT_THAT(shares[1], ElementsAre(8));
  EXPECT_THAT(core_shares(threads_, 17), IsEmpty());
  EXPECT_THAT(core_shares(threads_, 1), IsEmpty());
}

TEST_F(TwoPackages, GiveNeighbouringRanksTheSameNode) {
  const Shares shares = node_shares(threads_, 4);
  ASSERT_EQ(shares.size(), 4U);
  EXPECT_THAT(shares[0], ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_EQ(shares[1], shares[0]);
  EXPECT_THAT(shares[2], ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
  EXPECT_EQ(shares[3], shares[2]);
}

TEST_F(TwoPackages, AreReadAsFarAsTheyMayBeUsed) {
  const auto usable = read_topology({1, 4, 9, 12}, sys_);
  EXPECT_THAT(core_shares(usable, 2), ElementsAre(ElementsAre(1, 9), ElementsAre(4, 12)));
}

TEST(Topology, ThatIsNotToldHasEveryThreadOnACoreOfItsOwn) {
  const auto threads = read_topology({0, 1, 2, 3}, "/nowhere");
  EXPECT_THAT(core_shares(threads, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(node_shares(threads, 2), IsEmpty());
}

TEST(NumberList, IsReadAndWrittenAsPeopleDo) {
  EXPECT_THAT(*parse_number_list("7,0-2,2", 10), ElementsAre(0, 1, 2, 7));
  EXPECT_EQ(format_number_list({0, 1, 2, 7}), "0-2,7");
  for (const char* text : {"", ",", "1,", "a", "3-1", "-1", "1-", "11", "1 2"}) {
    EXPECT_FALSE(parse_number_list(text, 10)) << text;
  }
}

TEST(Gpus, AreGivenToRanksInOrder) {
  Command command =
      ranks_that({"only=1", "env=CUDA_VISIBLE_DEVICES"}, {"--nproc", "2", "--gpus-per-rank", "2"});
  command.environment = {{"CUDA_VISIBLE_DEVICES", "4,5,GPU-ab,7,8"}};
  EXPECT_EQ(run_command(command).out, "1 CUDA_VISIBLE_DEVICES=GPU-ab,7\n");
}

TEST(Gpus, SayHowManyRanksThereAre) {
  Command command = ranks_that({"only=0", "env=WORLD_SIZE"}, {"--nproc", "gpu"});
  command.environment = {{"CUDA_VISIBLE_DEVICES", "0,3,-1,5"}};
  EXPECT_EQ(run_command(command).out, "0 WORLD_SIZE=2\n");
}

TEST(Gpus, ThatAreTooFewAreOneLine) {
  Command command = ranks_that({}, {"--nproc", "2", "--gpus-per-rank", "1"});
  command.environment = {{"CUDA_VISIBLE_DEVICES", "0"}};
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.error, HasSubstr("the ranks need 2 GPUs, there are 1"));
  command = ranks_that({}, {"--nproc", "gpu"});
  command.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  EXPECT_THAT(run_command(command).error, HasSubstr("there is no GPU"));
}

TEST(DryRun, OfANodeCountsRanksAsIfAllNodesWereLikeIt) {
  Command command{.arguments = {built_program("dlaunch"), "--nproc", "2", "--nnodes", "3",
                                "--node-rank", "1", "--rdzv-endpoint", "head:29500", "--dry-run",
                                "/bin/echo"}};
  command.environment = {{"DLAUNCH_TOKEN", std::string(64, 'a')}};
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("node 1 of 3; they meet at head:29500; ranks are numbered as "
                                    "if every node had 2\nrank 2\n"));
  EXPECT_THAT(result.out, HasSubstr("rank 3\n"));
  EXPECT_THAT(result.out, HasSubstr("    WORLD_SIZE=6\n"));
  EXPECT_THAT(result.out, HasSubstr("    GROUP_RANK=1\n"));
  EXPECT_THAT(result.out, HasSubstr("    MASTER_ADDR=(the address of node 0)\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("rank 0\n")));
}

TEST(DryRun, SaysWhatEachRankWouldBeStartedWithAndStartsNothing) {
  Command command{.arguments = {built_program("dlaunch"), "--nproc", "2", "--bind", "none",
                                "--dry-run", "/bin/echo", "it's here", ""}};
  command.environment = {{"WORLD_SIZE", "9"}, {"FLAVOUR", "sweet"}};
  const auto result = run_command(command);
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("rank 1\n  command: /bin/echo 'it'\\''s here' ''\n"
                                    "  cores:   all that dlaunch may use\n"
                                    "  stdin:   /dev/null\n"));
  EXPECT_THAT(result.out, HasSubstr("    WORLD_SIZE=2\n"));
  EXPECT_THAT(result.out, HasSubstr("    DLAUNCH_TOKEN=(the job's secret)\n"));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("FLAVOUR")));
}

}  // namespace
}  // namespace dlaunch::testing
