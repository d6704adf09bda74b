#include "transport/tcp/pacing.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "runtime/base/descriptor.h"

namespace dlaunch {
namespace {

constexpr char kUnpaced[] = "reno";  // every kernel has it

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

bool choose(int socket, const std::string& congestion_control) {
  return ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, congestion_control.data(),
                      static_cast<socklen_t>(congestion_control.size())) == 0;
}

Descriptor new_socket() {
  return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

/// Systems may keep some for the privileged, even their default: what a process could not choose
/// again it must not give up.
bool may_leave_and_return(const std::string& congestion_control) {
  const Descriptor trial = new_socket();
  return choose(trial.get(), kUnpaced) && choose(trial.get(), congestion_control);
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
  const std::string usual = congestion_control_of(socket);
  if (paces(usual) && may_leave_and_return(usual)) choose(socket, kUnpaced);
}

void settle_pacing(int socket) {
  // Of a route that has a congestion control of its own, sockets have that by now.
  if (congestion_control_of(socket) != kUnpaced || stays_on_this_host(socket)) return;
  const std::string usual = congestion_control_of(new_socket().get());
  if (paces(usual)) choose(socket, usual);
}

}  // namespace dlaunch
