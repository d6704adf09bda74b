#include "runtime/rendezvous/store_session.h"

#include <sys/socket.h>

#include <cstring>
#include <new>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>

#include "runtime/base/host_address.h"
#include "runtime/rendezvous/socket_io.h"

namespace dlaunch {
namespace {

// A client that asks but does not read its answers is not listened to either. Answers to what it
// waits for may still come; when they grow too many it is dropped.
constexpr std::size_t kMostUnsentBytes = store_protocol::kMostResponseBytes;
constexpr std::size_t kMostKeptBytes = std::size_t{1} << 20;  // of memory for answers
constexpr const char* kNoMemory = "no memory is left for it";
constexpr std::size_t kTooManyUnsentBytes = 4 * kMostUnsentBytes;

std::string describe(const asio::ip::tcp::socket& socket) {
  asio::error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return "a connection that has gone";
  return endpoint_text(endpoint.data());
}

}  // namespace

StoreSession::StoreSession(asio::ip::tcp::socket socket, StoreSessionContext& context)
    : socket_(std::move(socket)),
      context_(context),
      handshake_deadline_(socket_.get_executor()),
      peer_(describe(socket_)),
      challenge_(make_nonce()),
      inbox_(store_protocol::kMostRequestBytes) {}

// What there is no memory for costs this connection, and no other.
template <typename Step>
void StoreSession::guarded(const Step& step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    close();
    context_.refusals.note(spdlog::level::warn, peer_, kNoMemory);
  }
}

void StoreSession::start() {
  asio::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  retransmit_every_second(socket_.native_handle());

  handshake_deadline_.expires_after(context_.handshake_timeout);
  handshake_deadline_.async_wait([weak = weak_from_this()](const asio::error_code& error) {
    const auto self = weak.lock();
    if (!error && self && self->awaits_proof())
      self->refuse("no proof of the token in time", spdlog::level::warn);
  });
  writing_ = store_protocol::kGreeting;
  writing_ += as_text(challenge_);
  write();
  read_proof();
}

void StoreSession::read_proof() {
  asio::async_read(socket_, asio::buffer(proof_),
                   [self = shared_from_this()](const asio::error_code& error, std::size_t) {
                     if (!self->socket_.is_open()) return;
                     if (error)
                       return self->refuse("it closed the connection", spdlog::level::info);
                     self->guarded([&] { self->check_proof(); });
                   });
}

void StoreSession::check_proof() {
  Nonce theirs;
  Mac proof;
  std::memcpy(theirs.data(), proof_.data(), theirs.size());
  std::memcpy(proof.data(), proof_.data() + theirs.size(), proof.size());
  if (!proof_holds(proof, context_.token, HandshakeRole::kConnector, challenge_, theirs)) {
    // Noted before the client can know: whoever is told so finds it counted.
    context_.refusals.note(spdlog::level::warn, peer_, "it does not know this job's token");
    send_refusal();
    return close();
  }
  authenticated_ = true;
  handshake_deadline_.cancel();
  ++context_.accepted;
  ++context_.connected;
  outbox_ += as_text(make_proof(context_.token, HandshakeRole::kListener, theirs, challenge_));
  if (writing_.empty()) write();
  read_requests();
}

// As far as the socket takes it at once: else the client is told no more than that it is closed.
void StoreSession::send_refusal() {
  [[maybe_unused]] const ssize_t sent =
      ::send(socket_.native_handle(), store_protocol::kRefusal.data(),
             store_protocol::kRefusal.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

// A connection that just goes is no cause for alarm: a rank may have been killed early.
void StoreSession::refuse(const std::string& why, spdlog::level::level_enum level) {
  context_.refusals.note(level, peer_, why);
  close();
}

void StoreSession::read_requests() {
  socket_.async_read_some(
      asio::buffer(chunk_),
      [self = shared_from_this()](const asio::error_code& error, std::size_t bytes) {
        // What has come before it was closed is not answered any more: nothing would undo it.
        if (error || !self->socket_.is_open()) return self->close();
        self->guarded([&] {
          self->inbox_.append({self->chunk_.data(), bytes});
          self->handle_requests();
        });
      });
}

// Handles what has come, and reads on.
void StoreSession::handle_requests() {
  const auto reply_here = [weak = weak_from_this()](const store_protocol::Message& response) {
    if (const auto self = weak.lock()) self->reply(response);
  };
  while (outbox_.size() <= kMostUnsentBytes && !given_up_) {
    const auto body = inbox_.next();
    if (body.ok() && !*body) return read_requests();
    auto request = body.ok() ? store_protocol::decode_body(**body) : body.status();
    if (!request.ok()) {
      context_.refusals.note(spdlog::level::warn, peer_, request.status().to_string());
      return close();
    }
    ++context_.requests;
    if (static_cast<store_protocol::Operation>(request->code) == store_protocol::Operation::kStat &&
        store_protocol::check_request(*request).ok()) {
      reply(stat(request->id));
    } else {
      context_.waits.handle(*std::move(request), this, reply_here);
    }
  }
  // Of one that was given up somebody has to find that it has ended.
  if (given_up_) return read_requests();
  handling_paused_ = true;
}

store_protocol::Message StoreSession::stat(std::uint64_t id) const {
  const StoreTable& table = context_.waits.table();
  store_protocol::Message response{.id = id};
  const auto add = [&](const char* name, std::uint64_t value) {
    response.parts.emplace_back(name);
    response.parts.push_back(std::to_string(value));
  };
  add("keys", table.size());
  add("bytes", table.bytes());
  add("revision", table.revision());
  add("clients", context_.connected);
  add("clients so far", context_.accepted);
  add("refused", context_.refusals.count());
  add("requests", context_.requests);
  add("waiting", context_.waits.waiting());
  return response;
}

void StoreSession::reply(const store_protocol::Message& response) {
  if (!socket_.is_open() || given_up_) return;
  try {
    store_protocol::append_frame(outbox_, response);
    if (writing_.empty()) write();
  } catch (const std::bad_alloc&) {
    // A frame may have been begun. The operation that is pending finds the connection ended, and
    // closes it; the caller may walk over the waits, which closing changes.
    outbox_.clear();
    given_up_ = true;
    asio::error_code ignored;
    socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
    return context_.refusals.note(spdlog::level::warn, peer_, kNoMemory);
  }
  if (outbox_.size() <= kTooManyUnsentBytes) return;
  outbox_.clear();
  given_up_ = true;
  context_.refusals.note(spdlog::level::warn, peer_, "it does not read its answers");
  // Not at once: the caller walks over the waits, which closing changes.
  asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
}

// Writes what has gathered; responses that come meanwhile go out together in the next write.
void StoreSession::write() {
  if (writing_.empty()) std::swap(writing_, outbox_);
  if (writing_.empty() || !socket_.is_open()) return;
  asio::async_write(socket_, asio::buffer(writing_),
                    [self = shared_from_this()](const asio::error_code& error, std::size_t) {
                      if (error || !self->socket_.is_open()) return self->close();
                      self->guarded([&] { self->written(); });
                    });
}

void StoreSession::written() {
  writing_.clear();
  if (writing_.capacity() > kMostKeptBytes) writing_.shrink_to_fit();
  write();
  if (!handling_paused_ || outbox_.size() > kMostUnsentBytes) return;
  handling_paused_ = false;
  handle_requests();
}

void StoreSession::close() {
  if (!socket_.is_open()) return;
  asio::error_code ignored;
  handshake_deadline_.cancel();
  if (authenticated_) --context_.connected;
  socket_.close(ignored);
  context_.waits.forget(this);
}

}  // namespace dlaunch
