// ForkedRanks: ranks as plain child processes of a test, with a store in the test's process. For
// what dlaunch would not let happen (it ends the others when one dies): ranks that are killed or
// stopped while the others tell what they saw, and ranks on several hosts.
//
// The constructor forks, so it is to be called while the process has no other threads. Used by one
// thread. What is still running when it is destroyed is killed; a rank never outlives the test.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/comm/communicator.h"
#include "runtime/rendezvous/store_server.h"

namespace dlaunch::testing {

/// Lines of text between the test and a rank: one end of a pair of sockets, which it owns.
class LineChannel {
 public:
  explicit LineChannel(int descriptor) : descriptor_(descriptor) {}
  ~LineChannel();
  LineChannel(LineChannel&& other) noexcept;
  LineChannel& operator=(LineChannel&&) = delete;

  void write_line(const std::string& line) const;
  /// Nothing at the deadline and at the end of the stream.
  std::optional<std::string> read_line(Deadline deadline);

 private:
  int descriptor_;
  std::string unread_;
};

class ForkedRanks {
 public:
  struct Options {
    std::vector<int> hosts = {0,
                              0};  // of every rank, by number; the size of the world is its length
    std::chrono::nanoseconds timeout = std::chrono::seconds(20);  // DLAUNCH_TIMEOUT
    std::vector<std::pair<std::string, std::string>> environment = {};
    /// What a rank's communicator logs comes over its channel, a line each after "log: ", before
    /// the body runs.
    bool send_log = false;
    std::string store_host = "127.0.0.1";  // where host 0 reaches itself
    /// Moves the calling thread to a host: called first in every rank, and on the thread that opens
    /// the store, which is on host 0.
    std::function<void(int host)> enter = {};
  };
  /// Runs in the rank; what it returns is the rank's last line.
  using Body = std::function<std::string(Communicator& world, LineChannel& test)>;

  /// A rank that cannot connect says "not connected: " and why instead of running the body.
  ForkedRanks(const Options& options, const Body& body);
  ~ForkedRanks();
  ForkedRanks(const ForkedRanks&) = delete;
  ForkedRanks& operator=(const ForkedRanks&) = delete;

  int size() const { return static_cast<int>(children_.size()); }
  LineChannel& operator[](int rank) { return channels_[static_cast<std::size_t>(rank)]; }
  void send_signal(int rank, int signal) const;

 private:
  void fork_rank(const Options& options, int rank, const std::string& token, const Body& body);
  void start_store(const Options& options, const std::string& token);

  std::vector<pid_t> children_;
  std::vector<LineChannel> channels_;
  std::unique_ptr<StoreServer> store_;
};

}  // namespace dlaunch::testing
