#include "transport/tcp/socket_mesh.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <asio/buffer.hpp>
#include <asio/connect.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>

#include "runtime/base/descriptor_room.h"
#include "runtime/base/token.h"
#include "tests/transport/fabric.h"
#include "transport/mesh/mesh_endpoint.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/hello.h"

namespace dlaunch {
namespace {

using asio::ip::tcp;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Endpoints = Result<std::vector<std::unique_ptr<Endpoint>>>;

TcpListener listen() {
  return TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw();
}
std::string address_of(const TcpListener& listener) {
  return "127.0.0.1:" + std::to_string(listener.port());
}

// Connects, and makes endpoints of what that gives.
Endpoints connect(TcpListener listener, const SocketMeshOptions& options) {
  auto sockets = connect_sockets(std::move(listener), options);
  if (!sockets.ok()) return sockets.status();
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (auto& lane : *sockets) {
    auto endpoint = MeshEndpoint::make(options.rank, options.world_size, {}, describe_for_tests);
    if (!endpoint.ok()) return endpoint.status();
    for (int peer = 0; peer < options.world_size; ++peer) {
      Descriptor& socket = lane[static_cast<std::size_t>(peer)];
      if (socket.is_open()) throw_if_error((*endpoint)->add_connection(peer, std::move(socket)));
    }
    endpoints.push_back(*std::move(endpoint));
  }
  return endpoints;
}

// A world whose ranks are started one by one, each in a thread of its own.
class World {
 public:
  explicit World(int size, int lanes = 1) {
    options_ = {.world_size = size,
                .lanes = lanes,
                .token = make_token(),
                .job_id = "job",
                .addresses = {},
                .timeout = kTestTimeout,
                .logger = {}};
    for (int rank = 0; rank < size; ++rank) {
      listeners_.push_back(listen());
      options_.addresses.push_back(address_of(listeners_.back()));
    }
  }

  SocketMeshOptions& options() { return options_; }
  std::uint16_t port(int rank) const { return listeners_[static_cast<std::size_t>(rank)].port(); }
  HandshakeIdentity identity(int rank) const {
    return {options_.token,
            {.rank = static_cast<std::uint32_t>(rank),
             .world_size = static_cast<std::uint32_t>(options_.world_size),
             .lanes = static_cast<std::uint32_t>(options_.lanes),
             .job = hash_job(options_.job_id)}};
  }

  std::future<Endpoints> start(int rank, std::optional<std::string> token = std::nullopt) {
    SocketMeshOptions options = options_;
    options.rank = rank;
    if (token.has_value()) options.token = *token;
    return std::async(
        std::launch::async,
        [options, listener = std::move(listeners_[static_cast<std::size_t>(rank)])]() mutable {
          return connect(std::move(listener), options);
        });
  }

 private:
  SocketMeshOptions options_;
  std::vector<TcpListener> listeners_;
};

// A connection from somebody who is no rank.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port) {
    socket_.connect({asio::ip::address_v4::loopback(), port});
  }
  void say(const std::string& text) {
    std::error_code ignored;
    asio::write(socket_, asio::buffer(text), ignored);
  }
  // Waits until the other side has closed the connection; what it said before.
  std::size_t read_to_the_end() {
    std::vector<char> heard(4096);
    std::error_code error;
    return asio::read(socket_, asio::buffer(heard), error);
  }

 private:
  asio::io_context io_;
  tcp::socket socket_{io_};
};

// Says hello with `identity` at `port` and returns how that went.
HandshakeOutcome shake_hands(asio::io_context& io, std::uint16_t port,
                             const HandshakeIdentity& identity) {
  tcp::socket socket(io);
  socket.connect({asio::ip::address_v4::loopback(), port});
  std::optional<HandshakeOutcome> outcome;
  start_connector_handshake(std::move(socket), identity, 0, kTestTimeout,
                            [&](HandshakeOutcome result) { outcome.emplace(std::move(result)); });
  const Deadline deadline = Deadline::after(kTestTimeout);
  while (!outcome.has_value() && !deadline.expired()) io.run_one_until(deadline.when());
  io.restart();
  if (!outcome.has_value()) return {Status(StatusCode::kTimeout, "?"), tcp::socket(io), {}};
  return std::move(*outcome);
}

class TcpMeshOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, TcpMeshOfSize, ::testing::Values(1, 2, 3, 8, 32));

