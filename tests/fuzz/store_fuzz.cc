// What a client sends to the rendezvous store, and what a store answers, against the code that
// reads either.
//
// Input: a byte for the length of reads, then the stream.
#include <map>
#include <string>

#include <asio/io_context.hpp>

#include "runtime/rendezvous/store_protocol.h"
#include "runtime/rendezvous/store_waits.h"
#include "tests/fuzz/fuzz_target.h"

namespace dlaunch::fuzz {
namespace {

using store_protocol::Message;

// What the server does with one request.
class Server {
 public:
  void handle(const Message& request) {
    ++requests_;
    const int number = requests_;
    waits_.handle(request, this, [this, number, id = request.id](const Message& response) {
      require(++replies_[number] == 1, "a request is answered once");
      require(response.id == id, "an answer carries its request's number");
      std::string frame;
      append_frame(frame, response);
      require(frame.size() <= store_protocol::kMostResponseBytes, "an answer keeps to its limit");
      const auto read = store_protocol::decode_body(std::string_view(frame).substr(4));
      require(read.ok() && *read == response, "an answer can be read");
    });
  }
  ~Server() { waits_.forget(this); }

 private:
  asio::io_context io_{1};
  StoreWaits waits_{io_};
  int requests_ = 0;
  std::map<int, int> replies_;
};

void serve(std::string_view stream, std::size_t read) {
  Server server;
  store_protocol::FrameBuffer buffer(store_protocol::kMostRequestBytes);
  for (std::size_t at = 0; at < stream.size(); at += read) {
    buffer.append(stream.substr(at, read));
    while (true) {
      const auto body = buffer.next();
      if (!body.ok()) return;
      if (!*body) break;
      const auto message = store_protocol::decode_body(**body);
      if (!message.ok()) return;
      std::string again;
      append_frame(again, *message);
      require(std::string_view(again).substr(4) == **body, "a message has one form only");
      const Status status = store_protocol::response_status(*message);
      require(message->code != 0 || status.ok(), "code 0 is success");
      server.handle(*message);
    }
  }
}

std::string frame(const Message& message) {
  std::string bytes;
  append_frame(bytes, message);
  return bytes;
}

}  // namespace

std::vector<std::string> seed_inputs() {
  const auto code = [](store_protocol::Operation operation) {
    return static_cast<std::uint8_t>(operation);
  };
  using enum store_protocol::Operation;
  const std::string set = frame({.code = code(kSet), .id = 1, .parts = {"key", "value"}});
  const std::string number = frame({.code = code(kSet), .id = 2, .parts = {"n", "-12"}});
  const std::string add = frame({.code = code(kAdd), .id = 3, .number = 5, .parts = {"n"}});
  const std::string get =
      frame({.code = code(kGetAll), .id = 4, .number = 1000, .parts = {"key", "n", "none"}});
  const std::string remove = frame({.code = code(kRemove), .id = 5, .parts = {"key"}});
  const std::string most = frame({.code = code(kAdd),
                                  .id = 6,
                                  .number = std::numeric_limits<std::int64_t>::max(),
                                  .parts = {"n"}});
  return {"\x7f" + set + number + add + get + remove, "\x01" + number + add + most + most,
          "\x10" + get + get + set + frame({.code = code(kSet), .id = 7, .parts = {"none", ""}}),
          "\x05" + frame({.code = 7, .id = 8, .parts = {"an error"}})};
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dlaunch::fuzz::Input input(data, size);
  const std::size_t read = input.take_byte() + std::size_t{1};
  dlaunch::fuzz::serve(input.rest(), read);
  return 0;
}
