// TcpEndpoint: an Endpoint over one TCP connection per peer. Made by connect_mesh(); internal to
// the TCP transport.
//
// It has an io_context of its own, which only the driving thread runs: readiness of the sockets,
// the sleep until a deadline and wake() come from it. Reads and writes are made directly on
// non-blocking sockets. Waiting first spins for a while, reading the connections that something is
// awaited from, then sleeps.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>

#include "transport/endpoint.h"
#include "transport/failure_notice.h"
#include "transport/failure_state.h"
#include "transport/inbox.h"
#include "transport/tcp/connection.h"

namespace dlaunch {

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(int rank, int world_size, std::chrono::nanoseconds spin, SignaturePrinter describe);
  ~TcpEndpoint() override;
  TcpEndpoint(const TcpEndpoint&) = delete;
  TcpEndpoint& operator=(const TcpEndpoint&) = delete;

  /// Gives the endpoint its connection to `peer`, a connected socket of any io_context. Before its
  /// first use.
  Status add_connection(int peer, asio::ip::tcp::socket socket);

  /// Closes every connection without a word, as the death of the process would: for tests. The
  /// endpoint must not be used afterwards, only destroyed.
  void drop_connections();

  int rank() const override { return context_.rank; }
  int world_size() const override { return context_.world_size; }
  void start_send(Transfer& transfer) override;
  void start_recv(Transfer& transfer) override;
  void cancel(Transfer& transfer, Status why) override;
  void poll(Deadline deadline, const Readiness* also) override;
  void wake() override;
  Status failure() const override { return failure_.status(); }
  void fail(Status why) override;
  const char* transport_name(int peer) const override;

 private:
  struct Peer {
    std::unique_ptr<TcpConnection> connection;  // none for this rank itself
    bool left = false;                          // has said goodbye
  };

  bool take_event();
  bool refuse(Transfer& transfer);
  void send_to_self(Transfer& transfer);
  bool spin_until(Deadline deadline);
  bool poll_awaited();
  void sleep_until(Deadline deadline);

  void read(TcpConnection& connection);
  void flush(TcpConnection& connection);
  void handle(TcpConnection& connection, TcpConnection::Event event);
  void arm_read(TcpConnection& connection);
  void arm_write(TcpConnection& connection);
  void peer_left(TcpConnection& connection);
  void connection_lost(TcpConnection& connection);
  void name_as_lost(const TcpConnection& connection);
  void fail_as(const Status& why, const FailureNotice& notice);

  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_guard_;
  EndpointContext context_;
  std::chrono::nanoseconds spin_;
  std::array<std::byte, 8192> staging_;
  std::vector<Peer> peers_;
  Inbox self_;
  FailureState failure_;
  TcpConnection* suspect_ = nullptr;  // a connection that was cut off
  Deadline judgement_ = Deadline::after(std::chrono::nanoseconds(0));  // on suspect_
  unsigned direct_passes_ = 0;
  std::atomic<bool> woken_{false};
  std::atomic<bool> sleeping_{false};
};

}  // namespace dlaunch