TEST_P(TcpMeshOfSize, ConnectsEveryRankWithEveryOtherOnEveryLane) {
  const int world_size = GetParam();
  const std::int64_t descriptors = 4 * std::int64_t{world_size} * world_size;  // of all ranks
  const std::int64_t limit = raise_descriptor_limit(descriptors);
  if (limit < descriptors) GTEST_SKIP() << "the hard limit of open files is " << limit;
  World world(world_size, 2);
  std::vector<std::future<Endpoints>> ranks;
  for (int rank = 0; rank < world_size; ++rank) ranks.push_back(world.start(rank));
  Fabric lanes[2];
  for (auto& rank : ranks) {
    Endpoints endpoints = rank.get();
    ASSERT_OK(endpoints.status());
    ASSERT_EQ(endpoints->size(), 2U);
    for (std::size_t lane = 0; lane < 2; ++lane) {
      lanes[lane].endpoints.push_back(std::move((*endpoints)[lane]));
    }
  }
  for (Fabric& lane : lanes) {
    lane.run([&](int rank, Endpoint& endpoint) {
      EXPECT_EQ(endpoint.rank(), rank);
      EXPECT_EQ(endpoint.world_size(), world_size);
      EXPECT_OK(meet(endpoint, 1));
    });
  }
}

TEST(TcpMesh, LeavesNoSocketToProgramsThatAreStarted) {
  World world(2, 1);
  auto connector = world.start(1);
  const Endpoints listening = world.start(0).get();
  const Endpoints connected = connector.get();
  ASSERT_OK(listening.status());
  ASSERT_OK(connected.status());
  const TcpListener listener = TcpListener::open(TcpListener::Bind::kLoopback).value_or_throw();
  int sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(entry, gone);
    const int descriptor = std::stoi(entry.path().filename());
    if (descriptor <= 2 || !what.starts_with("socket:")) continue;
    ++sockets;
    EXPECT_EQ(::fcntl(descriptor, F_GETFD), FD_CLOEXEC) << descriptor;
  }
  EXPECT_GE(sockets, 3);
}

TEST(TcpMesh, IsNotDisturbedByStrangers) {
  World world(3);
  std::vector<std::unique_ptr<Stranger>> strangers;
  // More than a screenful of each kind, before any rank comes.
  for (int i = 0; i < 30; ++i) {
    for (const int rank : {0, 1, 2}) {
      strangers.push_back(std::make_unique<Stranger>(world.port(rank)));  // says nothing
      strangers.push_back(std::make_unique<Stranger>(world.port(rank)));
      strangers.back()->say("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");  // too short for a proof
      strangers.push_back(std::make_unique<Stranger>(world.port(rank)));
      strangers.back()->say(std::string(1000, 'x'));  // a wrong proof
      const Stranger gone(world.port(rank));
    }
  }
  std::vector<std::future<Endpoints>> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(world.start(rank));
  Fabric fabric;
  for (auto& rank : ranks) {
    Endpoints endpoints = rank.get();
    ASSERT_OK(endpoints.status());
    fabric.endpoints.push_back(std::move(endpoints->front()));
  }
  fabric.run([](int, Endpoint& endpoint) { EXPECT_OK(meet(endpoint, 1)); });
}

// Else they would use up its descriptors.
TEST(TcpMesh, DropsAtOnceTooManyStrangersThatAreSilent) {
  constexpr int kStrangers = 300;
  const std::int64_t limit = raise_descriptor_limit(3 * kStrangers);
  if (limit < 3 * kStrangers) GTEST_SKIP() << "the hard limit of open files is " << limit;
  World world(2);
  const std::uint16_t port = world.port(0);
  auto zero = world.start(0);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < kStrangers; ++i) strangers.push_back(std::make_unique<Stranger>(port));
  EXPECT_EQ(strangers.back()->read_to_the_end(), 0U) << "not even a challenge";
  strangers.clear();  // which makes room for a rank
  auto one = world.start(1);
  EXPECT_OK(zero.get().status());
  EXPECT_OK(one.get().status());
}

TEST(TcpMesh, TellsNothingButAChallengeToAStranger) {
  World world(2);
  Stranger stranger(world.port(0));
  stranger.say(std::string(96, 'x'));
  auto rank = world.start(0);
  EXPECT_EQ(stranger.read_to_the_end(), sizeof(Nonce));
  auto other = world.start(1);
  EXPECT_OK(rank.get().status());
  EXPECT_OK(other.get().status());
}

