// What can be seen of it depends on the system: whether BBR is its congestion control.
#include "transport/tcp/pacing.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/token.h"
#include "tests/transport/fabric.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/socket_mesh.h"

namespace dlaunch {
namespace {

using Sockets = std::array<Descriptor, 2>;

Descriptor tcp_socket() {
  return Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

std::string congestion_control_of(int socket) {
  std::array<char, 16> name{};
  socklen_t size = name.size();
  EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size), 0);
  return name.data();
}

bool choose(const Descriptor& socket, const std::string& name) {
  return ::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

/// What sockets have that begin with this and are not paced: something else than BBR, where that
/// may be given up and taken again.
std::string unpaced(const std::string& usual) {
  const Descriptor trial = tcp_socket();
  return usual.starts_with("bbr") && choose(trial, "reno") && choose(trial, usual) ? "reno" : usual;
}

class Pacing : public ::testing::Test {
 protected:
  const std::string usual_ = congestion_control_of(tcp_socket().get());
  const std::string unpaced_ = unpaced(usual_);
};

/// From 127.0.0.1 to 127.0.0.`to`, begun unpaced.
Sockets connect_to(int to) {
  const Descriptor listener = tcp_socket();
  Descriptor client = tcp_socket();
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
  return {std::move(client), Descriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC))};
}

TEST_F(Pacing, EndsBeforeASocketConnects) {
  const Descriptor socket = tcp_socket();
  choose(socket, "bbr");  // if there is one
  const std::string expected = unpaced(congestion_control_of(socket.get()));
  begin_unpaced(socket.get());
  EXPECT_EQ(congestion_control_of(socket.get()), expected);
}

TEST_F(Pacing, IsForConnectionsThatLeaveTheHost) {
  EndpointContext context{.rank = 0, .world_size = 2, .describe = describe_for_tests};
  std::array<std::byte, 8192> staging;
  for (const auto& [to, expected] : {std::pair{1, unpaced_}, {2, usual_}}) {
    for (Descriptor& socket : connect_to(to)) {
      const TcpConnection connection(std::move(socket), 1, context, staging);
      EXPECT_EQ(congestion_control_of(connection.descriptor()), expected) << to;
    }
  }
}

TEST_F(Pacing, LeavesWhatARouteHasChosen) {
  for (Descriptor& socket : connect_to(2)) {
    if (!choose(socket, "cubic")) continue;
    settle_pacing(socket.get());
    EXPECT_EQ(congestion_control_of(socket.get()), "cubic");
  }
}

TEST_F(Pacing, HasEndedBeforeRanksConnect) {
  SocketMeshOptions options{.world_size = 2,
                            .lanes = 1,
                            .token = make_token(),
                            .job_id = "job",
                            .addresses = {},
                            .timeout = kTestTimeout,
                            .logger = {}};
  std::vector<TcpListener> listeners;
  for (int rank = 0; rank < 2; ++rank) {
    listeners.push_back(TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw());
    options.addresses.push_back("127.0.0.1:" + std::to_string(listeners.back().port()));
  }
  const auto connect = [&](int rank) {
    SocketMeshOptions own = options;
    own.rank = rank;
    return connect_sockets(std::move(listeners[static_cast<std::size_t>(rank)]), own)
        .value_or_throw();
  };
  auto other = std::async(std::launch::async, connect, 1);
  const auto first = connect(0);
  const auto second = other.get();
  EXPECT_EQ(congestion_control_of(first[0][1].get()), unpaced_);
  EXPECT_EQ(congestion_control_of(second[0][0].get()), unpaced_);
}

}  // namespace
}  // namespace dlaunch
