#include "launcher/hang/stack_collector.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>

#include <fcntl.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcher/ranks/program_search.h"

namespace dlaunch {
namespace {

constexpr std::chrono::seconds kDebuggerLimit{20};
constexpr std::size_t kMostLines = 120;  // for each process
constexpr std::size_t kMostOutput = 1 << 20;

std::string find_debugger() {
  for (const char* name : {"eu-stack", "gdb"}) {
    const auto found = find_program(name);
    if (const auto* path = std::get_if<std::string>(&found)) return *path;
  }
  return "";
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

std::vector<std::string> debugger_command(const std::string& debugger, pid_t pid) {
  if (base_name(debugger) == "eu-stack") return {debugger, "-p", std::to_string(pid)};
  return {debugger,
          "-nx",
          "--batch",
          "-p",
          std::to_string(pid),
          "-ex",
          "set width 0",
          "-ex",
          "thread apply all bt 30"};
}

// Frames and the headings of threads, without a debugger's chatter.
std::vector<std::string> frames_in(const std::string& output) {
  std::vector<std::string> frames;
  bool any = false;
  for (std::size_t start = 0; start < output.size() && frames.size() < kMostLines;) {
    const auto end = std::min(output.find('\n', start), output.size());
    const std::string line = output.substr(start, end - start);
    start = end + 1;
    any = any || line.starts_with("#");
    const bool heading = line.starts_with("Thread ") || line.starts_with("TID ");
    if (heading || line.starts_with("#")) frames.push_back("  | " + line);
  }
  if (!any) frames.clear();
  return frames;
}

// eu-stack would ask the servers in DEBUGINFOD_URLS for each library's symbols, while the rank
// stands still, and wait for them where there is no network.
std::vector<char*> debugger_environment() {
  constexpr std::string_view kServers = "DEBUGINFOD_URLS=";
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with(kServers)) variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  return variables;
}

}  // namespace

StackCollector::StackCollector(EventLoop& loop, const sigset_t& signal_mask,
                               std::vector<Process> processes, Done done)
    : loop_(loop),
      signal_mask_(signal_mask),
      processes_(std::move(processes)),
      done_(std::move(done)),
      debugger_(find_debugger()) {
  timer_ = loop_.call_at(EventLoop::Clock::now(), [this] { look_at_next(); });
}

StackCollector::~StackCollector() {
  stop_debugger();
}

void StackCollector::look_at_next() {
  timer_.reset();
  if (next_ == processes_.size()) {
    // It may destroy this object.
    const Done done = done_;
    return done(std::move(lines_));
  }
  output_.clear();
  if (debugger_.empty() || !start_debugger(processes_[next_].pid)) return finish_one();
  loop_.add(pipe_.get(), EPOLLIN, [this] { read_output(); });
  timer_ = loop_.call_at(EventLoop::Clock::now() + kDebuggerLimit, [this] {
    timer_.reset();
    finish_one();
  });
}

bool StackCollector::start_debugger(pid_t pid) {
  seen_ = read_process_stat(pid);
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  pipe_ = Descriptor(ends[0]);
  const Descriptor writing(ends[1]);
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);

  const std::vector<std::string> command = debugger_command(debugger_, pid);
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, writing.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &signal_mask_);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID);
  pid_t child = -1;
  std::vector<char*> variables = debugger_environment();
  const int error = posix_spawn(&child, debugger_.c_str(), &files, &attributes, arguments.data(),
                                variables.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return false;
  running_ = Descriptor(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  if (!running_.is_open()) kill(child, SIGKILL);
  return running_.is_open();
}

void StackCollector::read_output() {
  std::array<char, 16 << 10> buffer;
  const ssize_t count = read(pipe_.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) output_.append(buffer.data(), static_cast<std::size_t>(count));
  // It ends by itself. Whoever reaps this process's children reaps it.
  if (count <= 0) running_.close();
  if (count <= 0 || output_.size() > kMostOutput) finish_one();
}

void StackCollector::finish_one() {
  stop_debugger();
  const Process& process = processes_[next_++];
  const std::string whom =
      "rank " + std::to_string(process.rank) + " (pid " + std::to_string(process.pid);
  const std::vector<std::string> frames = frames_in(output_);
  if (!frames.empty()) {
    lines_.push_back("stack of " + whom + ", by " + std::string(base_name(debugger_)) + "):");
    lines_.insert(lines_.end(), frames.begin(), frames.end());
  } else if (process.stack_signal != 0 && kill(process.pid, process.stack_signal) == 0) {
    lines_.push_back(
        "stack of " + whom + "): see its stderr, to which it was asked to print it" +
        (debugger_.empty() ? "; with eu-stack or gdb installed there are more names" : ""));
  } else {
    lines_.push_back("no stack of " + whom + "): " +
                     (debugger_.empty() ? "neither eu-stack nor gdb is installed"
                                        : debugger_ + " could not look at it"));
  }
  timer_ = loop_.call_at(EventLoop::Clock::now(), [this] { look_at_next(); });
}

void StackCollector::stop_debugger() {
  if (timer_) loop_.cancel(*std::exchange(timer_, std::nullopt));
  if (pipe_.is_open()) {
    loop_.remove(pipe_.get());
    pipe_.close();
  }
  if (running_.is_open()) kill_debugger();
}

// A debugger tells all threads to stop. Those that it had not collected yet stop their process when
// it is gone, or as soon as they no longer sleep in the kernel, and nothing lets that go on but
// SIGCONT, which also takes back what they have not heard of yet.
void StackCollector::kill_debugger() {
  const auto end = std::make_shared<Descriptor>(std::exchange(running_, Descriptor()));
  syscall(SYS_pidfd_send_signal, end->get(), SIGKILL, nullptr, 0);
  if (!seen_ || seen_->state == 'T' || seen_->state == 't') return;  // stopped by somebody else
  loop_.add(end->get(), EPOLLIN,
            [&loop = loop_, end, pid = processes_[next_].pid, started = seen_->started] {
              loop.remove(end->get());
              const auto now = read_process_stat(pid);
              if (now && now->started == started) kill(pid, SIGCONT);
            });
}

}  // namespace dlaunch
