// StoreServer: hosts a job's rendezvous store, within dlaunch or within a test.
//
// One thread of its own serves all connections from one epoll loop. A connection must first prove
// the job's token; strangers, garbage and connections that stay silent are dropped after
// `handshake_timeout`, or sooner if there are many of them, counted, and logged once in a while.
// Memory is bounded by `most_bytes` and the limits of store_protocol.h; a request that the system
// has no memory for is answered with kUnavailable, or costs its client the connection. A client
// costs one descriptor: the caller sees to RLIMIT_NOFILE; while it is reached, newcomers wait until
// a descriptor is free.
//
// The members may be called from any thread. The destructor ends all connections; clients that wait
// get kPeerLost.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/logging.h"
#include "runtime/base/status.h"

namespace dlaunch {

class StoreServer {
 public:
  struct Options {
    std::string bind_address = "127.0.0.1";  // a numeric address; "::": all, of IPv4 too
    std::uint16_t port = 0;                  // 0: chosen by the system
    std::string token;                       // raw bytes
    std::chrono::milliseconds handshake_timeout{5000};
    /// Connections that have not yet proved the token: beyond, the oldest is dropped. A client that
    /// this befalls tries again.
    std::size_t most_unproved = 512;
    std::size_t most_bytes = std::size_t{1} << 30;  // keys and values, and 128 bytes for each key
    /// Keys that begin with it (empty: none) leave the last 16 MiB of that to others, or half of it
    /// if that is less: who lets a program's ranks fill the store still has room for his own.
    std::string limited_prefix;
    Logger logger;
  };

  /// Listens when it returns. kUnavailable names the port if that is taken.
  static Result<std::unique_ptr<StoreServer>> start(Options options);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::uint16_t port() const;
  /// Connections that proved the token, and those that were dropped because they did not or sent
  /// what no client sends.
  std::uint64_t clients_accepted() const;
  std::uint64_t clients_refused() const;

 private:
  class Loop;
  explicit StoreServer(std::unique_ptr<Loop> loop);
  std::unique_ptr<Loop> loop_;
};

}  // namespace dlaunch
