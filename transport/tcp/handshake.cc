#include "transport/tcp/handshake.h"

#include <memory>
#include <system_error>
#include <utility>

#include <asio/buffer.hpp>
#include <asio/error.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>

#include "runtime/base/token.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;
using EncodedHello = std::array<std::byte, kHelloBytes>;

Status io_failed(const char* step, const std::error_code& error) {
  if (error == asio::error::eof) {
    return Status(StatusCode::kUnavailable,
                  std::string("closed the connection instead of its ") + step);
  }
  return Status(StatusCode::kIo, std::string(step) + ": " + error.message());
}

// Kept alive by the handlers of its pending operations.
class HandshakeBase {
 protected:
  HandshakeBase(tcp::socket socket, const HandshakeIdentity& identity, HandshakeDone done)
      : socket_(std::move(socket)),
        identity_(identity),
        done_(std::move(done)),
        timer_(socket_.get_executor()) {}

  // Ends the handshake after this time unless the timer is cancelled before.
  template <typename Self>
  void limit(Self self, std::chrono::nanoseconds patience) {
    timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(patience));
    timer_.async_wait([self = std::move(self)](const std::error_code& error) {
      if (!error) self->finish(Status(StatusCode::kTimeout, "said nothing"));
    });
  }
  // Once only: the outcome takes the socket with it.
  void finish(Status status, const Hello& peer = {}) {
    timer_.cancel();
    if (HandshakeDone done = std::exchange(done_, nullptr); done != nullptr) {
      done({std::move(status), std::move(socket_), peer});
    }
  }
  // The few bytes of a handshake always fit into the send buffer of a new connection, so this
  // never waits.
  template <typename Buffers>
  bool write(const char* step, const Buffers& buffers) {
    std::error_code error;
    asio::write(socket_, buffers, error);
    if (error) finish(io_failed(step, error));
    return !error;
  }

  tcp::socket socket_;
  const HandshakeIdentity& identity_;
  HandshakeDone done_;
  asio::steady_timer timer_;
  Nonce own_nonce_ = make_nonce();
  Nonce peer_nonce_{};
  Mac peer_proof_{};
  EncodedHello peer_hello_{};
};

class ListenerHandshake : public HandshakeBase,
                          public std::enable_shared_from_this<ListenerHandshake> {
 public:
  ListenerHandshake(tcp::socket socket, const HandshakeIdentity& identity,
                    HandshakeAdmission admission, HandshakeDone done)
      : HandshakeBase(std::move(socket), identity, std::move(done)),
        admission_(std::move(admission)) {}

  void start(std::chrono::nanoseconds patience) {
    limit(shared_from_this(), patience);
    if (!write("challenge", asio::buffer(own_nonce_))) return;
    const std::array<asio::mutable_buffer, 2> response{asio::buffer(peer_nonce_),
                                                       asio::buffer(peer_proof_)};
    asio::async_read(socket_, response,
                     [self = shared_from_this()](const std::error_code& error, std::size_t) {
                       if (error) return self->finish(io_failed("proof", error));
                       self->check_proof();
                     });
  }

 private:
  void check_proof() {
    if (!proof_holds(peer_proof_, identity_.token, HandshakeRole::kConnector, own_nonce_,
                     peer_nonce_)) {
      return finish(Status(StatusCode::kUnauthenticated, "does not know the job's token"));
    }
    asio::async_read(socket_, asio::buffer(peer_hello_),
                     [self = shared_from_this()](const std::error_code& error, std::size_t) {
                       if (error) return self->finish(io_failed("hello", error));
                       self->answer();
                     });
  }

  void answer() {
    const Result<Hello> peer = decode_hello(peer_hello_, identity_.hello);
    if (!peer.ok()) return finish(peer.status());
    if (Status admitted = admission_(*peer); !admitted.ok()) return finish(admitted);
    const Mac proof =
        make_proof(identity_.token, HandshakeRole::kListener, peer_nonce_, own_nonce_);
    Hello own = identity_.hello;
    own.lane = peer->lane;
    const EncodedHello hello = encode_hello(own);
    const std::array<asio::const_buffer, 2> parts{asio::buffer(proof), asio::buffer(hello)};
    if (write("answer", parts)) finish(Status(), *peer);
  }

  HandshakeAdmission admission_;
};

class ConnectorHandshake : public HandshakeBase,
                           public std::enable_shared_from_this<ConnectorHandshake> {
 public:
  ConnectorHandshake(tcp::socket socket, const HandshakeIdentity& identity, std::uint32_t lane,
                     HandshakeDone done)
      : HandshakeBase(std::move(socket), identity, std::move(done)), lane_(lane) {}

  void start(std::chrono::nanoseconds patience) {
    limit(shared_from_this(), patience);
    asio::async_read(socket_, asio::buffer(peer_nonce_),
                     [self = shared_from_this()](const std::error_code& error, std::size_t) {
                       if (error) return self->finish(io_failed("challenge", error));
                       self->respond();
                     });
  }

 private:
  // From here on the listener may take the connection for made: there is no second attempt.
  void respond() {
    timer_.cancel();
    const Mac proof =
        make_proof(identity_.token, HandshakeRole::kConnector, peer_nonce_, own_nonce_);
    Hello own = identity_.hello;
    own.lane = lane_;
    const EncodedHello hello = encode_hello(own);
    const std::array<asio::const_buffer, 3> parts{asio::buffer(own_nonce_), asio::buffer(proof),
                                                  asio::buffer(hello)};
    if (!write("response", parts)) return;
    asio::async_read(socket_, asio::buffer(peer_proof_),
                     [self = shared_from_this()](const std::error_code& error, std::size_t) {
                       if (error) return self->finish(io_failed("proof", error));
                       self->check_proof();
                     });
  }

  void check_proof() {
    if (!proof_holds(peer_proof_, identity_.token, HandshakeRole::kListener, own_nonce_,
                     peer_nonce_)) {
      return finish(Status(StatusCode::kUnauthenticated, "does not know the job's token"));
    }
    asio::async_read(socket_, asio::buffer(peer_hello_),
                     [self = shared_from_this()](const std::error_code& error, std::size_t) {
                       if (error) return self->finish(io_failed("hello", error));
                       const Result<Hello> peer =
                           decode_hello(self->peer_hello_, self->identity_.hello);
                       if (!peer.ok()) return self->finish(peer.status());
                       self->finish(Status(), *peer);
                     });
  }

  std::uint32_t lane_;
};

}  // namespace

void start_listener_handshake(tcp::socket socket, const HandshakeIdentity& identity,
                              std::chrono::nanoseconds patience, HandshakeAdmission admission,
                              HandshakeDone done) {
  std::make_shared<ListenerHandshake>(std::move(socket), identity, std::move(admission),
                                      std::move(done))
      ->start(patience);
}

void start_connector_handshake(tcp::socket socket, const HandshakeIdentity& identity,
                               std::uint32_t lane, std::chrono::nanoseconds patience,
                               HandshakeDone done) {
  std::make_shared<ConnectorHandshake>(std::move(socket), identity, lane, std::move(done))
      ->start(patience);
}

}  // namespace dlaunch
