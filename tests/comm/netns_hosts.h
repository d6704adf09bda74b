// NetworkHosts: several "hosts" on one machine, each a network namespace of its own with one
// interface (veth) on a common bridge. Processes of different hosts reach each other over TCP only,
// by addresses; abstract unix sockets and loopback end at the host.
//
// The namespaces have no names: they and their links exist as long as this object, or a process
// that entered one, and the kernel removes them even after SIGKILL. Needs root and the program
// `ip`. Used by one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace dlaunch::testing {

class NetworkHosts {
 public:
  /// kUnavailable, with the reason, where the machine does not allow it.
  static Result<std::unique_ptr<NetworkHosts>> make(int hosts);
  ~NetworkHosts();
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;

  int size() const { return static_cast<int>(hosts_.size()); }
  /// Under which the others reach a host: "10.83.0.1" for host 0.
  static std::string address(int host);
  /// Another one, in a network of its own: "10.84.0.1".
  static std::string other_address(int host);
  /// Moves the calling thread, and what it starts from then on, to a host. Throws
  /// std::system_error.
  void enter(int host) const;
  /// Takes a host's link down, or up again.
  Status set_link(int host, bool up) const;

 private:
  NetworkHosts() = default;
  Status build(int hosts);

  int switch_ = -1;         // the namespace of the bridge
  std::vector<int> hosts_;  // namespaces, as descriptors
};

}  // namespace dlaunch::testing
