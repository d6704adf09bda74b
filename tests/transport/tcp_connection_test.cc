// The end of a TcpConnection, and what an endpoint makes of one, against bare sockets as peers.
#include "transport/tcp/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/deadline.h"
#include "tests/support/soon.h"
#include "tests/transport/fabric.h"
#include "transport/mesh/mesh_endpoint.h"

namespace dlaunch {
namespace {

using Bytes = std::vector<std::byte>;
using Delivery = TcpConnection::Delivery;

// In the second of two connected sockets, but not in both.
constexpr std::size_t kMoreThanThePeerHasRoomFor = 200'000;
constexpr int kRoomOfThePeer = 20'000;

// Two connected sockets that do not block.
std::array<Descriptor, 2> connected_sockets() {
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  Descriptor one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(
      ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &kRoomOfThePeer, sizeof kRoomOfThePeer),
      0);  // which what it accepts has, too
  EXPECT_EQ(::bind(listener.get(), where, length), 0);
  EXPECT_EQ(::listen(listener.get(), 1), 0);
  EXPECT_EQ(::getsockname(listener.get(), where, &length), 0);
  EXPECT_EQ(::connect(one.get(), where, length), 0);
  Descriptor other(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  EXPECT_EQ(::fcntl(one.get(), F_SETFL, O_NONBLOCK), 0);
  return {std::move(one), std::move(other)};
}

class PartingConnection : public ::testing::Test {
 protected:
  // As much as `socket` takes; how much it was.
  std::size_t fill(const Descriptor& socket) {
    const Bytes some(50'000, std::byte{7});
    std::size_t total = 0;
    for (ssize_t sent = 0; sent >= 0; total += static_cast<std::size_t>(std::max<ssize_t>(sent, 0)))
      sent = ::send(socket.get(), some.data(), some.size(), MSG_NOSIGNAL);
    EXPECT_EQ(errno, EAGAIN);
    return total;
  }

  // What has come to the peer and is not yet read; false at the end, and `error_` why.
  bool read(Bytes& to) {
    Bytes some(100'000);
    const ssize_t got = ::recv(sockets_[1].get(), some.data(), some.size(), 0);
    if (got > 0) to.insert(to.end(), some.begin(), some.begin() + got);
    error_ = got < 0 ? errno : 0;
    return got > 0 || error_ == EAGAIN;
  }

  EndpointContext context_{.rank = 0, .world_size = 2, .describe = describe_for_tests};
  std::array<std::byte, 8192> staging_;
  std::array<Descriptor, 2> sockets_ = connected_sockets();
  int own_ = sockets_[0].get();
  TcpConnection connection_{std::move(sockets_[0]), 1, context_, staging_};
  int error_ = 0;
  const Bytes last_ = encode_abort({.reporter = 0, .text = "the data set is empty"});
};

TEST_F(PartingConnection, WritesTheLastWordsOnceThereIsRoomForThem) {
  const Descriptor same(::fcntl(own_, F_DUPFD_CLOEXEC, 0));
  const std::size_t before = fill(same);
  connection_.write_last(last_);
  EXPECT_FALSE(connection_.part(Delivery::kSent));
  Bytes heard;
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (read(heard) && !deadline.expired()) connection_.part(Delivery::kSent);
  EXPECT_EQ(error_, 0);
  while (!connection_.part(Delivery::kArrived) &&
         !deadline.expired()) {  // it is acknowledged later
  }
  EXPECT_FALSE(deadline.expired());
  ASSERT_EQ(heard.size(), before + last_.size());
  EXPECT_EQ(Bytes(heard.end() - std::ssize(last_), heard.end()), last_);
}

TEST_F(PartingConnection, LosesNothingThoughThePeerGoesOnSending) {
  // More is on its way to the peer than its window takes, behind it the last words; and the peer
  // sends, so that a close would reset the connection.
  Bytes data(3'000'000);
  Transfer transfer = make_transfer(1, {.sequence = 1}, data);
  connection_.send(transfer);
  Bytes heard;
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (!connection_.flush() && !deadline.expired()) read(heard);
  ASSERT_TRUE(transfer.done());
  connection_.write_last(last_);
  while (!connection_.part(Delivery::kArrived) && !deadline.expired()) {
    fill(sockets_[1]);
    read(heard);
  }
  fill(sockets_[1]);
  connection_.close();
  while (read(heard) && !deadline.expired()) {
  }
  ASSERT_EQ(heard.size(), kFrameHeaderBytes + data.size() + last_.size());
  EXPECT_EQ(Bytes(heard.end() - std::ssize(last_), heard.end()), last_);
}

TEST_F(PartingConnection, IsDoneWithAPeerThatIsGone) {
  const Descriptor same(::fcntl(own_, F_DUPFD_CLOEXEC, 0));
  fill(same);
  sockets_[1].close();
  connection_.write_last(last_);
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (!connection_.part(Delivery::kArrived) && !deadline.expired()) {
  }
  EXPECT_FALSE(deadline.expired());
}

TEST_F(PartingConnection, FinishesTheMessageThatItIsInTheMiddleOf) {
  Bytes data(50'000'000, std::byte{1});
  Transfer begun = make_transfer(1, {.sequence = 1}, data);
  Transfer waiting = make_transfer(1, {.sequence = 2}, data);
  connection_.send(begun);
  connection_.send(waiting);
  ASSERT_FALSE(begun.done());
  connection_.write_last(last_);
  Bytes heard;
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (!connection_.part(Delivery::kArrived) && !deadline.expired()) read(heard);
  while (read(heard) && !deadline.expired()) {
  }
  EXPECT_OK(begun.status());
  EXPECT_FALSE(waiting.done());
  ASSERT_EQ(heard.size(), kFrameHeaderBytes + data.size() + last_.size());
  EXPECT_EQ(Bytes(heard.end() - std::ssize(last_), heard.end()), last_);
  connection_.fail_transfers(Status(StatusCode::kAborted, "enough"));
  EXPECT_EQ(waiting.status().code(), StatusCode::kAborted);
}

// Behind one that the peer has no room for; those of them that are done are forgotten in between.
TEST_F(PartingConnection, WritesManySendsInTheirOrder) {
  constexpr std::size_t kMany = 200;
  Bytes first(20'000'000);
  Transfer begun = make_transfer(1, {.sequence = 1}, first);
  connection_.send(begun);
  ASSERT_FALSE(begun.done());
  std::vector<Bytes> data;
  std::vector<Transfer> transfers(kMany);
  for (std::size_t i = 0; i < kMany; ++i) data.emplace_back(10, static_cast<std::byte>(i));
  for (std::size_t i = 0; i < kMany; ++i) {
    transfers[i] = make_transfer(1, {.sequence = 2 + i}, data[i]);
    connection_.send(transfers[i]);
  }
  Bytes heard;
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (!connection_.flush() && !deadline.expired()) read(heard);
  const std::size_t total =
      kFrameHeaderBytes + first.size() + kMany * (kFrameHeaderBytes + data[0].size());
  while (heard.size() < total && !deadline.expired()) read(heard);
  ASSERT_EQ(heard.size(), total);
  for (std::size_t i = 0; i < kMany; ++i) {
    EXPECT_TRUE(transfers[i].done()) << i;
    const std::size_t end = total - (kMany - 1 - i) * (kFrameHeaderBytes + data[i].size());
    EXPECT_EQ(heard[end - 1], static_cast<std::byte>(i));
  }
}

TEST_F(PartingConnection, CutsOffAMessageThatThePeerDoesNotTake) {
  Bytes data(50'000'000, std::byte{1});
  Transfer begun = make_transfer(1, {.sequence = 1}, data);
  connection_.send(begun);
  connection_.write_last(last_);
  EXPECT_FALSE(connection_.part(Delivery::kSent));
  connection_.fail_transfers(Status(StatusCode::kAborted, "enough"));
  EXPECT_EQ(begun.status().code(), StatusCode::kAborted);
  Bytes heard;
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (read(heard) && !deadline.expired()) connection_.part(Delivery::kSent);
  EXPECT_EQ(error_, 0);  // the stream has ended
  EXPECT_LT(heard.size(), data.size());
  EXPECT_EQ(heard.back(), std::byte{1});
}

// Only sends that are done are owed.
TEST_F(PartingConnection, OwesWhatThePeerHasNoRoomForUntilItReads) {
  Bytes data = random_bytes(kMoreThanThePeerHasRoomFor, 1);
  Transfer sent = make_transfer(1, {.sequence = 1}, data);
  connection_.send(sent);
  ASSERT_TRUE(sent.done());
  EXPECT_TRUE(connection_.owes());
  Bytes heard;
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (connection_.owes() && !deadline.expired()) read(heard);
  EXPECT_FALSE(deadline.expired());
  Bytes more(50'000'000);
  Transfer begun = make_transfer(1, {.sequence = 2}, more);
  connection_.send(begun);
  ASSERT_FALSE(begun.done());
  EXPECT_FALSE(connection_.owes());
  connection_.fail_transfers(Status(StatusCode::kAborted, "enough"));
}

// Rank 0 of three.
class EndpointOfBareSockets : public ::testing::Test {
 protected:
  EndpointOfBareSockets() {
    for (int peer = 1; peer < 3; ++peer) {
      auto [own, other] = connected_sockets();
      throw_if_error(endpoint_->add_connection(peer, std::move(own)));
      peers_[static_cast<std::size_t>(peer)] = std::move(other);
    }
  }

  void write(int peer, const Bytes& bytes) {
    const int socket = peers_[static_cast<std::size_t>(peer)].get();
    EXPECT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }

  Bytes read_to_the_end(int peer) {
    const int socket = peers_[static_cast<std::size_t>(peer)].get();
    Bytes all;
    Bytes some(100'000);
    for (const Deadline deadline = Deadline::after(kTestTimeout); !deadline.expired();) {
      const ssize_t got = ::recv(socket, some.data(), some.size(), 0);
      if (got == 0 || (got < 0 && errno != EAGAIN)) break;
      if (got > 0) all.insert(all.end(), some.begin(), some.begin() + got);
    }
    return all;
  }

  std::unique_ptr<MeshEndpoint> endpoint_ =
      MeshEndpoint::make(0, 3, {}, describe_for_tests).value_or_throw();
  std::array<Descriptor, 3> peers_;
};

// A message whose send is done, and a peer that does not read it yet. It sends a byte itself: a
// socket that had been closed would lose the message.
TEST_F(EndpointOfBareSockets, LingersUntilAMessageHasComeThatThePeerHasNoRoomFor) {
  Bytes data = random_bytes(kMoreThanThePeerHasRoomFor, 1);
  Transfer transfer = make_transfer(1, {.sequence = 1}, data);
  endpoint_->start_send(transfer);
  ASSERT_TRUE(transfer.done());
  endpoint_->linger(kTestTimeout);
  std::atomic<bool> gone = false;
  std::thread leaving([&] {
    endpoint_.reset();
    gone = true;
  });
  // Twice as long as it takes where it need not linger.
  const Deadline parted = Deadline::after(std::chrono::milliseconds(600));
  while (!gone && !parted.expired()) std::this_thread::yield();
  EXPECT_FALSE(gone);
  write(1, Bytes(1));
  const Bytes heard = read_to_the_end(1);
  leaving.join();
  const Bytes goodbye = encode_goodbye();
  ASSERT_EQ(heard.size(), kFrameHeaderBytes + data.size() + goodbye.size());
  EXPECT_TRUE(std::ranges::equal(std::span(heard).subspan(kFrameHeaderBytes, data.size()), data));
  EXPECT_TRUE(std::ranges::equal(std::span(heard).last(goodbye.size()), goodbye));
}

TEST_F(EndpointOfBareSockets, LingersNeitherForAPeerThatIsGoneNorForASendThatIsNotDone) {
  for (const bool peer_is_there : {false, true}) {
    auto [own, other] = connected_sockets();
    auto endpoint = MeshEndpoint::make(0, 2, {}, describe_for_tests).value_or_throw();
    throw_if_error(endpoint->add_connection(1, std::move(own)));
    Bytes data(peer_is_there ? 50'000'000 : kMoreThanThePeerHasRoomFor);
    Transfer transfer = make_transfer(1, {.sequence = 1}, data);
    endpoint->start_send(transfer);
    ASSERT_EQ(transfer.done(), !peer_is_there);
    if (!peer_is_there) other.close();
    endpoint->linger(kTestTimeout);
    const auto begin = std::chrono::steady_clock::now();
    endpoint.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, testing::kPromptly);
  }
}

TEST_F(EndpointOfBareSockets, LingersNoLongerThanItMay) {
  Bytes data(kMoreThanThePeerHasRoomFor);
  Transfer transfer = make_transfer(1, {.sequence = 1}, data);
  endpoint_->start_send(transfer);
  ASSERT_TRUE(transfer.done());
  constexpr std::chrono::milliseconds kLonger{700};
  endpoint_->linger(kLonger);
  const auto begin = std::chrono::steady_clock::now();
  endpoint_.reset();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kLonger);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, testing::kPromptly);
}

TEST_F(EndpointOfBareSockets, SaysWhyItCannotWriteThoughThePeerIsWell) {
  constexpr std::size_t kUnreadable = 4096;
  void* const memory = ::mmap(nullptr, kUnreadable, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Bytes nothing;
  Transfer transfer = make_transfer(1, {.sequence = 1}, nothing);
  transfer.data = static_cast<std::byte*>(memory);
  transfer.bytes = kUnreadable;
  endpoint_->start_send(transfer);
  const Status status = finish(*endpoint_, transfer);
  EXPECT_EQ(status.to_string(), "sending to rank 1: Bad address");
  EXPECT_FALSE(status.peer().has_value());
  ::munmap(memory, kUnreadable);
}

// Peer 1 is cut off in the middle of a frame, and a suspect; why that happened comes from peer 2,
// and is there when this rank looks again, long after.
TEST_F(EndpointOfBareSockets, HearsWhatSpeaksForASuspectBeforeItIsNamed) {
  const Deadline now = Deadline::after({});
  write(1, Bytes(5, std::byte{'D'}));
  peers_[1].close();
  endpoint_->poll(now, nullptr);  // the bytes
  endpoint_->poll(now, nullptr);  // the end
  EXPECT_OK(endpoint_->failure());
  write(2, encode_abort({.code = StatusCode::kIo, .reporter = 2, .text = "the disk is full"}));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const Status failure = await_failure(*endpoint_);
  EXPECT_EQ(failure.to_string(), "the disk is full (reported by rank 2)");
}

TEST(IdleConnection, IsProbedSoThatNoFirewallForgetsIt) {
  auto sockets = connected_sockets();
  const int socket = sockets[0].get();
  EndpointContext context{.rank = 0, .world_size = 2};
  std::array<std::byte, 64> staging{};
  const TcpConnection connection(std::move(sockets[0]), 1, context, staging);
  const auto option = [&](int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    EXPECT_EQ(::getsockopt(socket, level, name, &value, &length), 0);
    return value;
  };
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 60);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 15);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPCNT), 9);
}

}  // namespace
}  // namespace dlaunch
