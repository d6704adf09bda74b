// TcpListener: the bound, listening socket on which a rank awaits its peers. Opened before the
// addresses are exchanged, so that nobody connects in vain. Not for concurrent use.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/status.h"

namespace dlaunch {

class TcpListener {
 public:
  /// Where to listen: kLoopback unless the job has more than one node.
  enum class Bind { kLoopback, kAny };

  /// Listens on a port that the system chooses. Raises this process's limit of open files to
  /// kUsualDescriptors, as far as it may. kIo if that is not possible.
  static Result<TcpListener> open(Bind bind);

  ~TcpListener();
  TcpListener(TcpListener&&) noexcept;
  TcpListener& operator=(TcpListener&&) noexcept;

  std::uint16_t port() const;

  /// For the TCP transport: gives up the socket.
  struct Socket;
  std::unique_ptr<Socket> release() &&;

 private:
  explicit TcpListener(std::unique_ptr<Socket> socket);
  std::unique_ptr<Socket> socket_;
};

}  // namespace dlaunch
