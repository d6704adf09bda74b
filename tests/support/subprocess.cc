#include "tests/support/subprocess.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dlaunch::testing {
namespace {

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) give_up("pipe");
  return ends;
}

void close_descriptor(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

bool names(const std::string& entry, const std::string& variable) {
  return entry.size() > variable.size() && entry[variable.size()] == '=' &&
         entry.compare(0, variable.size(), variable) == 0;
}

// What a cluster's job, or a user's shell, would have programs do otherwise than a test expects.
bool is_foreign(const std::string& entry) {
  constexpr std::array kForeign{"DLAUNCH_LOG=",
                                "DLAUNCH_TRANSPORT=",
                                "DLAUNCH_TIMEOUT=",
                                "DLAUNCH_REDUCE_ORDER=",
                                "DLAUNCH_COST_MODEL=",
                                "PET_",
                                "SLURM_STEP_",
                                "SLURM_JOB_",
                                "SLURM_PROCID",
                                "OMPI_COMM_",
                                "PMI_"};
  return std::ranges::any_of(kForeign, [&](const char* name) { return entry.starts_with(name); });
}

std::vector<std::string> make_environment(const Command& command) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto replaced = [&](const auto& pair) { return names(text, pair.first); };
    const auto unset = [&](const std::string& name) { return names(text, name); };
    if (!is_foreign(text) &&
        std::none_of(command.environment.begin(), command.environment.end(), replaced) &&
        std::none_of(command.unset.begin(), command.unset.end(), unset)) {
      environment.push_back(text);
    }
  }
  for (const auto& [name, value] : command.environment) environment.push_back(name + "=" + value);
  return environment;
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

int milliseconds(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
  return static_cast<int>(std::min<long long>(left, INT_MAX));
}

// Appends what a pipe holds; closes it at its end.
void read_into(int& descriptor, std::string& text) {
  std::array<char, 64 << 10> buffer;
  const ssize_t count = read(descriptor, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) close_descriptor(descriptor);
}

}  // namespace

Subprocess::Subprocess(const Command& command) : unsent_(command.input) {
  const auto input = make_pipe();
  const auto output = make_pipe();
  const auto error = make_pipe();
  const auto environment = make_environment(command);
  const auto argv = pointers(command.arguments);
  const auto envp = pointers(environment);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) give_up("fork");
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(input[0], STDIN_FILENO);
    dup2(output[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    if (command.close_output) close(STDOUT_FILENO);
    execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  close(input[0]);
  close(output[1]);
  close(error[1]);
  input_ = input[1];
  output_ = output[0];
  error_ = error[0];
  fcntl(input_, F_SETFL, O_NONBLOCK);
  signal(SIGPIPE, SIG_IGN);
  feed_input();
}

Subprocess::~Subprocess() {
  if (pid_ >= 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close_descriptor(input_);
  close_descriptor(output_);
  close_descriptor(error_);
}

void Subprocess::send_signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

void Subprocess::feed_input() {
  while (!unsent_.empty()) {
    const ssize_t count = write(input_, unsent_.data(), unsent_.size());
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0 && errno != EINTR) unsent_.clear();  // nobody reads
    if (count > 0) unsent_.erase(0, static_cast<std::size_t>(count));
  }
  close_descriptor(input_);
}

// Reads and writes once. False if the deadline passed or both outputs have ended.
bool Subprocess::read_more(Deadline deadline) {
  if (output_ < 0 && error_ < 0) return false;
  std::array<pollfd, 3> waiting{{{.fd = output_, .events = POLLIN, .revents = 0},
                                 {.fd = error_, .events = POLLIN, .revents = 0},
                                 {.fd = input_, .events = POLLOUT, .revents = 0}}};
  const int ready = poll(waiting.data(), waiting.size(), milliseconds(deadline));
  if (ready < 0 && errno == EINTR) return true;
  if (ready <= 0) return false;
  if (waiting[0].revents != 0) read_into(output_, result_.out);
  if (waiting[1].revents != 0) read_into(error_, result_.error);
  if (waiting[2].revents != 0) feed_input();
  return true;
}

bool Subprocess::wait_for_output(std::string_view text, Deadline deadline) {
  while (result_.out.find(text) == std::string::npos) {
    if (!read_more(deadline)) return false;
  }
  return true;
}

bool Subprocess::wait_for_error(std::string_view text, Deadline deadline) {
  while (result_.error.find(text) == std::string::npos) {
    if (!read_more(deadline)) return false;
  }
  return true;
}

CompletedProcess Subprocess::finish(Deadline deadline) {
  while (read_more(deadline)) {
  }
  // Its pipes have ended, so it is about to, unless the deadline has passed or it closed them
  // itself.
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  pollfd ended{.fd = handle, .events = POLLIN, .revents = 0};
  int ready = -1;
  do {
    ready = poll(&ended, 1, milliseconds(deadline));
  } while (ready < 0 && errno == EINTR);
  result_.timed_out = ready <= 0 || output_ >= 0 || error_ >= 0;
  close(handle);
  if (result_.timed_out) kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result_;
}

CompletedProcess run_command(const Command& command, Deadline deadline) {
  return Subprocess(command).finish(deadline);
}

std::string built_program(const std::string& name) {
  std::array<char, PATH_MAX> self{};
  if (readlink("/proc/self/exe", self.data(), self.size() - 1) < 0) give_up("/proc/self/exe");
  const std::string path(self.data());
  const std::string tests = path.substr(0, path.rfind('/'));
  const std::string beside = tests + "/" + name;
  return access(beside.c_str(), X_OK) == 0 ? beside : tests.substr(0, tests.rfind('/') + 1) + name;
}

}  // namespace dlaunch::testing
