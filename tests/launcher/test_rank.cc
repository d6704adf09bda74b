// A rank for the launcher's tests. Its arguments are what it does, one after the other:
//
//   only=K        what follows is for rank K only (only=all: for everybody again)
//   out=TEXT      writes TEXT and a newline to stdout, in one piece; {rank} stands for the rank
//   err=TEXT      the same to stderr; part=TEXT: without the newline
//   zeros=N       writes N zero bytes to stdout
//   record=TEXT   writes TEXT to the file that TORCHELASTIC_ERROR_FILE names
//   env=NAME      writes "RANK NAME=value" to stdout, or "RANK NAME is not set"
//   pid           writes "RANK pid PID" to stdout
//   chunks=N      writes N lines to stderr, torn into pieces of random length; out-chunks=N: to
//   stdout stdin         writes "RANK read BYTES bytes" to stdout after reading stdin to its end
//   cores         writes "RANK may use CORE,CORE,..." to stdout
//   tty           writes to stdout whether its stderr is a terminal, and how wide
//   count-fds     writes "RANK has N descriptors" to stdout: those above 2
//   ignore=SIGNAL, default=SIGNAL
//   await=SIGNAL  waits for that signal, then writes "RANK got SIGNAL" to stdout
//   family        starts a child in a session of its own, which starts another one; both stay
//   leave-group   joins the process group of dlaunch
//   traceable     lets any process of this user trace it
//   publish=PID   says in its page for hang reports that it is that process, to be asked for its
//                 stack by SIGKILL
//   own-group, own-session   leads a process group or a session of its own
//   raise=SIGNAL, exit=CODE
//   fail-before=N exits with 3 in the attempts before number N
//   assert, throw=TEXT, abort, fault   end it in these ways
//   hog=MIB       uses so much memory; limit=MIB: may use no more address space than that
//   pause         waits for a signal that ends it
//
// SIGALRM ends it, and its family, after a minute.
#undef NDEBUG  // assert() asserts in every build
#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/base/activity_layout.h"
#include "tests/launcher/rank_actions.h"

// LeakSanitizer stops the process that it looks through with signals of its own, which on a
// terminal get into the way of the ones that the tests send.
extern "C" const char* __asan_default_options();   // NOLINT: the sanitizer's name
extern "C" const char* __asan_default_options() {  // NOLINT
  return "detect_leaks=0";
}

namespace {

using dlaunch::testing::own_rank;

void write_all(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) std::_Exit(99);
    if (count > 0) done += static_cast<std::size_t>(count);
  }
}

std::string with_rank(std::string text) {
  const auto place = text.find("{rank}");
  return place == std::string::npos ? text : text.replace(place, 6, own_rank());
}

void write_in_chunks(int descriptor, int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    text += "line " + std::to_string(i) + " of rank " + own_rank() + " with some more text\n";
  }
  std::mt19937 random(static_cast<unsigned>(getpid()));
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = std::min<std::size_t>(1 + random() % 50, text.size() - at);
    write_all(descriptor, text.substr(at, length));
    at += length;
  }
}

// Returns once both descendants are there.
void start_family() {
  int ready[2];
  if (pipe(ready) != 0) std::_Exit(99);
  if (fork() == 0) {
    setsid();
    alarm(300);
    if (fork() == 0) {
      setsid();
      alarm(300);
      write_all(ready[1], "x");
      while (true) pause();
    }
    write_all(ready[1], "x");
    while (true) pause();
  }
  for (int i = 0; i < 2; ++i) {
    char byte = 0;
    if (read(ready[0], &byte, 1) != 1) std::_Exit(99);
  }
}

std::string read_stdin() {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t count = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
  }
}

std::string own_cores() {
  std::string text;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return "?";
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &set)) continue;
    if (!text.empty()) text += ",";
    text += std::to_string(core);
  }
  return text;
}

int count_descriptors() {
  int count = 0;
  for (int descriptor = 3; descriptor < 1024; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) >= 0) ++count;
  }
  return count;
}

void await(int signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  write_all(STDOUT_FILENO, own_rank() + " waits\n");
  int got = 0;
  sigwait(&set, &got);
  write_all(STDOUT_FILENO, own_rank() + " got " + std::to_string(got) + "\n");
}

int own_attempt() {
  const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");  // NOLINT(concurrency-mt-unsafe)
  return count == nullptr ? 0 : std::atoi(count);
}

// Reads where nothing is any more.
void fault() {
  constexpr std::size_t kPage = 4096;
  void* page = mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(page, kPage);
  (void)*static_cast<const volatile char*>(page);
}

