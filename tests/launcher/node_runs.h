// Jobs of several nodes for tests: several dlaunch processes on this machine, which find each other
// over an endpoint on loopback, or elsewhere.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/launcher/launcher_runs.h"
#include "tests/support/subprocess.h"

namespace dlaunch::testing {

/// A secret in a file, as long as this lives.
class TokenFile {
 public:
  TokenFile();
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// "127.0.0.1:PORT" with a port that is free now and that the system gives to nobody by itself.
std::string free_endpoint();

/// Options of a node with one rank.
inline const Strings kOneRank{"--nproc", "1"};

/// Has rank 0 wait for SIGUSR1, and the others finish.
inline const Strings kRankZeroHasWork{"only=0", "await=" + std::to_string(SIGUSR1)};

/// What a node has said, but for the lines that say for whom it waits: whether they come is a
/// matter of time.
std::string without_waiting(const std::string& error);

/// A job's nodes, in the order in which they are started.
class Nodes {
 public:
  explicit Nodes(std::string nnodes, std::string endpoint = free_endpoint())
      : nnodes_(std::move(nnodes)), endpoint_(std::move(endpoint)) {}

  /// The endpoint of those that are started from now on.
  void meet_at(std::string endpoint) { endpoint_ = std::move(endpoint); }
  /// dlaunch --nnodes ... OPTIONS -- PROGRAM
  Command command(const Strings& options, const Strings& program) const;
  /// Starts it; returns its index.
  std::size_t start(const Strings& options, const Strings& program);
  /// The same with test_rank and its actions.
  std::size_t start_ranks(const Strings& options, const Strings& actions);
  Subprocess& operator[](std::size_t node) { return *processes_.at(node); }
  std::size_t size() const { return processes_.size(); }
  /// Waits until `node` knows that the ranks of the other one have ended.
  bool knows_of_end(std::size_t node, std::size_t other) const;
  CompletedProcess finish(std::size_t node) { return processes_.at(node)->finish(soon()); }

  const std::string& endpoint() const { return endpoint_; }
  const std::string& token_file() const { return token_.path(); }

 private:
  const std::string nnodes_;
  std::string endpoint_;
  const TokenFile token_;
  std::vector<std::unique_ptr<Subprocess>> processes_;
};

}  // namespace dlaunch::testing
