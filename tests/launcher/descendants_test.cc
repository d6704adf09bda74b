// Finding and ending everything that a process has started.
#include "launcher/supervision/descendants.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "runtime/base/descriptor.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

// Whether `body` says so in a process as dlaunch's are, which the test's own children do not
// disturb.
bool holds_in_a_subreaper(const std::function<bool()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &child_ended, nullptr);
    const bool holds = body();
    close_range(STDERR_FILENO + 1, ~0U, 0);
    Descendants().kill_all(30s);
    _exit(holds ? 0 : 1);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A child that waits to be killed, and one of its own in another session.
pid_t start_family() {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  if (fork() == 0) setsid();
  while (true) pause();
}

TEST(Descendants, AreToldApartFromOthers) {
  EXPECT_TRUE(can_find_descendants());
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild > 0 && write(ready[1], &grandchild, sizeof grandchild) > 0) pause();
    while (true) pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(read(ready[0], &grandchild, sizeof grandchild), ssize_t{sizeof grandchild});
  EXPECT_TRUE(is_descendant(child));
  EXPECT_TRUE(is_descendant(grandchild));
  for (const pid_t other : {getppid(), getpid(), 1, 0, -1}) EXPECT_FALSE(is_descendant(other));
  kill(grandchild, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(is_descendant(child));
  close(ready[0]);
  close(ready[1]);
}

// So many more processes on this machine, in which others are to be found.
class Crowd {
 public:
  explicit Crowd(int count) {
    int there[2];
    int over[2];
    if (pipe(there) != 0 || pipe(over) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(over[1]);
      for (int i = 0; i < count; ++i) {
        if (fork() == 0) _exit(0);
      }
      char byte = 0;
      if (write(there[1], &byte, 1) != 1 || read(over[0], &byte, 1) != 0) _exit(1);
      while (waitpid(-1, nullptr, 0) > 0) {
      }
      _exit(0);
    }
    char byte = 0;
    EXPECT_EQ(read(there[0], &byte, 1), 1);
    over_ = Descriptor(over[1]);
    for (const int end : {there[0], there[1], over[0]}) close(end);
  }
  ~Crowd() {
    over_.close();
    waitpid(pid_, nullptr, 0);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

 private:
  pid_t pid_ = -1;
  Descriptor over_;
};

// A process that leaves its session and goes on in a child of its own, again and again.
void start_chain() {
  if (fork() != 0) return;
  setsid();
  std::signal(SIGCHLD, SIG_IGN);
  alarm(60);
  while (true) {
    if (fork() > 0) _exit(0);
  }
}

bool no_descriptor_is_left() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = 64;
  setrlimit(RLIMIT_NOFILE, &limit);
  while (open("/dev/null", O_RDONLY) >= 0) {
  }
  return errno == EMFILE;
}

TEST(Descendants, AreFoundInSessionsOfTheirOwnToo) {
  EXPECT_TRUE(holds_in_a_subreaper([] {
    Descendants all;
    const pid_t child = start_family();
    auto found = all.find();
    while (found && found->size() < 2) found = all.find();
    return found && found->size() == 2 && found->at(0).pid == child &&
           found->at(1).stat.parent == child;
  }));
}

TEST(Descendants, AreNoneOfAProcessWithoutChildren) {
  EXPECT_TRUE(holds_in_a_subreaper([] {
    const auto found = Descendants().find();
    return found && found->empty();
  }));
}

TEST(Descendants, AreAllKilled) {
  EXPECT_TRUE(holds_in_a_subreaper([] {
    start_family();
    return Descendants().kill_all(30s) && waitpid(-1, nullptr, 0) < 0;
  }));
}

TEST(Descendants, ThatForkAndExitAgainAndAgainAreKilledAmongManyProcesses) {
  const Crowd crowd(2000);
  EXPECT_TRUE(holds_in_a_subreaper([] {
    start_chain();
    return Descendants().kill_all(30s) && waitpid(-1, nullptr, 0) < 0;
  }));
}

TEST(Descendants, AreKilledWhereNoMoreFilesCanBeOpened) {
  EXPECT_TRUE(holds_in_a_subreaper([] {
    Descendants all;
    start_family();
    return no_descriptor_is_left() && all.kill_all(30s) && waitpid(-1, nullptr, 0) < 0;
  }));
}

TEST(Descendants, ThatWereThereBeforeAreLeftAlone) {
  EXPECT_TRUE(holds_in_a_subreaper([] {
    const pid_t before = fork();
    if (before == 0) {
      while (true) pause();
    }
    Descendants others(inherited_descendants());
    const pid_t child = start_family();
    return others.kill_all(30s) && kill(child, 0) != 0 && waitpid(before, nullptr, WNOHANG) == 0;
  }));
}

// To take that for "there are none" would leave them behind.
TEST(Descendants, ThatCannotBeFoundAreNotTakenForNone) {
  EXPECT_TRUE(holds_in_a_subreaper([] {
    const pid_t before = fork();
    if (before == 0) {
      while (true) pause();
    }
    const auto inherited = inherited_descendants();
    start_family();
    if (!no_descriptor_is_left()) return false;
    Descendants others(inherited);
    return !others.find() && !others.kill_all(100ms);
  }));
}

}  // namespace
}  // namespace dlaunch::testing
