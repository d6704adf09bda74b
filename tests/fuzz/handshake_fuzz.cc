// The opening of a connection, against a stranger who sends anything and a job's member who knows
// the token but then says anything.
//
// Input: a byte that chooses the part to play, then what it says.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include "runtime/base/token.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/tcp/handshake.h"

namespace dlaunch::fuzz {
namespace {

constexpr std::uint32_t kAdmittedRank = 2;

HandshakeIdentity identity() {
  return {std::string(kTokenBytes, 't'),
          {.rank = 1, .world_size = 4, .lane = 0, .lanes = 3, .job = hash_job("job")}};
}

// The other side of a handshake, by hand.
class Opponent {
 public:
  Opponent() : socket_(io_) {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    socket_.assign(asio::ip::tcp::v4(), ends[0]);
    opponent_ = ends[1];
  }
  ~Opponent() { ::close(opponent_); }
  Opponent(const Opponent&) = delete;
  Opponent& operator=(const Opponent&) = delete;

  void start(bool listener) {
    const auto done = [this](HandshakeOutcome outcome) {
      require(!outcome_.has_value(), "a handshake ends once");
      outcome_.emplace(std::move(outcome));
    };
    if (listener) {
      const auto admit = [](const Hello& hello) {
        if (hello.rank == kAdmittedRank) return Status();
        return Status(StatusCode::kProtocol, "not admitted");
      };
      start_listener_handshake(std::move(socket_), identity_, std::chrono::hours(1), admit, done);
    } else {
      start_connector_handshake(std::move(socket_), identity_, 1, std::chrono::hours(1), done);
    }
  }
  void say(std::string_view text) {
    (void)::send(opponent_, text.data(), text.size(), MSG_NOSIGNAL);
    io_.poll();
  }
  template <std::size_t Count>
  std::array<std::byte, Count> hear() {
    std::array<std::byte, Count> heard{};
    require(::recv(opponent_, heard.data(), Count, MSG_DONTWAIT) == static_cast<ssize_t>(Count),
            "the handshake says its part");
    return heard;
  }
  // Ends its words; how the handshake went.
  Status end() {
    ::shutdown(opponent_, SHUT_WR);
    io_.poll();
    require(outcome_.has_value(), "a handshake ends when the other side falls silent for good");
    return outcome_->status;
  }

 private:
  asio::io_context io_{1};
  asio::ip::tcp::socket socket_;
  HandshakeIdentity identity_ = identity();
  int opponent_ = -1;
  std::optional<HandshakeOutcome> outcome_;
};

std::string_view text_of(const auto& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Whether `words` begin with a hello of this job, as decode_hello sees it.
std::optional<Hello> hello_in(std::string_view words) {
  if (words.size() < kHelloBytes) return std::nullopt;
  std::array<std::byte, kHelloBytes> encoded;
  std::memcpy(encoded.data(), words.data(), encoded.size());
  const auto hello = decode_hello(encoded, identity().hello);
  if (!hello.ok()) return std::nullopt;
  require(encode_hello(*hello) == encoded, "a hello is understood in one way only");
  return *hello;
}

void stranger_to_listener(std::string_view words) {
  Opponent opponent;
  opponent.start(/*listener=*/true);
  opponent.say(words);
  require(!opponent.end().ok(), "no stranger comes in");
}

void member_to_listener(std::string_view words) {
  Opponent opponent;
  opponent.start(/*listener=*/true);
  const auto challenge = opponent.hear<sizeof(Nonce)>();
  const Nonce own{};
  opponent.say(text_of(own));
  opponent.say(text_of(make_proof(identity().token, HandshakeRole::kConnector, challenge, own)));
  opponent.say(words);
  const auto hello = hello_in(words);
  require(opponent.end().ok() == (hello.has_value() && hello->rank == kAdmittedRank),
          "a member comes in with a good hello only");
}

void stranger_to_connector(std::string_view words) {
  Opponent opponent;
  opponent.start(/*listener=*/false);
  opponent.say(words);
  require(!opponent.end().ok(), "no stranger is believed");
}

void member_to_connector(std::string_view words) {
  Opponent opponent;
  opponent.start(/*listener=*/false);
  const Nonce challenge{};
  opponent.say(text_of(challenge));
  const auto response = opponent.hear<sizeof(Nonce) + sizeof(Mac) + kHelloBytes>();
  Nonce theirs;
  std::memcpy(theirs.data(), response.data(), theirs.size());
  opponent.say(text_of(make_proof(identity().token, HandshakeRole::kListener, theirs, challenge)));
  opponent.say(words);
  require(opponent.end().ok() == hello_in(words).has_value(),
          "a member is believed with a good hello only");
}

}  // namespace

std::vector<std::string> seed_inputs() {
  Hello hello = identity().hello;
  hello.rank = kAdmittedRank;
  const std::string good(text_of(encode_hello(hello)));
  return {std::string(1, '\0') + std::string(128, 'x'), "\x01" + good, "\x02" + good + good + good,
          "\x03" + good, "\x03GET / HTTP/1.1\r\n\r\n"};
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dlaunch::fuzz;
  Input input(data, size);
  switch (input.take_byte() % 4) {
    case 0:
      stranger_to_listener(input.rest());
      break;
    case 1:
      member_to_listener(input.rest());
      break;
    case 2:
      stranger_to_connector(input.rest());
      break;
    default:
      member_to_connector(input.rest());
  }
  return 0;
}
