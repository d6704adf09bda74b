#include "runtime/rendezvous/store_server.h"

#include <deque>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/ip/v6_only.hpp>
#include <asio/steady_timer.hpp>

#include "runtime/base/descriptor.h"
#include "runtime/base/start_thread.h"
#include "runtime/rendezvous/store_session.h"
#include "runtime/rendezvous/store_waits.h"

namespace dlaunch {
namespace {

// Out of descriptors, say: accepting again at once would spin.
constexpr std::chrono::milliseconds kPauseAfterAcceptError{100};

}  // namespace

class StoreServer::Loop {
 public:
  explicit Loop(Options options)
      : most_unproved_(options.most_unproved),
        waits_(context_, options.most_bytes, options.limited_prefix),
        shared_{.waits = waits_,
                .token = std::move(options.token),
                .handshake_timeout = options.handshake_timeout,
                .refusals = RefusalLog(options.logger ? options.logger : make_null_logger())},
        acceptor_(context_),
        retry_(context_) {}

  ~Loop() {
    context_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status listen(const std::string& address, std::uint16_t port) {
    const std::string where = "store on " + address + " port " + std::to_string(port);
    asio::error_code error;
    const asio::ip::tcp::endpoint endpoint(asio::ip::make_address(address, error), port);
    if (error) {
      return Status(StatusCode::kInvalidArgument, where + ": not a numeric address");
    }
    acceptor_.open(endpoint.protocol(), error);
    if (!error) close_on_exec(acceptor_.native_handle());
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    // "::" is all addresses, those of IPv4 too, whatever the system's default (bindv6only).
    if (!error && endpoint.address().is_v6() && endpoint.address().is_unspecified())
      acceptor_.set_option(asio::ip::v6_only(false), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) port_ = acceptor_.local_endpoint(error).port();
    if (error) return Status(StatusCode::kUnavailable, where + ": " + error.message());
    accept();
    try {
      thread_ = start_thread([this] { serve(); });
    } catch (const std::system_error& failed) {
      return Status(StatusCode::kIo, where + ": " + failed.what());
    }
    return {};
  }

  std::uint16_t port() const { return port_; }
  const StoreSessionContext& shared() const { return shared_; }

 private:
  // Sessions see to what there is no memory for. Where there is none even for that, what is being
  // done is dropped.
  void serve() {
    while (!context_.stopped()) {
      try {
        context_.run();
      } catch (const std::bad_alloc&) {
      }
    }
  }

  void accept() {
    acceptor_.async_accept([this](const asio::error_code& error, asio::ip::tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return pause(error);
      close_on_exec(socket.native_handle());
      try {
        welcome(std::move(socket));
      } catch (const std::bad_alloc&) {
        return pause(asio::error::no_memory);
      }
      accept();
    });
  }

  void welcome(asio::ip::tcp::socket socket) {
    const auto session = std::make_shared<StoreSession>(std::move(socket), shared_);
    session->start();
    make_room_for(session);
  }

  // Strangers share the launcher's descriptors, and are not to use them up.
  void make_room_for(const std::shared_ptr<StoreSession>& newcomer) {
    unproved_.push_back(newcomer);
    if (unproved_.size() <= most_unproved_) return;
    std::erase_if(unproved_, [](const std::weak_ptr<StoreSession>& each) {
      const auto session = each.lock();
      return !session || !session->awaits_proof();
    });
    if (unproved_.size() <= most_unproved_) return;
    const auto oldest = unproved_.front().lock();
    oldest->refuse("too many connections have not proved the token", spdlog::level::warn);
    unproved_.pop_front();
  }

  void pause(const asio::error_code& error) {
    shared_.refusals.note(spdlog::level::warn, "a newcomer for now", error.message());
    retry_.expires_after(kPauseAfterAcceptError);
    retry_.async_wait([this](const asio::error_code& cancelled) {
      if (!cancelled) accept();
    });
  }

  // Destroyed from the last to the first: the timers within waits_ need the context, and the
  // sessions, which the context's handlers own, do nothing but free their sockets.
  const std::size_t most_unproved_;
  asio::io_context context_{1};
  StoreWaits waits_;
  StoreSessionContext shared_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::deque<std::weak_ptr<StoreSession>> unproved_;  // and some that no longer are, oldest first
  std::uint16_t port_ = 0;
  std::thread thread_;
};

Result<std::unique_ptr<StoreServer>> StoreServer::start(Options options) {
  if (options.token.size() != kTokenBytes) {
    return Status(StatusCode::kInvalidArgument, "store: a token has 32 bytes");
  }
  const std::string address = options.bind_address;
  const std::uint16_t port = options.port;
  auto loop = std::make_unique<Loop>(std::move(options));
  DLAUNCH_RETURN_IF_ERROR(loop->listen(address, port));
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(loop)));
}

StoreServer::StoreServer(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
StoreServer::~StoreServer() = default;

std::uint16_t StoreServer::port() const {
  return loop_->port();
}
std::uint64_t StoreServer::clients_accepted() const {
  return loop_->shared().accepted;
}
std::uint64_t StoreServer::clients_refused() const {
  return loop_->shared().refusals.count();
}

}  // namespace dlaunch
