// The transports between real processes, one of which is killed.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "runtime/base/token.h"
#include "tests/support/soon.h"
#include "tests/transport/fabric.h"
#include "transport/mesh/mesh.h"

namespace dlaunch {
namespace {

// Lines over a socket to a child process; end of file reads as an empty line.
class ChildChannel {
 public:
  explicit ChildChannel(int descriptor) : descriptor_(descriptor) {}
  void write_line(const std::string& line) const {
    const std::string text = line + "\n";
    EXPECT_EQ(::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  std::string read_line() const {
    std::string line;
    char letter = 0;
    while (::read(descriptor_, &letter, 1) == 1 && letter != '\n') line.push_back(letter);
    return line;
  }
  void close() const { ::close(descriptor_); }

 private:
  int descriptor_;
};

// How the processes are connected, by name.
struct Kind {
  const char* name;
  TransportChoice transport;
  int hosts;
  WaitPolicy wait;
};
constexpr Kind kKinds[] = {
    {"tcp", TransportChoice::kTcp, 1, {}},
    {"shm", TransportChoice::kSharedMemory, 1, {}},
    {"shm_spinning", TransportChoice::kSharedMemory, 1, {.spin = std::chrono::milliseconds(100)}},
    {"shm_yielding", TransportChoice::kSharedMemory, 1, {.spin = {}, .yields = 100}},
    {"mixed", TransportChoice::kAuto, 2, {}}};

using Body = std::function<std::string(Endpoint& endpoint, const ChildChannel& parent)>;

// A world of child processes. Each runs `body` on its endpoint and ends at once, without any
// destructor; the string that body returns is the child's last line.
class Processes {
 public:
  Processes(const Kind& kind, int world_size, const Body& body) {
    const std::string token = make_token();
    for (int rank = 0; rank < world_size; ++rank) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      std::fflush(nullptr);  // or the child says it again
      const pid_t child = ::fork();
      if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::alarm(60);  // nothing hangs for ever
        ::close(ends[0]);
        run_child(kind, rank, world_size, token, ChildChannel(ends[1]), body);
      }
      ::close(ends[1]);
      children_.push_back(child);
      channels_.emplace_back(ends[0]);
    }
    while (exchange()) {
    }
  }
  ~Processes() {
    for (const ChildChannel& channel : channels_) channel.close();
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  const ChildChannel& operator[](int rank) const {
    return channels_[static_cast<std::size_t>(rank)];
  }
  void kill(int rank) { ::kill(children_[static_cast<std::size_t>(rank)], SIGKILL); }

 private:
  // Passes a text of every child to all; false once they are connected.
  bool exchange() {
    std::vector<std::string> texts;
    for (const ChildChannel& channel : channels_) texts.push_back(channel.read_line());
    if (texts.front() == "connected") return false;
    for (const ChildChannel& channel : channels_) {
      for (const std::string& text : texts) channel.write_line(text);
    }
    return true;
  }

  // The child's side; a text has lines of its own.
  static Exchange exchange_with(const ChildChannel& parent, int world_size) {
    return [&parent, world_size](std::string_view, const std::string& own,
                                 Deadline) -> Result<std::vector<std::string>> {
      std::string line = own;
      std::replace(line.begin(), line.end(), '\n', '\x1f');
      parent.write_line(line);
      std::vector<std::string> all;
      for (int rank = 0; rank < world_size; ++rank) {
        all.push_back(parent.read_line());
        std::replace(all.back().begin(), all.back().end(), '\x1f', '\n');
      }
      return all;
    };
  }

  [[noreturn]] static void run_child(const Kind& kind, int rank, int world_size,
                                     const std::string& token, const ChildChannel& parent,
                                     const Body& body) {
    TcpListener listener = TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw();
    const std::string address = "127.0.0.1:" + std::to_string(listener.port());
    auto lanes =
        connect_mesh(std::move(listener), {.rank = rank,
                                           .world_size = world_size,
                                           .address = address,
                                           .exchange = exchange_with(parent, world_size),
                                           .token = token,
                                           .job_id = "processes",
                                           .transport = kind.transport,
                                           .host = "host " + std::to_string(rank % kind.hosts),
                                           .timeout = kTestTimeout,
                                           .wait = kind.wait,
                                           .describe = describe_for_tests,
                                           .logger = {}});
    parent.write_line("connected");
    parent.write_line(lanes.ok() ? body(*lanes->front(), parent) : lanes.status().to_string());
    ::_exit(0);
  }

  std::vector<pid_t> children_;
  std::vector<ChildChannel> channels_;
};

// Exchanges messages around a ring until something fails, and returns what.
std::string exchange_for_ever(Endpoint& endpoint, const ChildChannel& parent, std::size_t bytes) {
  if (Status met = meet(endpoint, 1); !met.ok()) return met.to_string();
  parent.write_line("ready");
  const int right = (endpoint.rank() + 1) % endpoint.world_size();
  const int left = (endpoint.rank() + endpoint.world_size() - 1) % endpoint.world_size();
  std::vector<std::byte> out(bytes);
  std::vector<std::byte> in(bytes);
  for (std::uint64_t turn = 0;; ++turn) {
    Transfer receive = make_transfer(left, {.sequence = turn}, in);
    Transfer transmit = make_transfer(right, {.sequence = turn}, out);
    endpoint.start_recv(receive);
    endpoint.start_send(transmit);
    if (Status status = finish(endpoint, receive); !status.ok()) return status.to_string();
    if (Status status = finish(endpoint, transmit); !status.ok()) return status.to_string();
  }
}

class KilledProcess : public ::testing::TestWithParam<std::tuple<Kind, std::size_t>> {};
INSTANTIATE_TEST_SUITE_P(Over, KilledProcess,
                         ::testing::Combine(::testing::ValuesIn(kKinds),
                                            ::testing::Values(8, 100000, 4194304)),
                         [](const auto& parameter) {
                           return std::string(std::get<0>(parameter.param).name) + "_" +
                                  std::to_string(std::get<1>(parameter.param)) + "_bytes";
                         });

TEST_P(KilledProcess, IsNamedByEverySurvivorThoughTheyDieOfItToo) {
  constexpr int kWorld = 5;
  const auto& [kind, bytes] = GetParam();
  for (int turn = 0; turn < 3; ++turn) {
    const int victim = (turn * 2) % kWorld;
    Processes processes(kind, kWorld,
                        [bytes = bytes](Endpoint& endpoint, const ChildChannel& parent) {
                          return exchange_for_ever(endpoint, parent, bytes);
                        });
    for (int rank = 0; rank < kWorld; ++rank) EXPECT_EQ(processes[rank].read_line(), "ready");
    const auto begin = std::chrono::steady_clock::now();
    processes.kill(victim);
    for (int rank = 0; rank < kWorld; ++rank) {
      if (rank == victim) continue;
      const std::string outcome = processes[rank].read_line();
      EXPECT_EQ(outcome.rfind("peer " + std::to_string(victim) + ": connection ", 0), 0U)
          << "rank " << rank << ": " << outcome;
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, testing::kPromptly);
  }
}

}  // namespace
}  // namespace dlaunch
