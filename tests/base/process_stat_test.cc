// What /proc/PID/stat tells, whatever the process does meanwhile.
#include "runtime/base/process_stat.h"

#include <chrono>
#include <csignal>
#include <ctime>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "runtime/base/descriptor.h"

namespace dlaunch::testing {
namespace {

// A child that waits to be killed.
class Child {
 public:
  explicit Child(const char* name = "") : pid_(fork()) {
    if (pid_ != 0) return;
    if (*name != '\0') prctl(PR_SET_NAME, name);
    while (true) pause();
  }
  ~Child() { reap(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  Descriptor stat_file() const {
    return Descriptor(open(("/proc/" + std::to_string(pid_) + "/stat").c_str(), O_RDONLY));
  }
  // It is a zombie now.
  void kill() const {
    ::kill(pid_, SIGKILL);
    siginfo_t ended{};
    waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT);
  }
  void reap() {
    if (reaped_) return;
    kill();
    waitpid(pid_, nullptr, 0);
    reaped_ = true;
  }

 private:
  pid_t pid_;
  bool reaped_ = false;
};

TEST(ProcessStat, IsThatOfThisProcess) {
  const auto stat = read_process_stat(getpid());
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->state, 'R');
  EXPECT_EQ(stat->parent, getppid());
  EXPECT_EQ(stat->group, getpgid(0));
  EXPECT_EQ(stat->session, getsid(0));
  EXPECT_FALSE(stat->exiting);
  timespec since_boot{};
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  const auto ticks = static_cast<std::uint64_t>(since_boot.tv_sec * sysconf(_SC_CLK_TCK));
  EXPECT_GT(stat->started, 0U);
  EXPECT_LE(stat->started, ticks + static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK)));
  EXPECT_EQ(process_state(getpid()), "running");
}

TEST(ProcessStat, TellsHowLongThisProcessHasBeenThere) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point before = Clock::now();
  const double first = seconds_since_process_start();
  const double second = seconds_since_process_start();
  const double between = std::chrono::duration<double>(Clock::now() - before).count();
  EXPECT_GE(first, 0);
  EXPECT_GE(second, first);
  EXPECT_LE(second - first, between);
  EXPECT_LT(first, 300) << "the deadline of any test";
  // A child has been there for less.
  int result[2];
  ASSERT_EQ(pipe(result), 0);
  const pid_t child = fork();
  if (child == 0) {
    const double young = seconds_since_process_start();
    const bool written = write(result[1], &young, sizeof young) == sizeof young;
    _exit(written ? 0 : 1);
  }
  double young = -1;
  EXPECT_EQ(::read(result[0], &young, sizeof young), static_cast<ssize_t>(sizeof young));
  waitpid(child, nullptr, 0);
  close(result[0]);
  close(result[1]);
  EXPECT_GE(young, 0);
  const double tick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_LE(young, std::chrono::duration<double>(Clock::now() - before).count() + tick);
}

TEST(ProcessStat, CountsTheProcessorTimeOfAllThreads) {
  const auto ticks = [] { return read_process_stat(getpid())->processor_ticks; };
  const std::uint64_t before = ticks();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::thread([&] {
    while (ticks() < before + 3 && std::chrono::steady_clock::now() < deadline) {
    }
  }).join();
  EXPECT_GE(ticks(), before + 3);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double seconds = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + 2;
  EXPECT_LE(ticks(), seconds * static_cast<double>(sysconf(_SC_CLK_TCK)));
}

TEST(ProcessStat, IsNotMisledByAName) {
  const Child child(") R 1 (\n2");  // a parent and more, at a glance
  const auto name = "/proc/" + std::to_string(child.pid()) + "/comm";
  std::string shown;
  while (shown.substr(0, 1) != ")") {  // until the child has come to it
    const Descriptor file(open(name.c_str(), O_RDONLY));
    char text[32] = {};
    ASSERT_GT(::read(file.get(), text, sizeof text - 1), 0);
    shown = text;
  }
  const auto stat = read_process_stat(child.pid());
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->parent, getpid());
}

TEST(ProcessStat, TellsAZombieFromAProcessThatIsGone) {
  Child child;
  child.kill();
  const auto stat = read_process_stat(child.pid());
  ASSERT_TRUE(stat.has_value());
  EXPECT_TRUE(stat->exiting);
  EXPECT_EQ(process_state(child.pid()), "a zombie");
  child.reap();
  EXPECT_FALSE(read_process_stat(child.pid()).has_value());
  EXPECT_EQ(process_state(child.pid()), "gone");
}

// Whoever watches processes end meets this: the guard, which must not stumble over it.
TEST(ProcessStat, IsNothingOfAProcessThatGoesAfterItsFileWasOpened) {
  Child child;
  const Descriptor file = child.stat_file();
  ASSERT_TRUE(file.is_open());
  child.reap();
  EXPECT_FALSE(read_process_stat_from(file.get()).has_value());
}

}  // namespace
}  // namespace dlaunch::testing
