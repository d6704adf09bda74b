#include "transport/tcp/pacing.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "runtime/base/descriptor.h"

namespace dlaunch {
namespace {

Descriptor tcp_socket() {
  return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

std::string congestion_control_of(const Descriptor& socket) {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  return name.data();
}

bool choose(const Descriptor& socket, const std::string& name) {
  return ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

/// Congestion control of both ends, from 127.0.0.1 to 127.0.0.`to`.
std::array<std::string, 2> connect_to(int to) {
  const Descriptor listener = tcp_socket();
  const Descriptor client = tcp_socket();
  begin_unpaced(listener.get());
  begin_unpaced(client.get());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(::bind(client.get(), where, size), 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + static_cast<in_addr_t>(to));
  EXPECT_EQ(::bind(listener.get(), where, size), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), where, &size), 0);
  EXPECT_EQ(::connect(client.get(), where, size), 0);
  const Descriptor server(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  settle_pacing(client.get());
  settle_pacing(server.get());
  return {congestion_control_of(client), congestion_control_of(server)};
}

// What is asserted depends on the system: whether it has BBR, and whether that is its default.
TEST(Pacing, EndsBeforeASocketConnects) {
  const Descriptor socket = tcp_socket();
  const bool paced = choose(socket, "bbr");
  const std::string before = congestion_control_of(socket);
  begin_unpaced(socket.get());
  EXPECT_EQ(congestion_control_of(socket), paced ? "reno" : before);
}

TEST(Pacing, IsForNetworks) {
  const std::string usual = congestion_control_of(tcp_socket());
  const std::string inside = usual.starts_with("bbr") ? "reno" : usual;
  using Both = std::array<std::string, 2>;
  EXPECT_EQ(connect_to(1), (Both{inside, inside}));
  EXPECT_EQ(connect_to(2), (Both{usual, usual}));
}

}  // namespace
}  // namespace dlaunch
