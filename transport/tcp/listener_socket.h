// What a TcpListener holds; internal to the TCP transport.
#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include "transport/tcp/listener.h"

namespace dlaunch {

struct TcpListener::Socket {
  asio::io_context io{1};  // first made, last destroyed
  asio::ip::tcp::acceptor acceptor{io};
  std::uint16_t port = 0;
};

}  // namespace dlaunch
