#include "tests/support/forked_ranks.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include <spdlog/sinks/ostream_sink.h>

#include "runtime/base/job_environment.h"
#include "runtime/base/logging.h"
#include "runtime/base/token.h"

namespace dlaunch::testing {
namespace {

constexpr unsigned kLongestLife = 120;  // seconds; a rank that hangs ends then at the latest

[[noreturn]] void give_up(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

int milliseconds(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
  return static_cast<int>(std::min<long long>(left, 3'600'000));
}

void set_variable(const std::string& name, const std::string& value) {
  ::setenv(name.c_str(), value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): a new process
}

// What dlaunch would hand to the rank.
void set_environment(const ForkedRanks::Options& options, int rank, const std::string& token,
                     const std::string& store) {
  const auto& hosts = options.hosts;
  const auto here = hosts.begin() + rank;
  const std::vector<std::pair<std::string, std::string>> job{
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(hosts.size())},
      {"LOCAL_RANK", std::to_string(std::count(hosts.begin(), here, *here))},
      {"LOCAL_WORLD_SIZE", std::to_string(std::count(hosts.begin(), hosts.end(), *here))},
      {"DLAUNCH_NODES", std::to_string(*std::max_element(hosts.begin(), hosts.end()) + 1)},
      {"DLAUNCH_STORE", store},
      {"DLAUNCH_TOKEN", token_to_hex(token)},
      {"DLAUNCH_JOB_ID", "forked"},
      {"DLAUNCH_TIMEOUT", std::to_string(std::chrono::duration<double>(options.timeout).count())}};
  for (const auto& [name, value] : job) set_variable(name, value);
  for (const auto& [name, value] : options.environment) set_variable(name, value);
}

Logger log_into(std::ostringstream& text) {
  auto logger = std::make_shared<spdlog::logger>(
      "rank", std::make_shared<spdlog::sinks::ostream_sink_mt>(text));
  logger->set_pattern("%v");
  return logger;
}

std::string live(const ForkedRanks::Options& options, int rank, const std::string& token,
                 LineChannel& test, const ForkedRanks::Body& body) {
  try {
    if (options.enter) options.enter(options.hosts[static_cast<std::size_t>(rank)]);
    const auto store = test.read_line(Deadline::after(std::chrono::seconds(kLongestLife)));
    if (!store.has_value()) return "the test has gone";
    set_environment(options, rank, token, *store);
    std::ostringstream log;
    auto job = read_job_environment();
    if (!job.ok()) return "not connected: " + job.status().to_string();
    auto world = connect_world(*job, options.send_log ? log_into(log) : make_null_logger());
    std::istringstream lines(log.str());
    for (std::string line; std::getline(lines, line);) test.write_line("log: " + line);
    if (!world.ok()) return "not connected: " + world.status().to_string();
    return body(**world, test);
  } catch (const std::exception& error) {
    return std::string("exception: ") + error.what();
  }
}

}  // namespace

LineChannel::~LineChannel() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

LineChannel::LineChannel(LineChannel&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), unread_(std::move(other.unread_)) {}

void LineChannel::write_line(const std::string& line) const {
  std::string text = line;
  std::replace(text.begin(), text.end(), '\n', ' ');
  text += '\n';
  // A line goes whole: a socket of a pair takes far more. If the other side has gone, so be it.
  (void)::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL);
}

std::optional<std::string> LineChannel::read_line(Deadline deadline) {
  while (true) {
    if (const std::size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    pollfd ready{.fd = descriptor_, .events = POLLIN, .revents = 0};
    const int count = ::poll(&ready, 1, milliseconds(deadline));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    char buffer[4096];
    const ssize_t read = ::read(descriptor_, buffer, sizeof buffer);
    if (read <= 0) return std::nullopt;
    unread_.append(buffer, static_cast<std::size_t>(read));
  }
}

ForkedRanks::ForkedRanks(const Options& options, const Body& body) {
  const std::string token = make_token();
  const int world = static_cast<int>(options.hosts.size());
  for (int rank = 0; rank < world; ++rank) fork_rank(options, rank, token, body);
  start_store(options, token);
  const std::string address = options.store_host + ":" + std::to_string(store_->port());
  for (const LineChannel& channel : channels_) channel.write_line(address);
}

ForkedRanks::~ForkedRanks() {
  for (const pid_t child : children_) ::kill(child, SIGKILL);
  for (const pid_t child : children_) ::waitpid(child, nullptr, 0);
}

void ForkedRanks::send_signal(int rank, int signal) const {
  ::kill(children_[static_cast<std::size_t>(rank)], signal);
}

void ForkedRanks::fork_rank(const Options& options, int rank, const std::string& token,
                            const Body& body) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) give_up("socketpair");
  std::fflush(nullptr);  // or the child says it again
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) give_up("fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::alarm(kLongestLife);
    channels_.clear();  // those of other ranks: their ends are seen when they end
    ::close(ends[0]);
    LineChannel test(ends[1]);
    test.write_line(live(options, rank, token, test, body));
    ::_exit(0);
  }
  ::close(ends[1]);
  children_.push_back(child);
  channels_.emplace_back(ends[0]);
}

// A socket belongs to the network of the thread that opened it.
void ForkedRanks::start_store(const Options& options, const std::string& token) {
  std::string failure;
  std::thread opener([&] {
    try {
      if (options.enter) options.enter(0);
      store_ =
          StoreServer::start({.bind_address = options.store_host, .token = token}).value_or_throw();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  });
  opener.join();
  if (store_ == nullptr) throw std::runtime_error("no store for the test's ranks: " + failure);
}

}  // namespace dlaunch::testing
