#include "transport/tcp/connection.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/tcp/pacing.h"

namespace dlaunch {
namespace {

// A peer that keeps sending to a rank that leaves is not listened to for ever in one go.
constexpr std::size_t kMaxDrainedBytes = std::size_t{4} << 20;

bool would_block(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// Bytes of what was written that are yet to be sent (SIOCOUTQNSD) or to arrive (SIOCOUTQ); the end
// of the stream counts as one.
std::size_t queued(int socket, unsigned long what) {
  int bytes = 0;
  return ::ioctl(socket, what, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace

TcpConnection::TcpConnection(Descriptor socket, int peer, EndpointContext& context,
                             std::span<std::byte> staging)
    : socket_(std::move(socket)),
      peer_(peer),
      context_(context),
      staging_(staging),
      receiver_(context, peer) {
  const int on = 1;  // without it it is only slower
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  keep_known();
  settle_pacing(socket_.get());
}

// A lane may carry nothing for hours, after which firewalls on the way would have forgotten it and
// drop what comes then. The system gives up only after some three minutes without an answer: a
// death is noticed by others before, and an interruption of a minute ends nothing.
void TcpConnection::keep_known() const {
  constexpr int kIdle = 60;  // seconds
  constexpr int kBetween = 15;
  constexpr int kProbes = 9;
  const int on = 1;
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPIDLE, &kIdle, sizeof kIdle);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPINTVL, &kBetween, sizeof kBetween);
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
}

// Reads once, into `destination` and then the staging buffer.
ssize_t TcpConnection::read_into(std::span<std::byte> destination) {
  if (destination.empty()) {
    return ::recv(socket_.get(), staging_.data(), staging_.size(), MSG_DONTWAIT);
  }
  std::array<iovec, 2> parts{iovec{destination.data(), destination.size()},
                             iovec{staging_.data(), staging_.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
}

TcpConnection::Event TcpConnection::read() {
  const std::span<std::byte> destination = receiver_.destination();
  const ssize_t got = read_into(destination);
  if (got < 0 && would_block(errno)) return Event::kIdle;
  if (got <= 0) {
    // A write that failed has taken the socket's error: what is read behind it is a mere end.
    const int error = got < 0 ? errno : write_error_;
    const bool ended = error == 0 || error == EPIPE;
    closed_because_ = ended ? "connection closed unexpectedly"
                            : Status::from_errno("connection broken", error).to_string();
    return Event::kClosed;
  }
  const auto received = static_cast<std::size_t>(got);
  const std::size_t direct = std::min(received, destination.size());
  const std::size_t asked = destination.size() + staging_.size();
  fault_ = receiver_.consume(direct, staging_.first(received - direct));
  if (!fault_.ok()) return Event::kMalformed;
  if (receiver_.notice().has_value()) return Event::kAbort;
  if (receiver_.goodbye()) return Event::kGoodbye;
  // A short read has emptied the socket; behind a failed write the end of the stream may come next.
  return received == asked || write_failed() ? Event::kMore : Event::kIdle;
}

void TcpConnection::send(Transfer& transfer) {
  Outgoing outgoing{&transfer,
                    encode_header({.kind = FrameKind::kData,
                                   .tag = transfer.tag,
                                   .signature = transfer.signature,
                                   .bytes = transfer.bytes}),
                    0};
  if (!has_sends() && write_some(outgoing)) return complete(transfer);
  queue_.push_back(outgoing);
}

// Writes one frame as far as the socket takes it; true if all of it has been written.
bool TcpConnection::write_some(Outgoing& outgoing) {
  const Transfer& transfer = *outgoing.transfer;
  const std::size_t total = kFrameHeaderBytes + transfer.bytes;
  while (outgoing.written < total && !write_failed()) {
    std::array<iovec, 2> parts{};
    msghdr message{};
    message.msg_iov = parts.data();
    if (outgoing.written < kFrameHeaderBytes) {
      parts[message.msg_iovlen++] = {outgoing.header.data() + outgoing.written,
                                     kFrameHeaderBytes - outgoing.written};
    }
    const std::size_t sent = outgoing.written - std::min(outgoing.written, kFrameHeaderBytes);
    if (sent < transfer.bytes) {
      parts[message.msg_iovlen++] = {transfer.data + sent, transfer.bytes - sent};
    }
    const ssize_t written = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0) {
      if (!would_block(errno)) write_error_ = errno;
      return false;
    }
    outgoing.written += static_cast<std::size_t>(written);
    written_ += static_cast<std::size_t>(written);
  }
  return outgoing.written == total;
}

Status TcpConnection::write_fault() const {
  if (write_error_ == 0 || write_error_ == EPIPE || write_error_ == ECONNRESET) return Status();
  return Status::from_errno("sending to rank " + std::to_string(peer_), write_error_);
}

bool TcpConnection::flush() {
  while (has_sends() && write_some(queue_[first_])) pop_sent();
  return !has_sends();
}

void TcpConnection::complete(Transfer& transfer) {
  done_ = written_;
  context_.complete(transfer, Status());
}

void TcpConnection::pop_sent() {
  complete(*queue_[first_].transfer);
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
  if (is_writing()) {
    last_.clear();
    ::shutdown(socket_.get(), SHUT_WR);
  }
  for (std::size_t i = first_; i < queue_.size(); ++i) context_.complete(*queue_[i].transfer, why);
  queue_.clear();
  first_ = 0;
}

void TcpConnection::write_last(std::vector<std::byte> frame) {
  last_ = std::move(frame);
  if (is_open()) end_stream();
}

void TcpConnection::end_stream() {
  if (is_writing() && !write_failed()) {
    if (!write_some(queue_[first_])) return;
    pop_sent();
  }
  while (!last_.empty() && !write_failed()) {
    const ssize_t written =
        ::send(socket_.get(), last_.data(), last_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0 && would_block(errno)) return;
    if (written < 0) write_error_ = errno;
    if (written <= 0) continue;
    last_.erase(last_.begin(), last_.begin() + written);
    written_ += static_cast<std::size_t>(written);
  }
  ::shutdown(socket_.get(), SHUT_WR);
}

// False at the end of what the peer sends.
bool TcpConnection::drain() {
  for (std::size_t drained = 0; drained < kMaxDrainedBytes;) {
    const ssize_t got = ::recv(socket_.get(), staging_.data(), staging_.size(), MSG_DONTWAIT);
    if (got <= 0) return got < 0 && would_block(errno);
    drained += static_cast<std::size_t>(got);
  }
  return true;
}

bool TcpConnection::part(Delivery until) {
  if (!is_open()) return true;
  end_stream();
  if (!drain()) {
    peer_parts_ = true;
    return true;
  }
  const unsigned long what = until == Delivery::kSent ? SIOCOUTQNSD : SIOCOUTQ;
  return last_.empty() && !is_writing() && queued(socket_.get(), what) == 0;
}

bool TcpConnection::owes() const {
  if (!is_open() || peer_parts_ || write_failed()) return false;
  return written_ - std::min<std::uint64_t>(written_, queued(socket_.get(), SIOCOUTQ)) < done_;
}

void TcpConnection::close() {
  if (!is_open()) return;
  ::shutdown(socket_.get(), SHUT_WR);
  drain();
  socket_.close();
}

}  // namespace dlaunch