TEST(TcpMesh, NamesTheRanksThatDidNotCome) {
  World world(4);
  world.options().timeout = std::chrono::seconds(3);
  const std::vector<std::string> addresses = world.options().addresses;
  auto zero = world.start(0);
  auto two = world.start(2);
  const Status of_zero = zero.get().status();
  const Status of_two = two.get().status();
  EXPECT_EQ(of_zero.code(), StatusCode::kTimeout);
  EXPECT_THAT(of_zero.to_string(),
              HasSubstr("rank 0 could not connect within 3 s to rank 1, 3, which should have "
                        "connected to " +
                        addresses[0]));
  EXPECT_EQ(of_two.code(), StatusCode::kTimeout);
  EXPECT_THAT(of_two.to_string(),
              HasSubstr(" to rank 1 (no answer from " + addresses[1] +
                        "), and rank 3, which should have connected to " + addresses[2]));
}

// A listener at the address of a rank that is not there, or not yet.
class SilentListener {
 public:
  std::string address() const {
    return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }
  tcp::socket accept() { return acceptor_.accept(); }

 private:
  asio::io_context io_;
  tcp::acceptor acceptor_{io_, {asio::ip::address_v4::loopback(), 0}};
};

// Which are those that know why.
TEST(TcpMesh, RanksThatConnectGiveUpBeforeThoseThatOnlyListen) {
  SilentListener silent;
  World world(2);
  world.options().timeout = std::chrono::seconds(4);
  auto zero = world.start(0);
  world.options().addresses[0] = silent.address();
  auto one = world.start(1);
  EXPECT_EQ(one.get().status().code(), StatusCode::kTimeout);
  EXPECT_EQ(zero.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(zero.get().status().code(), StatusCode::kTimeout);
}

TEST(TcpMesh, SaysOnceInTheMeantimeWhomItCannotReach) {
  SilentListener silent;
  World world(3);
  world.options().timeout = std::chrono::seconds(1);
  world.options().notice_after = std::chrono::milliseconds(50);
  world.options().addresses[0] = silent.address();
  std::ostringstream log;
  world.options().logger =
      make_logger("mesh", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  EXPECT_EQ(world.start(1).get().status().code(), StatusCode::kTimeout);
  const std::string lines = log.str();
  EXPECT_EQ(std::ranges::count(lines, '\n'), 1);
  EXPECT_THAT(lines, HasSubstr("rank 1 cannot connect so far to rank 0 (no answer from " +
                               silent.address() + "), and rank 2, which should have connected to " +
                               world.options().addresses[1]));
}

TEST(TcpMesh, SaysWhyARankCouldNotBeReached) {
  World world(2);
  world.options().timeout = std::chrono::seconds(3);
  asio::io_context io;
  // Bound, so that nobody else listens there.
  const tcp::socket bound(io, {asio::ip::address_v4::loopback(), 0});
  world.options().addresses[0] = "127.0.0.1:" + std::to_string(bound.local_endpoint().port());
  const Status status = world.start(1).get().status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.to_string(), AllOf(HasSubstr("rank 0 ("), HasSubstr("refused")));
}

// Answers everybody who knows the token, as one rank.
class AnsweringRank {
 public:
  explicit AnsweringRank(HandshakeIdentity identity) : identity_(std::move(identity)) {
    accept();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~AnsweringRank() {
    io_.stop();
    thread_.join();
  }
  AnsweringRank(const AnsweringRank&) = delete;
  AnsweringRank& operator=(const AnsweringRank&) = delete;

  std::string address() const {
    return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port());
  }

 private:
  void accept() {
    acceptor_.async_accept([this](const std::error_code& error, tcp::socket socket) {
      if (error) return;
      start_listener_handshake(
          std::move(socket), identity_, kTestTimeout, [](const Hello&) { return Status(); },
          [](const HandshakeOutcome&) {});
      accept();
    });
  }

  const HandshakeIdentity identity_;
  asio::io_context io_;
  tcp::acceptor acceptor_{io_, {asio::ip::address_v4::loopback(), 0}};
  std::thread thread_;
};

TEST(TcpMesh, DoesNotTakeOneRankForAnother) {
  World world(3);
  const AnsweringRank other(world.identity(1));
  world.options().timeout = std::chrono::seconds(3);
  world.options().addresses[0] = other.address();
  const Status status = world.start(2).get().status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.to_string(),
              HasSubstr("rank 0 (" + other.address() + ": rank 1 answered there)"));
}

TEST(TcpMesh, TriesAgainWhereAConnectionStaysSilent) {
  SilentListener silent;
  World world(2);
  world.options().addresses[0] = silent.address();
  world.options().patience = std::chrono::milliseconds(20);
  world.options().timeout = std::chrono::seconds(1);
  auto one = world.start(1);
  const tcp::socket first = silent.accept();
  const tcp::socket second = silent.accept();
  const Status status = one.get().status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.to_string(), AllOf(HasSubstr("rank 0 ("), HasSubstr("said nothing")));
}

