// The server against many clients, strangers, garbage, and its own end.
#include "runtime/rendezvous/store_server.h"

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/token.h"
#include "runtime/rendezvous/socket_io.h"
#include "runtime/rendezvous/store_protocol.h"
#include "runtime/rendezvous/tcp_store.h"

namespace dlaunch {
namespace {

using ::testing::HasSubstr;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

class StoreServerTest : public ::testing::Test {
 protected:
  void start(std::chrono::milliseconds handshake_timeout = std::chrono::seconds(20)) {
    server_ = StoreServer::start({.token = token_, .handshake_timeout = handshake_timeout})
                  .value_or_throw();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  std::unique_ptr<TcpStore> client() const {
    return TcpStore::connect(address(), token_, soon()).value_or_throw();
  }
  // A bare connection, closed at the end of the test.
  int stranger() {
    sockets_.push_back(connect_socket(address(), soon()).value_or_throw());
    return sockets_.back();
  }
  // Reads until the server closes the connection; false if it does not.
  static bool is_dropped(int socket) {
    std::array<char, 4096> buffer;
    while (true) {
      const auto received = receive_some(socket, buffer.data(), buffer.size(), soon());
      if (!received.ok()) return received.status().code() == StatusCode::kPeerLost;
      if (*received == 0) return false;
    }
  }
  void TearDown() override {
    for (const int socket : sockets_) close(socket);
  }

  std::string token_ = make_token();
  std::unique_ptr<StoreServer> server_;
  std::vector<int> sockets_;
};

TEST_F(StoreServerTest, ServesAThousandClientsThroughABarrier) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  constexpr std::size_t kClients = 1000;
  constexpr std::size_t kThreads = 8;
  if (limit.rlim_cur < 2 * kClients + 100) GTEST_SKIP() << "only " << limit.rlim_cur << " files";
  start();
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([this, t] {
      std::vector<std::unique_ptr<TcpStore>> clients;
      for (std::size_t i = t; i < kClients; i += kThreads) {
        clients.push_back(client());
        ASSERT_TRUE(clients.back()->add("arrived", 1).ok());
      }
      // The last to arrive anywhere opens the gate.
      if (*clients.back()->add("arrived", 0) == kClients) {
        ASSERT_TRUE(clients[0]->set("all", "").ok());
      }
      for (auto& each : clients) ASSERT_TRUE(each->get("all", soon()).ok());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(server_->clients_accepted(), kClients);
  EXPECT_EQ(server_->clients_refused(), 0U);
}

TEST_F(StoreServerTest, AnswersABarrierOfWaitsOverAllKeys) {
  constexpr int kClients = 32;
  start();
  std::vector<std::string> keys;
  for (int i = 0; i < kClients; ++i) keys.push_back("rank/" + std::to_string(i));
  std::vector<std::thread> threads;
  for (const auto& own : keys) {
    threads.emplace_back([&, own] {
      const auto store = client();
      ASSERT_TRUE(store->set(own, own).ok());
      const auto values = store->get_all(keys, soon());
      ASSERT_TRUE(values.ok()) << values.status().to_string();
      EXPECT_EQ(*values, keys);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_F(StoreServerTest, RefusesAnotherJobsToken) {
  start();
  const auto result = TcpStore::connect(address(), make_token(), soon());
  EXPECT_EQ(result.status().code(), StatusCode::kUnauthenticated);
  EXPECT_THAT(result.status().to_string(), HasSubstr("refused this job's token"));
  EXPECT_EQ(server_->clients_refused(), 1U);
  EXPECT_EQ(server_->clients_accepted(), 0U);
  EXPECT_TRUE(client()->set("still", "works").ok());
}

TEST_F(StoreServerTest, DropsGarbageBeforeReadingAnyOfItAsARequest) {
  start();
  const int socket = stranger();
  ASSERT_TRUE(
      send_all(socket, "GET / HTTP/1.1\r\nHost: x\r\n" + std::string(100, '\n'), soon()).ok());
  EXPECT_TRUE(is_dropped(socket));
  EXPECT_EQ(server_->clients_refused(), 1U);
}

TEST_F(StoreServerTest, DropsConnectionsThatStaySilentOrStopHalfway) {
  start(std::chrono::milliseconds(50));
  const int silent = stranger();
  const int half = stranger();
  ASSERT_TRUE(send_all(half, std::string(30, 'x'), soon()).ok());
  EXPECT_TRUE(is_dropped(silent));
  EXPECT_TRUE(is_dropped(half));
  EXPECT_EQ(server_->clients_refused(), 2U);
  EXPECT_TRUE(client()->set("still", "works").ok());
}

TEST_F(StoreServerTest, KeepsClientsBeyondTheHandshakeDeadline) {
  start(std::chrono::milliseconds(50));
  const auto store = client();
  EXPECT_TRUE(is_dropped(stranger()));  // which happens after that time
  EXPECT_TRUE(store->set("still", "here").ok());
}

TEST_F(StoreServerTest, DropsAClientThatSendsAMalformedMessage) {
  start();
  const int socket = stranger();
  std::array<char, 8> greeting;
  Nonce challenge;
  ASSERT_TRUE(receive_exactly(socket, greeting.data(), greeting.size(), soon()).ok());
  ASSERT_TRUE(receive_exactly(socket, reinterpret_cast<char*>(challenge.data()), 32, soon()).ok());
  const Nonce own = make_nonce();
  const Mac proof = make_proof(token_, HandshakeRole::kConnector, challenge, own);
  std::string bytes(reinterpret_cast<const char*>(own.data()), 32);
  bytes.append(reinterpret_cast<const char*>(proof.data()), 32);
  bytes += std::string("\xff\xff\xff\xff", 4) + "a frame of four gigabytes";
  ASSERT_TRUE(send_all(socket, bytes, soon()).ok());
  EXPECT_TRUE(is_dropped(socket));
  EXPECT_EQ(server_->clients_accepted(), 1U);
}

TEST_F(StoreServerTest, ForgetsTheWaitsOfAClientThatHasGone) {
  start();
  {
    const auto gone = client();
    EXPECT_EQ(gone->get("later", Deadline::after(std::chrono::milliseconds(1))).status().code(),
              StatusCode::kTimeout);
    std::thread([&] {
      (void)gone->get("later", Deadline::after(std::chrono::milliseconds(1))).ok();
    }).join();
  }
  EXPECT_TRUE(client()->set("later", "x").ok());
}

TEST_F(StoreServerTest, ItsEndReachesClientsThatWait) {
  start();
  const auto store = client();
  std::thread waiting([&] {
    const auto result = store->get("never", soon());
    EXPECT_EQ(result.status().code(), StatusCode::kPeerLost) << result.status().to_string();
    EXPECT_THAT(result.status().to_string(), HasSubstr("store at 127.0.0.1:"));
  });
  // A second client's answer says that the server has had time to see the first one's request, or
  // else that it will end with the request unread; both must do.
  EXPECT_TRUE(client()->set("other", "x").ok());
  server_.reset();
  waiting.join();
  EXPECT_EQ(store->set("key", "value").code(), StatusCode::kPeerLost);
}

TEST_F(StoreServerTest, APortThatIsTakenIsNamed) {
  start();
  const auto second = StoreServer::start({.port = server_->port(), .token = token_});
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().to_string(), HasSubstr("port " + std::to_string(server_->port())));
}

TEST_F(StoreServerTest, AClientWithoutAServerIsToldSo) {
  start();
  const std::string gone = address();
  server_.reset();
  EXPECT_EQ(TcpStore::connect(gone, token_, soon()).status().code(), StatusCode::kUnavailable);
  for (const char* wrong : {"", "host", "host:", ":1", "127.0.0.1:port", "127.0.0.1:99999999"}) {
    EXPECT_FALSE(TcpStore::connect(wrong, token_, soon()).ok()) << wrong;
  }
}

TEST_F(StoreServerTest, AClientOfSomethingElseGivesUpAtItsDeadline) {
  // A listener that never says anything.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(any);
  auto* generic = reinterpret_cast<sockaddr*>(&any);
  ASSERT_EQ(bind(listener, generic, length), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, generic, &length), 0);
  const auto result = TcpStore::connect("127.0.0.1:" + std::to_string(ntohs(any.sin_port)), token_,
                                        Deadline::after(std::chrono::milliseconds(50)));
  EXPECT_EQ(result.status().code(), StatusCode::kTimeout);
  close(listener);
}

}  // namespace
}  // namespace dlaunch
