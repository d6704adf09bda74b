// What a plain TCP connection on loopback can do: sends and receives without any protocol.
#pragma once

#include "runtime/comm/communicator.h"
#include "tools/bench/measure/point_to_point.h"

namespace dlaunch::bench {

class SocketLink : public Link {
 public:
  enum class Waiting { kSpinning, kBlocking };

  /// Connects ranks 0 and 1 of `world`, which tell each other the port. Called by both. Throws
  /// std::system_error.
  SocketLink(Communicator& world, Waiting waiting);
  ~SocketLink() override;
  SocketLink(const SocketLink&) = delete;
  SocketLink& operator=(const SocketLink&) = delete;

  void send(const std::byte* data, std::size_t bytes) override;
  void receive(std::byte* data, std::size_t bytes) override;

 private:
  int socket_ = -1;
  int flags_;  // of send(2) and recv(2)
};

}  // namespace dlaunch::bench
