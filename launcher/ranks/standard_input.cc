#include "launcher/ranks/standard_input.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "launcher/options/output_options.h"

namespace dlaunch {
namespace {

// False if nobody reads the pipe any more. SIGPIPE is blocked.
bool write_all(int pipe, const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t written = write(pipe, bytes, count);
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) {
      bytes += written;
      count -= static_cast<std::size_t>(written);
    }
  }
  return true;
}

void tell_read_error() {
  constexpr std::string_view kLine =
      "dlaunch: --stdin all: stdin cannot be read; the ranks see its end\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kLine.data(), kLine.size());
}

// Runs in a child of a process that has several threads: system calls only. dlaunch's signals are
// blocked in it; it ends with stdin, with the last reader, or with dlaunch.
[[noreturn]] void copy_to_all(std::vector<Descriptor>& pipes) {
  std::array<char, 16 << 10> buffer;
  std::size_t readers = pipes.size();
  while (readers > 0) {
    const ssize_t count = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {  // others have made it non-blocking
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      poll(&input, 1, -1);
      continue;
    }
    if (count < 0) tell_read_error();
    if (count <= 0) break;
    for (Descriptor& pipe : pipes) {
      if (!pipe.is_open()) continue;
      if (write_all(pipe.get(), buffer.data(), static_cast<std::size_t>(count))) continue;
      pipe.close();
      --readers;
    }
  }
  _exit(0);
}

// Returns the process that copies.
Result<pid_t> start_copying(std::vector<Descriptor>& reading, int ranks, pid_t terminal_group) {
  std::vector<Descriptor> writing;
  for (int i = 0; i < ranks; ++i) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return Status::from_errno("pipe", errno);
    reading.emplace_back(ends[0]);
    writing.emplace_back(ends[1]);
  }
  const pid_t launcher = getpid();
  const pid_t copier = fork();
  if (copier < 0) return Status::from_errno("fork", errno);
  if (copier == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(0);
    setpgid(0, terminal_group);
    for (Descriptor& pipe : reading) pipe.close();
    copy_to_all(writing);
  }
  return copier;
}

}  // namespace

Result<StandardInput> StandardInput::open(int who, int first_rank, int ranks,
                                          pid_t terminal_group) {
  Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing.is_open()) return Status::from_errno("/dev/null", errno);
  StandardInput input(who, first_rank, std::move(nothing));
  if (who == OutputOptions::kEverybody) {
    const auto copier = start_copying(input.pipes_, ranks, terminal_group);
    if (!copier.ok()) return copier.status();
    input.copier_ = *copier;
  }
  return input;
}

int StandardInput::of(int rank) const {
  if (!pipes_.empty()) return pipes_[static_cast<std::size_t>(rank - first_rank_)].get();
  return rank == who_ ? STDIN_FILENO : nothing_.get();
}

}  // namespace dlaunch
