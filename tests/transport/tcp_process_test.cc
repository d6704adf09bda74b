// The TCP transport between real processes, one of which is killed.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "runtime/base/token.h"
#include "tests/transport/fabric.h"
#include "transport/tcp/mesh.h"

namespace dlaunch {
namespace {

// Lines over a socket to a child process; end of file reads as an empty line.
class Channel {
 public:
  explicit Channel(int descriptor) : descriptor_(descriptor) {}
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

using Body = std::function<std::string(Endpoint& endpoint, const Channel& parent)>;

// A world of child processes. Each runs `body` on its endpoint and ends at once, without any
// destructor; the string that body returns is the child's last line.
class Processes {
 public:
  Processes(int world_size, const Body& body) {
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
        run_child(rank, world_size, token, Channel(ends[1]), body);
      }
      ::close(ends[1]);
      children_.push_back(child);
      channels_.emplace_back(ends[0]);
    }
    std::string addresses;
    for (const Channel& channel : channels_) addresses += channel.read_line() + " ";
    for (const Channel& channel : channels_) channel.write_line(addresses);
  }
  ~Processes() {
    for (const Channel& channel : channels_) channel.close();
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  const Channel& operator[](int rank) const { return channels_[static_cast<std::size_t>(rank)]; }
  void kill(int rank) { ::kill(children_[static_cast<std::size_t>(rank)], SIGKILL); }

 private:
  [[noreturn]] static void run_child(int rank, int world_size, const std::string& token,
                                     const Channel& parent, const Body& body) {
    TcpListener listener = TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw();
    parent.write_line("127.0.0.1:" + std::to_string(listener.port()));
    MeshOptions options{.rank = rank,
                        .world_size = world_size,
                        .token = token,
                        .timeout = kTestTimeout,
                        .describe = describe_for_tests};
    std::istringstream addresses(parent.read_line());
    for (std::string address; addresses >> address;) options.addresses.push_back(address);
    auto lanes = connect_mesh(std::move(listener), options);
    parent.write_line(lanes.ok() ? body(*lanes->front(), parent) : lanes.status().to_string());
    ::_exit(0);
  }

  std::vector<pid_t> children_;
  std::vector<Channel> channels_;
};

// Exchanges messages around a ring until something fails, and returns what.
std::string exchange_for_ever(Endpoint& endpoint, const Channel& parent, std::size_t bytes) {
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

class KilledProcess : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(MessageBytes, KilledProcess, testing::Values(8, 100000, 4194304));

TEST_P(KilledProcess, IsNamedByEverySurvivorThoughTheyDieOfItToo) {
  constexpr int kWorld = 5;
  constexpr int kTurns = 4;
  for (int turn = 0; turn < kTurns; ++turn) {
    const int victim = turn % kWorld;
    Processes processes(kWorld, [](Endpoint& endpoint, const Channel& parent) {
      return exchange_for_ever(endpoint, parent, GetParam());
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
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
}

}  // namespace
}  // namespace dlaunch
