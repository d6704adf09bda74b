// The server against a client that asks and does not read.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/token.h"
#include "runtime/rendezvous/socket_io.h"
#include "runtime/rendezvous/store_protocol.h"
#include "runtime/rendezvous/store_server.h"
#include "runtime/rendezvous/tcp_store.h"
#include "tests/support/soon.h"

namespace dlaunch {
namespace {

using store_protocol::Message;
using store_protocol::Operation;
using testing::soon;

class StoreBackPressure : public ::testing::Test {
 protected:
  std::string address() const { return "127.0.0.1:" + std::to_string(server_->port()); }
  std::unique_ptr<TcpStore> client() const {
    return TcpStore::connect(address(), token_, soon()).value_or_throw();
  }
  // A client without a thread that reads, past its handshake.
  Descriptor bare_client() const {
    Descriptor socket(connect_socket(address(), soon()).value_or_throw());
    std::array<char, store_protocol::kGreeting.size()> greeting;
    Nonce challenge;
    Mac answer;
    EXPECT_TRUE(receive_exactly(socket.get(), greeting.data(), greeting.size(), soon()).ok());
    EXPECT_TRUE(receive(socket, challenge));
    const Nonce own = make_nonce();
    const Mac proof = make_proof(token_, HandshakeRole::kConnector, challenge, own);
    EXPECT_TRUE(send_all(socket.get(), as_text(own), soon()).ok());
    EXPECT_TRUE(send_all(socket.get(), as_text(proof), soon()).ok());
    EXPECT_TRUE(receive(socket, answer));
    return socket;
  }
  template <typename Bytes>
  static bool receive(const Descriptor& socket, Bytes& bytes) {
    auto* const begin = reinterpret_cast<char*>(bytes.data());
    return receive_exactly(socket.get(), begin, bytes.size(), soon()).ok();
  }
  // Of all clients.
  static std::uint64_t requests(TcpStore& witness) {
    for (const auto& [name, value] : witness.stat().value_or_throw()) {
      if (name == "requests") return std::stoull(value);
    }
    return 0;
  }

  const std::string token_ = make_token();
  const std::unique_ptr<StoreServer> server_ =
      StoreServer::start({.token = token_}).value_or_throw();
};

TEST_F(StoreBackPressure, AClientThatDoesNotReadItsAnswersIsHeardAgainWhenItDoes) {
  constexpr std::uint64_t kAsked = 7;
  const auto witness = client();
  const std::string value(store_protocol::kMostValueBytes, 'v');
  ASSERT_TRUE(witness->set("key", value).ok());
  const Descriptor asking = bare_client();
  std::string frames;
  for (std::uint64_t id = 0; id < kAsked; ++id) {
    const Message request{
        .code = static_cast<std::uint8_t>(Operation::kTryGet), .id = id, .parts = {"key"}};
    store_protocol::append_frame(frames, request);
  }
  std::uint64_t own = requests(*witness);
  ASSERT_TRUE(send_all(asking.get(), frames, soon()).ok());
  // The server handles what it may of them at once.
  std::uint64_t handled = 0;
  const auto has_been_heard = [&] {
    handled = requests(*witness) - ++own;
    return handled > 0;
  };
  ASSERT_TRUE(testing::becomes_true(has_been_heard, soon()));
  EXPECT_LT(handled, kAsked);

  store_protocol::FrameBuffer answers(store_protocol::kMostResponseBytes);
  std::string chunk(std::size_t{1} << 20, ' ');
  for (std::uint64_t id = 0; id < kAsked;) {
    const auto received = receive_some(asking.get(), chunk.data(), chunk.size(), soon());
    ASSERT_TRUE(received.ok()) << received.status().to_string();
    ASSERT_GT(*received, 0U) << "no more came in time";
    answers.append(std::string_view(chunk).substr(0, *received));
    const auto body = answers.next();
    ASSERT_TRUE(body.ok()) << body.status().to_string();
    if (!*body) continue;
    const auto response = store_protocol::decode_body(**body);
    ASSERT_TRUE(response.ok()) << response.status().to_string();
    EXPECT_EQ(response->id, id++);
    EXPECT_EQ(response->parts.back(), value);
  }
}

}  // namespace
}  // namespace dlaunch
