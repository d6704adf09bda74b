// doctor: ports and names.
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/doctor/doctor.h"
#include "launcher/nodes/addresses.h"
#include "launcher/ranks/free_port.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/host_address.h"

namespace dlaunch {
namespace {

// Empty if a connection over 127.0.0.1 works, else why not.
std::string loopback_error() {
  const auto failed = [](const char* call) {
    return std::string(call) + ": " + std::generic_category().message(errno);
  };
  const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.is_open() || !client.is_open()) return failed("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener.get(), generic, length) != 0) return failed("bind");
  if (listen(listener.get(), 1) != 0) return failed("listen");
  if (getsockname(listener.get(), generic, &length) != 0) return failed("getsockname");
  if (connect(client.get(), generic, length) != 0) return failed("connect");
  return {};
}

Finding loopback() {
  const std::string error = loopback_error();
  return {.good = error.empty(),
          .subject = "loopback",
          .text = error.empty() ? "127.0.0.1 can be listened on and reached" : error,
          .advice = "ranks reach the store there: bring it up (ip link set lo up)"};
}

Finding master_port() {
  const auto port = find_free_port();
  return {.good = port.ok(),
          .subject = "ports",
          .text = port.ok() ? "MASTER_PORT would be " + std::to_string(*port) : "none is free",
          .advice = "see /proc/sys/net/ipv4/ip_local_port_range and who holds them (ss -tln)"};
}

/// Of IPv6, that is: nobody else has the same name for the way there.
bool is_link_local(const HostAddress& address) {
  if (address.family() != AF_INET6) return false;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr);
}

Finding own_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  Finding finding{.good = false,
                  .subject = "own name",
                  .text = std::string(name.data()) + " ",
                  .advice =
                      "one node needs no name; between nodes give --rdzv-endpoint an address "
                      "that the others reach",
                  .minor = true};
  const auto found = find_host(name.data(), "", Deadline::after(std::chrono::seconds(5)));
  if (!found.ok()) {
    finding.text += "does not resolve: " + found.status().to_string();
    return finding;
  }
  std::string address;
  for (const HostAddress& each : found->addresses) {
    const std::string text = numeric_text(each.get());
    finding.good = !is_loopback(text) && !is_link_local(each);
    if (finding.good || address.empty()) address = text;
    if (finding.good) break;
  }
  finding.text += "is " + address;
  if (!finding.good) finding.text += ", where other machines do not reach it";
  return finding;
}

}  // namespace

std::vector<Finding> examine_network() {
  return {loopback(), master_port(), own_name()};
}

}  // namespace dlaunch
