#include "transport/tcp/pacing.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "runtime/base/descriptor.h"

namespace dlaunch {
namespace {

constexpr char kUnpaced[] = "reno";  // every kernel has it and lets everybody take it

std::string congestion_control_of(int socket) {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return "";
  return name.data();
}

/// "bbr", "bbr2", ...
bool paces(const std::string& congestion_control) {
  return congestion_control.starts_with("bbr");
}

// Without it connections are only slower.
void choose(int socket, const std::string& congestion_control) {
  ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, congestion_control.data(),
               static_cast<socklen_t>(congestion_control.size()));
}

bool same_address(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET)
    return reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in&>(b).sin_addr.s_addr;
  return a.ss_family == AF_INET6 &&
         IN6_ARE_ADDR_EQUAL(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr,
                            &reinterpret_cast<const sockaddr_in6&>(b).sin6_addr);
}

bool stays_on_this_host(int socket) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_size = sizeof own;
  socklen_t peer_size = sizeof peer;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         same_address(own, peer);
}

}  // namespace

void begin_unpaced(int socket) {
  if (paces(congestion_control_of(socket))) choose(socket, kUnpaced);
}

void settle_pacing(int socket) {
  if (stays_on_this_host(socket)) return;
  const Descriptor fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string usual = congestion_control_of(fresh.get());
  if (paces(usual)) choose(socket, usual);
}

}  // namespace dlaunch