// Ways of coming to grief.
void fail(const std::string& action, const std::string& value) {
  constexpr rlim_t kMebibyte = rlim_t{1} << 20;
  const int number = std::atoi(value.c_str());
  if (action == "raise") std::raise(number);
  if (action == "exit") std::_Exit(number);
  if (action == "fail-before" && own_attempt() < number) std::_Exit(3);
  if (action == "assert") assert(number == 42);
  if (action == "throw") throw std::runtime_error(value);
  if (action == "abort") std::abort();
  if (action == "fault") fault();
  if (action == "limit") {
    const rlimit limit{static_cast<rlim_t>(number) * kMebibyte,
                       static_cast<rlim_t>(number) * kMebibyte};
    if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(99);
  }
  if (action == "hog") {
    std::vector<std::vector<char>> memory;
    for (int i = 0; i < number; ++i) memory.emplace_back(kMebibyte, 'x');
    write_all(STDERR_FILENO, std::to_string(memory.size()) + " MiB taken\n");
  }
}

void record(const std::string& text) {
  const char* path = std::getenv("TORCHELASTIC_ERROR_FILE");  // NOLINT(concurrency-mt-unsafe)
  const int file = open(path == nullptr ? "" : path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (file < 0) std::_Exit(98);
  write_all(file, text);
  close(file);
}

// In the first page, as rank 0 of its node.
void publish(std::int64_t pid) {
  using dlaunch::ActivityPage;
  const char* path = std::getenv("DLAUNCH_ACTIVITY");  // NOLINT(concurrency-mt-unsafe): one thread
  const int file = open(path == nullptr ? "" : path, O_WRONLY | O_CLOEXEC);
  const std::int32_t signal = SIGKILL;
  if (pwrite(file, &pid, sizeof pid, offsetof(ActivityPage, process)) != sizeof pid ||
      pwrite(file, &signal, sizeof signal, offsetof(ActivityPage, stack_signal)) != sizeof signal) {
    std::_Exit(99);
  }
  close(file);
}

void act(const std::string& action, const std::string& value) {
  const int number = std::atoi(value.c_str());
  if (action == "out") write_all(STDOUT_FILENO, with_rank(value) + "\n");
  if (action == "err") write_all(STDERR_FILENO, with_rank(value) + "\n");
  if (action == "part") write_all(STDERR_FILENO, with_rank(value));
  if (action == "zeros")
    write_all(STDOUT_FILENO, std::string(static_cast<std::size_t>(number), '\0'));
  if (action == "record") record(value);
  if (action == "env") {
    const char* text = std::getenv(value.c_str());  // NOLINT(concurrency-mt-unsafe): one thread
    write_all(STDOUT_FILENO, own_rank() + " " + value +
                                 (text == nullptr ? " is not set" : std::string("=") + text) +
                                 "\n");
  }
  if (action == "pid") {
    write_all(STDOUT_FILENO, own_rank() + " pid " + std::to_string(getpid()) + "\n");
  }
  if (action == "chunks") write_in_chunks(STDERR_FILENO, number);
  if (action == "out-chunks") write_in_chunks(STDOUT_FILENO, number);
  if (action == "stdin") {
    write_all(STDOUT_FILENO,
              own_rank() + " read " + std::to_string(read_stdin().size()) + " bytes\n");
  }
  if (action == "cores") {
    write_all(STDOUT_FILENO, own_rank() + " may use " + own_cores() + "\n");
  }
  if (action == "tty") {
    winsize size{};
    const bool terminal = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0;
    write_all(STDOUT_FILENO, own_rank() + (terminal ? " writes to a terminal of " +
                                                          std::to_string(size.ws_col) + " columns\n"
                                                    : " writes to no terminal\n"));
  }
  if (action == "count-fds") {
    write_all(STDOUT_FILENO,
              own_rank() + " has " + std::to_string(count_descriptors()) + " descriptors\n");
  }
  if (action == "ignore") std::signal(number, SIG_IGN);
  if (action == "default") std::signal(number, SIG_DFL);
  if (action == "await") await(number);
  if (action == "family") start_family();
  if (action == "traceable") prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  if (action == "publish") publish(number);
  if (action == "own-group" && setpgid(0, 0) != 0) std::_Exit(99);
  if (action == "own-session" && setsid() < 0) std::_Exit(99);
  if (action == "leave-group" && setpgid(0, getpgid(getppid())) != 0) std::_Exit(99);
  fail(action, value);
  while (action == "pause") pause();
}

}  // namespace

int main(int argc, char** argv) {
  alarm(300);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  dlaunch::testing::for_each_action(argc, argv, act);
  return 0;
}
