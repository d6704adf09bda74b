// LocalSocket: a Unix socket of packets between processes of one host, which can also carry file
// descriptors. Its name is an abstract one that the system chooses: there is no file. Every wait
// has a deadline. One thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/deadline.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// Descriptors that one packet carries at most (the system's limit is 253).
inline constexpr std::size_t kMaxPacketDescriptors = 250;

class LocalSocket {
 public:
  LocalSocket() = default;
  explicit LocalSocket(Descriptor socket) : socket_(std::move(socket)) {}

  /// A listening socket.
  static Result<LocalSocket> listen();
  /// Under what name it listens, without the leading zero byte.
  Result<std::string> name() const;
  static Result<LocalSocket> connect(const std::string& name, Deadline deadline);
  /// The next connection, if there is one; only from processes of this user.
  Result<LocalSocket> accept() const;

  int descriptor() const { return socket_.get(); }
  bool is_open() const { return socket_.is_open(); }
  void close() { socket_.close(); }

  Status send(std::span<const std::byte> packet, std::span<const int> descriptors,
              Deadline deadline) const;
  /// A packet of exactly this length, and what descriptors it carries. kUnavailable if the other
  /// side has closed the connection, kProtocol for another length.
  Status receive(std::span<std::byte> packet, std::vector<Descriptor>* descriptors,
                 Deadline deadline) const;

 private:
  Status await(short what, Deadline deadline) const;

  Descriptor socket_;
};

}  // namespace dlaunch
