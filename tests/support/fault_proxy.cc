#include "tests/support/fault_proxy.h"

#include <algorithm>
#include <array>
#include <deque>
#include <future>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <asio/buffer.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>

namespace dlaunch::testing {
namespace {

using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

// Read and not yet written bytes of one direction; more stay in the sockets' buffers.
constexpr std::size_t kMostKept = std::size_t{1} << 20;

void reset(tcp::socket& socket) {
  std::error_code ignored;
  socket.set_option(asio::socket_base::linger(true, 0), ignored);
  socket.close(ignored);
}

// One direction of a connection: reads from one socket, writes to the other. It belongs to its
// connection, which every pending handler keeps alive through `owner`.
class Pump {
 public:
  Pump(tcp::socket& from, tcp::socket& to) : from_(from), to_(to), timer_(from.get_executor()) {}

  void start(std::shared_ptr<void> owner, const Faults& faults) {
    faults_ = faults;
    owner_ = std::move(owner);
    step();
  }
  void set(const Faults& faults) {
    faults_ = faults;
    passed_since_set_ = 0;
    allowed_ = Clock::now();
    timer_.cancel();
    if (owner_.lock() != nullptr) step();
  }
  std::size_t forwarded() const { return forwarded_; }

 private:
  struct Chunk {
    Clock::time_point arrived;
    std::vector<char> bytes;
    std::size_t written = 0;
  };

  void step() {
    if (ended_ || faults_.stalled) return;
    if (passed_since_set_ >= faults_.cut_after) return cut();
    read();
    write();
  }

  void read() {
    if (reading_ || at_end_ || kept_ >= kMostKept) return;
    reading_ = true;
    from_.async_read_some(
        asio::buffer(staging_),
        [this, owner = owner_.lock()](const std::error_code& error, std::size_t count) {
          reading_ = false;
          if (ended_) return;
          if (error && error != asio::error::eof) return fail();
          if (error) {
            at_end_ = true;
          } else {
            chunks_.push_back(
                {Clock::now(),
                 {staging_.begin(), staging_.begin() + static_cast<std::ptrdiff_t>(count)}});
            kept_ += count;
          }
          step();
        });
  }

  void write() {
    if (writing_) return;
    if (chunks_.empty()) {
      if (at_end_) end_stream();
      return;
    }
    Chunk& chunk = chunks_.front();
    const auto due = std::max(chunk.arrived + faults_.delay, allowed_);
    if (due > Clock::now()) return wait_until(due);
    std::size_t count =
        std::min(chunk.bytes.size() - chunk.written, faults_.cut_after - passed_since_set_);
    if (faults_.bytes_per_write > 0) count = std::min(count, faults_.bytes_per_write);
    if (faults_.bytes_per_second > 0) {
      // A slow line sends small pieces often rather than large ones seldom.
      count = std::min(count, std::max<std::size_t>(1, faults_.bytes_per_second / 200));
    }
    writing_ = true;
    asio::async_write(
        to_, asio::buffer(chunk.bytes.data() + chunk.written, count),
        [this, owner = owner_.lock()](const std::error_code& error, std::size_t written) {
          writing_ = false;
          if (ended_) return;
          if (error) return fail();
          account(written);
          step();
        });
  }

  void account(std::size_t written) {
    forwarded_ += written;
    passed_since_set_ += written;
    kept_ -= written;
    chunks_.front().written += written;
    if (chunks_.front().written == chunks_.front().bytes.size()) chunks_.pop_front();
    if (faults_.bytes_per_second > 0) {
      const std::chrono::duration<double> pause(static_cast<double>(written) /
                                                static_cast<double>(faults_.bytes_per_second));
      allowed_ =
          std::max(allowed_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(pause);
    }
  }

  void wait_until(Clock::time_point when) {
    timer_.expires_at(when);
    timer_.async_wait([this, owner = owner_.lock()](const std::error_code& cancelled) {
      if (!cancelled) step();
    });
  }

  void cut() {
    if (faults_.ending == Ending::kHalfClose) return end_stream();
    ended_ = true;
    if (faults_.ending == Ending::kReset) {
      reset(from_);
      reset(to_);
      return;
    }
    std::error_code ignored;
    from_.shutdown(tcp::socket::shutdown_both, ignored);
    to_.shutdown(tcp::socket::shutdown_both, ignored);
  }

  void end_stream() {
    ended_ = true;
    std::error_code ignored;
    to_.shutdown(tcp::socket::shutdown_send, ignored);
  }

  // One side has broken its connection; the other one learns of it.
  void fail() {
    ended_ = true;
    reset(from_);
    reset(to_);
  }

  tcp::socket& from_;
  tcp::socket& to_;
  asio::steady_timer timer_;
  std::weak_ptr<void> owner_;
  Faults faults_;
  std::array<char, 64 << 10> staging_{};
  std::deque<Chunk> chunks_;
  std::size_t kept_ = 0;
  std::size_t forwarded_ = 0;
  std::size_t passed_since_set_ = 0;
  Clock::time_point allowed_ = Clock::now();  // by bytes_per_second
  bool reading_ = false;
  bool writing_ = false;
  bool at_end_ = false;  // of what comes in
  bool ended_ = false;
};

struct Connection {
  explicit Connection(tcp::socket accepted)
      : client(std::move(accepted)), target(client.get_executor()) {}
  tcp::socket client;
  tcp::socket target;
  Pump forward{client, target};
  Pump backward{target, client};

