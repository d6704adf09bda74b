#include "transport/tcp/connection.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/error.hpp>

namespace dlaunch {
namespace {

// A peer that keeps sending to a rank that leaves is not listened to for ever.
constexpr std::size_t kMaxDrainedBytes = std::size_t{4} << 20;

bool would_block(const std::error_code& error) {
  return error == asio::error::would_block || error == asio::error::try_again ||
         error == asio::error::interrupted;
}

asio::mutable_buffer to_buffer(std::span<std::byte> bytes) {
  return {bytes.data(), bytes.size()};
}

}  // namespace

TcpConnection::TcpConnection(asio::ip::tcp::socket socket, int peer, EndpointContext& context,
                             std::span<std::byte> staging)
    : socket_(std::move(socket)),
      peer_(peer),
      context_(context),
      staging_(staging),
      receiver_(context, peer) {
  std::error_code ignored;  // without them it is only slower
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
}

TcpConnection::Event TcpConnection::read() {
  const std::span<std::byte> destination = receiver_.destination();
  std::error_code error;
  std::size_t received = 0;
  if (destination.empty()) {
    received = socket_.read_some(to_buffer(staging_), error);
  } else {
    const std::array<asio::mutable_buffer, 2> parts{to_buffer(destination), to_buffer(staging_)};
    received = socket_.read_some(parts, error);
  }
  if (error) {
    if (would_block(error)) return Event::kIdle;
    closed_because_ = error == asio::error::eof ? "connection closed unexpectedly"
                                                : "connection broken: " + error.message();
    return Event::kClosed;
  }
  const std::size_t direct = std::min(received, destination.size());
  const std::size_t asked = destination.size() + staging_.size();
  fault_ = receiver_.consume(direct, staging_.first(received - direct));
  if (!fault_.ok()) return Event::kMalformed;
  if (receiver_.notice().has_value()) return Event::kAbort;
  if (receiver_.goodbye()) return Event::kGoodbye;
  // A short read has emptied the socket.
  return received == asked ? Event::kMore : Event::kIdle;
}

void TcpConnection::send(Transfer& transfer) {
  Outgoing outgoing{&transfer,
                    encode_header({.kind = FrameKind::kData,
                                   .tag = transfer.tag,
                                   .signature = transfer.signature,
                                   .bytes = transfer.bytes}),
                    0};
  if (!has_sends() && write_some(outgoing)) {
    context_.complete(transfer, Status());
    return;
  }
  queue_.push_back(outgoing);
}

// Writes one frame as far as the socket takes it; true if all of it has been written.
bool TcpConnection::write_some(Outgoing& outgoing) {
  const Transfer& transfer = *outgoing.transfer;
  const std::size_t total = kFrameHeaderBytes + transfer.bytes;
  while (outgoing.written < total && !write_failed_) {
    std::error_code error;
    std::size_t written = 0;
    if (outgoing.written >= kFrameHeaderBytes) {
      const std::size_t sent = outgoing.written - kFrameHeaderBytes;
      written =
          socket_.write_some(asio::buffer(transfer.data + sent, transfer.bytes - sent), error);
    } else if (transfer.bytes == 0) {
      written = socket_.write_some(asio::buffer(outgoing.header) + outgoing.written, error);
    } else {
      const std::array<asio::const_buffer, 2> parts{
          asio::buffer(outgoing.header) + outgoing.written,
          asio::const_buffer(transfer.data, transfer.bytes)};
      written = socket_.write_some(parts, error);
    }
    outgoing.written += written;
    if (!error) continue;
    if (!would_block(error)) write_failed_ = true;
    return false;
  }
  return outgoing.written == total;
}

bool TcpConnection::flush() {
  while (has_sends() && write_some(queue_[first_])) pop_sent();
  return !has_sends();
}

void TcpConnection::pop_sent() {
  context_.complete(*queue_[first_].transfer, Status());
  ++first_;
  if (first_ == queue_.size()) {
    queue_.clear();
    first_ = 0;
  } else if (first_ >= 64 && first_ * 2 >= queue_.size()) {
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

void TcpConnection::fail_transfers(const Status& why) {
  receiver_.fail_receives(why);
  if (has_sends() && queue_[first_].written > 0) cut_off_ = true;
  for (std::size_t i = first_; i < queue_.size(); ++i) context_.complete(*queue_[i].transfer, why);
  queue_.clear();
  first_ = 0;
}

void TcpConnection::write_last(std::span<const std::byte> frame) {
  if (!is_open() || cut_off_ || write_failed_) return;
  std::error_code error;
  const std::size_t written =
      socket_.write_some(asio::const_buffer(frame.data(), frame.size()), error);
  if (written != frame.size()) cut_off_ = true;
}

void TcpConnection::close() {
  if (!is_open()) return;
  std::error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  // Closing a socket that holds unread bytes resets the connection, and the reset throws away what
  // this side has written and the peer's system has not yet taken. So they are read first.
  error.clear();
  for (std::size_t drained = 0; !error && drained < kMaxDrainedBytes;) {
    drained += socket_.read_some(to_buffer(staging_), error);
  }
  socket_.close(error);
}

}  // namespace dlaunch
