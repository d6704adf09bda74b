// The server against many clients, strangers, garbage, and its own end.
#include "runtime/rendezvous/store_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/activity.h"
#include "runtime/base/activity_layout.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/token.h"
#include "runtime/rendezvous/socket_io.h"
#include "runtime/rendezvous/store_protocol.h"
#include "runtime/rendezvous/tcp_store.h"
#include "tests/support/slow_resolver.h"
#include "tests/support/soon.h"

namespace dlaunch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Pair;
using testing::soon;

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

// What is published costs a question for all keys again, which thousands of ranks may wait for.
TEST_F(StoreServerTest, IsNotAskedAgainSoonForVeryManyKeys) {
  start();
  const Descriptor file(memfd_create("activity", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), sizeof(ActivityPage)), 0);
  const auto content = [&] {
    std::string bytes(sizeof(ActivityPage), ' ');
    EXPECT_EQ(pread(file.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    return bytes;
  };
  const std::uint64_t magic = ActivityPage::kMagic;  // which is the first of it
  ASSERT_EQ(pwrite(file.get(), &magic, sizeof magic, 0), static_cast<ssize_t>(sizeof magic));
  const auto activity = Activity::open("/proc/self/fd/" + std::to_string(file.get()), 0);
  ASSERT_NE(activity, nullptr);
  const std::string before = content();
  std::vector<std::string> keys;
  for (int i = 0; i < 2000; ++i) keys.push_back("rank/" + std::to_string(i));
  const auto store = client();
  store->publish_waits(activity);
  const auto wait_for = [&](const std::vector<std::string>& some) {
    const auto values = store->get_all(some, Deadline::after(std::chrono::seconds(1)));
    EXPECT_EQ(values.status().code(), StatusCode::kTimeout);
  };
  wait_for({"rank/0"});
  const std::string after_one = content();
  EXPECT_NE(after_one, before);  // a wait of that length is published
  wait_for(keys);
  EXPECT_EQ(content(), after_one);
}

TEST_F(StoreServerTest, ListensOnAddressesOfBothKindsWhereItIsToListenOnAll) {
  auto server = StoreServer::start({.bind_address = "::", .token = token_});
  if (!server.ok()) GTEST_SKIP() << server.status().to_string();
  server_ = *std::move(server);
  EXPECT_TRUE(client()->set("over", "IPv4").ok());
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

TEST_F(StoreServerTest, DropsTheOldestOfTooManyConnectionsThatProveNothing) {
  server_ = StoreServer::start(
                {.token = token_, .handshake_timeout = std::chrono::hours(1), .most_unproved = 2})
                .value_or_throw();
  const auto before = client();
  const int oldest = stranger();
  const auto between = client();  // which has proved it, and so does not count
  stranger();
  EXPECT_EQ(server_->clients_refused(), 0U);
  stranger();
  EXPECT_TRUE(is_dropped(oldest));
  EXPECT_EQ(server_->clients_refused(), 1U);
  EXPECT_TRUE(client()->set("still", "works").ok());
  EXPECT_TRUE(before->set("still", "served").ok());
  EXPECT_TRUE(between->set("still", "served").ok());
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

TEST_F(StoreServerTest, KeepsThePrefixesOfClientsApart) {
  start();
  const auto scoped = [&](const char* prefix) {
    return TcpStore::connect(address(), token_, soon(), prefix).value_or_throw();
  };
  const auto first = scoped("attempt 0/");
  const auto second = scoped("attempt 1/");
  ASSERT_TRUE(first->set("key", "first").ok());
  ASSERT_TRUE(second->append("key", "second").ok());
  EXPECT_EQ(*first->get("key", soon()), "first");
  EXPECT_EQ(*second->add("n", 2), 2);
  EXPECT_EQ(*first->add("n", 5), 5);
  EXPECT_THAT(*first->try_get({"key", "n"}), ElementsAre("first", "5"));
  EXPECT_EQ(first->list("")->size(), 2U);
  EXPECT_EQ(second->list("k")->front().key, "key");
  EXPECT_EQ(second->watch("", 0, soon())->changes.front().key, "key");
  EXPECT_THAT(*client()->get("attempt 1/key", soon()), "second");
}

TEST_F(StoreServerTest, RunsABatchInOrderAndGivesEveryNumber) {
  start();
  const auto store = client();
  StoreBatch batch;
  for (int i = 0; i < 5000; ++i) batch.add("n", 1);
  batch.set("key", "value");
  batch.append("key", "s");
  batch.remove("key");
  batch.remove("key");
  const auto numbers = store->run(batch, soon());
  ASSERT_TRUE(numbers.ok()) << numbers.status().to_string();
  ASSERT_EQ(numbers->size(), batch.size());
  for (std::size_t i = 0; i < 5000; ++i) ASSERT_EQ((*numbers)[i], static_cast<std::int64_t>(i + 1));
  EXPECT_THAT(std::vector(numbers->end() - 4, numbers->end()), ElementsAre(0, 6, 1, 0));
  EXPECT_THAT(*store->run({}, soon()), ElementsAre());
}

TEST_F(StoreServerTest, ABatchNamesTheFirstChangeThatIsRefused) {
  start();
  const auto store = client();
  StoreBatch batch;
  batch.set("word", "x");
  batch.add("word", 1);
  batch.set("after", "y");
  EXPECT_THAT(store->run(batch, soon()).status().to_string(), HasSubstr("'word' holds no number"));
  EXPECT_EQ(*store->get("after", soon()), "y");
}

TEST_F(StoreServerTest, CarriesLargeValuesInABatch) {
  start();
  const auto store = client();
  StoreBatch batch;
  for (int i = 0; i < 6; ++i) batch.set("k" + std::to_string(i), std::string(3 << 20, 'v'));
  ASSERT_TRUE(store->run(batch, soon()).ok());
  EXPECT_EQ(store->get_all({"k0", "k5"}, soon())->back().size(), std::size_t{3} << 20);
}

TEST_F(StoreServerTest, RefusesMoreThanItsMemoryAndSaysSo) {
  server_ = StoreServer::start({.token = token_, .most_bytes = 100'000}).value_or_throw();
  const auto store = client();
  int fitted = 0;
  Status status;
  while (status.ok()) {
    status = store->set("k" + std::to_string(fitted), "");
    if (status.ok()) ++fitted;
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.to_string(), HasSubstr("store: full (100000 bytes), no room for 'k"));
  EXPECT_LT(fitted, 100'000 / 128);  // an empty value costs memory too
  EXPECT_TRUE(*store->remove("k0"));
  EXPECT_TRUE(store->set("x", "").ok());
  EXPECT_EQ(store->append("x", std::string(1000, 'x')).status().code(), StatusCode::kUnavailable);
}

TEST_F(StoreServerTest, KeepsRoomForThoseWhoLetOthersFillIt) {
  server_ = StoreServer::start({.token = token_, .most_bytes = 100'000, .limited_prefix = "rank/"})
                .value_or_throw();
  const auto store = client();
  int taken = 0;
  while (taken < 200 && store->set("rank/" + std::to_string(taken), std::string(1000, 'x')).ok()) {
    ++taken;
  }
  EXPECT_NEAR(taken, 50'000 / 1135, 1);
  EXPECT_EQ(store->append("rank/0", std::string(1000, 'x')).status().code(),
            StatusCode::kUnavailable);
  EXPECT_TRUE(store->set("own", std::string(40'000, 'x')).ok());
  // What needs no more room than there was is done also beyond the limit.
  EXPECT_TRUE(store->set("rank/0", std::string(1000, 'y')).ok());
  EXPECT_TRUE(store->set("rank/0", "7").ok());
  EXPECT_EQ(*store->add("rank/0", 1), 8);
  EXPECT_TRUE(store->compare_and_set("rank/1", std::string(1000, 'x'), "less")->swapped);
  EXPECT_EQ(*store->append("rank/1", ""), 4);
}

TEST_F(StoreServerTest, RefusesToKeepMoreWaitsThanItsLimitForOneClient) {
  start();
  const auto store = client();
  const std::vector<std::string> keys(16'000, std::string(1000, 'k'));  // 16 MB in all
  std::vector<std::thread> waiting;
  std::atomic<int> refused = 0;
  for (int i = 0; i < 7; ++i) {
    waiting.emplace_back([&] {
      const auto result = store->get_all(keys, soon());
      if (result.ok()) return;
      EXPECT_EQ(result.status().code(), StatusCode::kUnavailable) << result.status().to_string();
      if (refused++ > 0) return;
      EXPECT_TRUE(client()->set(keys[0], "").ok());  // lets the others go
    });
  }
  for (auto& each : waiting) each.join();
  EXPECT_GE(refused, 1);
}

TEST_F(StoreServerTest, RemovesTheKeysThatAClientOwnedWhenItGoes) {
  start();
  const auto watcher = client();
  auto owner = client();
  ASSERT_TRUE(owner->set_owned("mine", "x").ok());
  ASSERT_TRUE(owner->set_owned("taken over", "x").ok());
  ASSERT_TRUE(owner->set("left", "x").ok());
  ASSERT_TRUE(watcher->set("taken over", "y").ok());
  const auto before = watcher->watch("mine", 0, soon());
  ASSERT_TRUE(before.ok());
  owner.reset();
  const auto after = watcher->watch("mine", before->revision, soon());
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  EXPECT_EQ(after->changes.front().value, std::nullopt);
  EXPECT_THAT(*watcher->try_get({"taken over", "left"}), ElementsAre("y", "x"));
}

TEST_F(StoreServerTest, AKeyStaysItsOwnersWhateverTheOwnerMakesOfIt) {
  start();
  const auto other = client();
  auto owner = client();
  for (const char* key : {"set", "appended", "swapped", "removed", "removed by another"})
    ASSERT_TRUE(owner->set_owned(key, "x").ok());
  ASSERT_TRUE(owner->set("set", "y").ok());
  ASSERT_TRUE(owner->append("appended", "y").ok());
  ASSERT_TRUE(owner->compare_and_set("swapped", "x", "y")->swapped);
  ASSERT_TRUE(*owner->remove("removed"));
  ASSERT_TRUE(owner->set("removed", "and plain now").ok());
  ASSERT_TRUE(*other->remove("removed by another"));
  ASSERT_TRUE(owner->set("removed by another", "and plain now").ok());
  const auto revision = other->watch("", 0, soon())->revision;
  owner.reset();
  ASSERT_TRUE(other->watch("swapped", revision, soon()).ok());
  std::vector<std::string> keys;
  const auto left = other->list("").value_or_throw();
  for (const StoreEntry& entry : left) keys.push_back(entry.key);
  EXPECT_THAT(keys, ElementsAre("removed", "removed by another"));
}

TEST_F(StoreServerTest, CountsWhatItHolds) {
  start();
  const auto store = client();
  ASSERT_TRUE(store->set("key", "value").ok());
  EXPECT_FALSE(TcpStore::connect(address(), make_token(), soon()).ok());
  const auto counts = store->stat();
  ASSERT_TRUE(counts.ok()) << counts.status().to_string();
  EXPECT_THAT(*counts, IsSupersetOf({Pair("keys", "1"), Pair("clients", "1"), Pair("refused", "1"),
                                     Pair("requests", "2"), Pair("waiting", "0")}));
}

TEST_F(StoreServerTest, ClientsWaitWhileThereIsNoDescriptorLeftAndAreServedThen) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "the sanitizer opens a pipe to look at an object, and takes it for bad if it cannot";
#endif
  start();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto store = client();
  // The connections of strangers use up what is left, on both sides of the loopback.
  std::vector<int> held;
  const rlimit low{.rlim_cur = 64, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int descriptor = dup(0); descriptor >= 0; descriptor = dup(0)) held.push_back(descriptor);
  close(held.back());
  held.pop_back();
  std::thread late([&] {
    const auto result = TcpStore::connect(address(), token_, soon());
    EXPECT_TRUE(result.ok()) << result.status().to_string();
  });
  EXPECT_TRUE(store->set("those who are in", "are served").ok());
  for (const int descriptor : held) close(descriptor);
  late.join();
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(StoreServerTest, TellsAnotherVersionFromAStranger) {
  // A listener that greets like a store of another version.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(listen(listener, 1), 0);
  sockaddr_in bound{};
  socklen_t length = sizeof(bound);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&bound), &length), 0);
  std::thread other([&] {
    const int accepted = accept(listener, nullptr, nullptr);
    EXPECT_EQ(send(accepted, "dlstore1", 8, MSG_NOSIGNAL), 8);
    EXPECT_EQ(send(accepted, std::string(32, 'c').data(), 32, MSG_NOSIGNAL), 32);
    close(accepted);
  });
  const auto result =
      TcpStore::connect("127.0.0.1:" + std::to_string(ntohs(bound.sin_port)), token_, soon());
  EXPECT_EQ(result.status().code(), StatusCode::kProtocol);
  EXPECT_THAT(result.status().to_string(), HasSubstr("different versions of dlaunch"));
  other.join();
  close(listener);
}

// A store on a port of its own that does as a test says.
class FakeStore {
 public:
  FakeStore() {
    sockaddr_in bound{};
    bound.sin_family = AF_INET;
    bound.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(bound);
    auto* const generic = reinterpret_cast<sockaddr*>(&bound);
    EXPECT_EQ(bind(listener_.get(), generic, length), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    EXPECT_EQ(getsockname(listener_.get(), generic, &length), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(bound.sin_port));
  }
  const std::string& address() const { return address_; }

  // Takes a client in and challenges it.
  Descriptor greet() {
    Descriptor client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string greeting(store_protocol::kGreeting);
    greeting += as_text(challenge_);
    EXPECT_TRUE(send_all(client.get(), greeting, soon()).ok());
    return client;
  }
  // Proves the token to it.
  void prove(const Descriptor& client, const std::string& token) {
    Nonce theirs;
    Mac proof;
    EXPECT_TRUE(
        receive_exactly(client.get(), reinterpret_cast<char*>(theirs.data()), theirs.size(), soon())
            .ok());
    EXPECT_TRUE(
        receive_exactly(client.get(), reinterpret_cast<char*>(proof.data()), proof.size(), soon())
            .ok());
    proof = make_proof(token, HandshakeRole::kListener, theirs, challenge_);
    EXPECT_TRUE(send_all(client.get(), as_text(proof), soon()).ok());
  }

 private:
  Descriptor listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string address_;
  Nonce challenge_ = make_nonce();
};

TEST_F(StoreServerTest, AClientThatWasHeldUpInItsHandshakeTriesAgain) {
  FakeStore fake;
  std::thread server([&] {
    fake.greet().close();  // has waited for its proof for too long
    const Descriptor client = fake.greet();
    fake.prove(client, token_);
  });
  EXPECT_TRUE(TcpStore::connect(fake.address(), token_, soon()).ok());
  server.join();
}

TEST_F(StoreServerTest, NothingFollowsARequestThatBrokeOff) {
  FakeStore fake;
  Descriptor held;
  std::thread server([&] {
    held = fake.greet();
    fake.prove(held, token_);  // and reads no more
  });
  const auto store = TcpStore::connect(fake.address(), token_, soon()).value_or_throw();
  server.join();
  store->limit_answers(std::chrono::milliseconds(50));
  EXPECT_EQ(store->set("key", std::string(16 << 20, 'x')).code(), StatusCode::kTimeout);
  EXPECT_EQ(store->set("key", "x").code(), StatusCode::kPeerLost);
  EXPECT_THAT(store->get("key", soon()).status().to_string(), HasSubstr("a request broke off"));
}

TEST_F(StoreServerTest, CallsWaitNoLongerThanTheyMayForOneThatSends) {
  FakeStore fake;
  Descriptor held;
  std::thread server([&] {
    held = fake.greet();
    fake.prove(held, token_);
  });
  const auto store = TcpStore::connect(fake.address(), token_, soon()).value_or_throw();
  server.join();
  store->limit_answers(std::chrono::milliseconds(50));
  StoreBatch large;
  large.set("key", std::string(16 << 20, 'x'));
  std::thread sender([&] { EXPECT_FALSE(store->run(large, soon()).ok()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // so that it has begun to send
  const auto waited =
      store->get("key", Deadline::after(std::chrono::milliseconds(50))).status().code();
  EXPECT_EQ(waited, StatusCode::kTimeout);
  held.close();  // the end of what is sent
  sender.join();
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

TEST_F(StoreServerTest, AClientWhoseNameServerIsSilentGivesUpAtItsDeadline) {
  const testing::SlowResolver slow;
  const auto client = TcpStore::connect("store.slow.test:29500", token_,
                                        Deadline::after(std::chrono::milliseconds(20)));
  EXPECT_EQ(client.status().code(), StatusCode::kTimeout);
  EXPECT_THAT(client.status().to_string(), HasSubstr("store.slow.test:29500"));
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