TEST(TcpMesh, RefusesARankThatDoesNotKnowTheToken) {
  World world(2);
  world.options().timeout = std::chrono::milliseconds(500);
  auto honest = world.start(0);
  auto liar = world.start(1, make_token());
  EXPECT_EQ(honest.get().status().code(), StatusCode::kTimeout);
  const Status refused = liar.get().status();
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(refused.to_string(), HasSubstr("rank 0"));
}

TEST(TcpMesh, ConnectorRefusesAListenerThatDoesNotKnowTheToken) {
  asio::io_context io;
  tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  std::thread impostor([&] {
    tcp::socket socket = acceptor.accept();
    std::array<std::byte, sizeof(Nonce) + sizeof(Mac) + kHelloBytes> response;
    std::error_code error;
    asio::write(socket, asio::buffer(make_nonce()), error);
    asio::read(socket, asio::buffer(response), error);
    asio::write(socket, asio::buffer(make_nonce()), error);  // instead of a proof
    asio::read(socket, asio::buffer(response), error);
  });
  asio::io_context own;
  const HandshakeIdentity identity{make_token(), {.rank = 1, .world_size = 2, .lanes = 1}};
  {
    const HandshakeOutcome outcome = shake_hands(own, acceptor.local_endpoint().port(), identity);
    EXPECT_EQ(outcome.status.code(), StatusCode::kUnauthenticated);
  }
  impostor.join();
}

TEST(TcpMesh, DropsASecondRankOfTheSameNumberAndImpossibleOnes) {
  World world(3);
  asio::io_context io;
  const std::uint16_t port = world.port(0);
  auto zero = world.start(0);
  const HandshakeOutcome first = shake_hands(io, port, world.identity(1));
  EXPECT_OK(first.status);
  EXPECT_EQ(first.peer.rank, 0U);

  EXPECT_FALSE(shake_hands(io, port, world.identity(1)).status.ok());  // the second
  EXPECT_FALSE(shake_hands(io, port, world.identity(0)).status.ok());  // itself
  EXPECT_FALSE(shake_hands(io, port, world.identity(3)).status.ok());  // outside the world
  HandshakeIdentity other = world.identity(2);
  other.hello.job = 1;
  EXPECT_FALSE(shake_hands(io, port, other).status.ok());
  other = world.identity(2);
  other.hello.world_size = 4;
  EXPECT_FALSE(shake_hands(io, port, other).status.ok());

  const HandshakeOutcome last = shake_hands(io, port, world.identity(2));
  EXPECT_OK(last.status);
  EXPECT_OK(zero.get().status());
}

TEST(TcpMesh, RefusesImpossibleAddresses) {
  for (const char* address :
       {"nonsense", "127.0.0.1:", ":5", "127.0.0.1:0", "127.0.0.1:70000", "localhost:5"}) {
    World world(2);
    world.options().addresses[0] = address;
    EXPECT_EQ(world.start(1).get().status().code(), StatusCode::kInvalidArgument) << address;
  }
}

TEST(TcpMesh, ConnectsOnlyWhereThereIsAnAddress) {
  World world(3);
  std::vector<std::string> all = world.options().addresses;
  world.options().addresses = {"", all[1], ""};
  auto zero = world.start(0);
  world.options().addresses = {all[0], "", all[2]};
  auto one = world.start(1);
  world.options().addresses = {"", all[1], ""};
  auto two = world.start(2);
  EXPECT_OK(zero.get().status());
  EXPECT_OK(one.get().status());
  EXPECT_OK(two.get().status());
}

TEST(Hello, SurvivesTheWireAndRefusesEveryChangedByte) {
  const Hello hello{.rank = 3, .world_size = 5, .lane = 1, .lanes = 2, .job = hash_job("a job")};
  const auto encoded = encode_hello(hello);
  const Result<Hello> decoded = decode_hello(encoded, hello);
  ASSERT_OK(decoded.status());
  EXPECT_EQ(*decoded, hello);
  for (std::size_t at = 0; at < encoded.size(); ++at) {
    auto garbled = encoded;
    garbled[at] ^= std::byte{0x40};
    EXPECT_EQ(decode_hello(garbled, hello).status().code(), StatusCode::kProtocol) << "byte " << at;
  }
}

}  // namespace
}  // namespace dlaunch