  Pump& pump(Direction direction) { return direction == Direction::kForward ? forward : backward; }
};

Faults& side(ConnectionFaults& faults, Direction direction) {
  return direction == Direction::kForward ? faults.forward : faults.backward;
}

}  // namespace

class FaultProxy::Relay {
 public:
  Relay(std::uint16_t target_port, Choice choose)
      : choose_(std::move(choose)),
        target_(asio::ip::address_v4::loopback(), target_port),
        acceptor_(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        port_(acceptor_.local_endpoint().port()) {
    accept();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Relay() {
    io_.stop();
    thread_.join();
    for (const auto& connection : connections_) {
      reset(connection->client);
      reset(connection->target);
    }
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::uint16_t port() const { return port_; }

  // Carries out `task` on the proxy's thread and returns its result.
  template <typename Task>
  auto ask(Task task) {
    std::packaged_task<decltype(task())()> packaged(std::move(task));
    auto result = packaged.get_future();
    asio::post(io_, std::move(packaged));
    return result.get();
  }

  void set_all(Direction direction, const Faults& faults) {
    for (const auto& connection : connections_) connection->pump(direction).set(faults);
    choose_ = [faults, direction, before = std::move(choose_)](int index) {
      ConnectionFaults chosen = before ? before(index) : ConnectionFaults();
      side(chosen, direction) = faults;
      return chosen;
    };
  }
  void set_one(int index, Direction direction, const Faults& faults) {
    if (index < 0 || index >= connections()) return;
    connections_[static_cast<std::size_t>(index)]->pump(direction).set(faults);
  }
  int connections() const { return static_cast<int>(connections_.size()); }
  std::size_t forwarded(Direction direction) const {
    std::size_t sum = 0;
    for (const auto& each : connections_) sum += each->pump(direction).forwarded();
    return sum;
  }

 private:
  void accept() {
    acceptor_.async_accept([this](const std::error_code& error, tcp::socket socket) {
      if (!error) relay(std::move(socket));
      accept();
    });
  }

  void relay(tcp::socket socket) {
    const int index = connections();
    const auto connection = std::make_shared<Connection>(std::move(socket));
    connections_.push_back(connection);
    connection->target.async_connect(
        target_, [this, connection, index](const std::error_code& error) {
          if (error) return reset(connection->client);
          std::error_code ignored;
          connection->client.set_option(tcp::no_delay(true), ignored);
          connection->target.set_option(tcp::no_delay(true), ignored);
          const ConnectionFaults faults = choose_ ? choose_(index) : ConnectionFaults();
          connection->forward.start(connection, faults.forward);
          connection->backward.start(connection, faults.backward);
        });
  }

  Choice choose_;
  asio::io_context io_{1};
  tcp::endpoint target_;
  tcp::acceptor acceptor_;
  const std::uint16_t port_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::thread thread_;
};

FaultProxy::FaultProxy(std::uint16_t target_port, Choice choose)
    : relay_(std::make_unique<Relay>(target_port, std::move(choose))) {}

FaultProxy::~FaultProxy() = default;

std::uint16_t FaultProxy::port() const {
  return relay_->port();
}

void FaultProxy::set(Direction direction, const Faults& faults) {
  relay_->ask([&] { relay_->set_all(direction, faults); });
}

void FaultProxy::set(int index, Direction direction, const Faults& faults) {
  relay_->ask([&] { relay_->set_one(index, direction, faults); });
}

int FaultProxy::connections() const {
  return relay_->ask([&] { return relay_->connections(); });
}

std::size_t FaultProxy::forwarded(Direction direction) const {
  return relay_->ask([&] { return relay_->forwarded(direction); });
}

}  // namespace dlaunch::testing
