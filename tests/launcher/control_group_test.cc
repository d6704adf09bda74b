// What control groups tell, on systems made of files.
#include "runtime/base/control_group.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "launcher/failure/kernel_account.h"
#include "runtime/base/temporary_folder.h"
#include "runtime/base/usable_cores.h"

namespace dlaunch::testing {
namespace {

class ControlGroups : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root() + "/" + file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  const std::string& root() const { return temporary_.path(); }

  const TemporaryFolder temporary_;
};

TEST_F(ControlGroups, LimitTheTimeOfAllThatIsBelowThem) {
  const std::string cgroups = "0::/slice/job/step\n";
  EXPECT_FALSE(cpu_quota(cgroups, root()));
  write("slice/job/step/cpu.max", "max 100000");
  EXPECT_FALSE(cpu_quota(cgroups, root()));
  write("slice/job/cpu.max", "150000 100000");
  EXPECT_EQ(cpu_quota(cgroups, root()), 1.5);
  write("slice/cpu.max", "400000 100000");
  EXPECT_EQ(cpu_quota(cgroups, root()), 1.5);
  write("cpu.max", "50000 100000");
  EXPECT_EQ(cpu_quota(cgroups, root()), 0.5);
  EXPECT_EQ(cpu_quota("0::/\n", root()), 0.5);
}

TEST_F(ControlGroups, OfTheOldKindLimitTimeToo) {
  const std::string cgroups = "4:memory:/other\n3:cpu,cpuacct:/docker/1f\n0::/\n";
  write("cpu/docker/1f/cpu.cfs_quota_us", "-1");
  write("cpu/docker/1f/cpu.cfs_period_us", "100000");
  write("cpu.max", "10000 100000");  // of another kind
  EXPECT_FALSE(cpu_quota(cgroups, root()));
  // As a container sees it, to which its own group is the first.
  write("cpu/cpu.cfs_quota_us", "300000");
  write("cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpu_quota(cgroups, root()), 3.0);
}

TEST_F(ControlGroups, LimitTheNumberOfProcessesByTheLeastThatEncloses) {
  const std::string cgroups = "3:pids:/slice/job\n0::/elsewhere\n";
  EXPECT_FALSE(most_processes(cgroups, root()));
  write("pids/slice/job/pids.max", "max");
  EXPECT_FALSE(most_processes(cgroups, root()));
  write("pids/slice/pids.max", "512");
  EXPECT_EQ(most_processes(cgroups, root()), 512U);
  write("pids/slice/job/pids.max", "9000");
  EXPECT_EQ(most_processes(cgroups, root()), 512U);
  write("elsewhere/pids.max", "77");
  EXPECT_EQ(most_processes("0::/elsewhere\n", root()), 77U);
  EXPECT_FALSE(most_processes("", root()));
}

TEST_F(ControlGroups, LimitMemoryByTheLeastThatEnclosesInBothVersions) {
  const auto limit = [this](const std::string& cgroups) { return most_memory(cgroups, root()); };
  EXPECT_FALSE(limit("0::/"));
  write("job/memory.max", "5000");
  write("job/step/memory.max", "max");
  EXPECT_EQ(limit("0::/job/step"), 5000U);
  EXPECT_FALSE(limit("0::/other"));
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  write("memory/slurm/memory.limit_in_bytes", "4000");
  write("memory/slurm/job/memory.limit_in_bytes", "6000");
  EXPECT_EQ(limit("11:cpu,cpuacct:/x\n9:memory:/slurm/job\n0::/job"), 4000U);
  EXPECT_EQ(limit("9:cpu,memory:/slurm/job"), 4000U);
  EXPECT_EQ(limit("9:memory:/docker/abc"), 9223372036854771712U);
}

TEST_F(ControlGroups, ThatAreNotToldLimitNothing) {
  for (const char* cgroups : {"", "\n", "0:", "2:cpuset:/a\n"}) {
    EXPECT_FALSE(cpu_quota(cgroups, root())) << cgroups;
  }
}

TEST(CoresWithTime, AreOneToAllThatMayBeUsed) {
  EXPECT_EQ(cores_with_time(8, std::nullopt), 8);
  EXPECT_EQ(cores_with_time(8, 2.5), 2);
  EXPECT_EQ(cores_with_time(8, 0.5), 1);
  EXPECT_EQ(cores_with_time(2, 16.0), 2);
  EXPECT_EQ(cores_with_time(4, 1e300), 4);
  EXPECT_GE(cores_with_time(), 1);
  EXPECT_LE(cores_with_time(), usable_cores());
}

TEST_F(ControlGroups, CountKilledProcessesWhereTheyAreOrWhereAContainerSeesThem) {
  const std::string old_kind = "4:memory:/docker/1f\n0::/\n";
  write("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2");
  EXPECT_EQ(memory_events_path(old_kind, root()), root() + "/memory/memory.oom_control");
  write("memory/docker/1f/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0");
  EXPECT_EQ(memory_events_path(old_kind, root()), root() + "/memory/docker/1f/memory.oom_control");
  write("memory.events", "oom 1\noom_kill 1");
  EXPECT_EQ(memory_events_path("0::/slice\n", root()), root() + "/memory.events");
  write("slice/memory.events", "oom 1\noom_kill 1");
  EXPECT_EQ(memory_events_path("0::/slice\n", root()), root() + "/slice/memory.events");
  EXPECT_EQ(memory_events_path("", root()), "");
}

}  // namespace
}  // namespace dlaunch::testing
