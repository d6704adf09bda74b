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

// What a client does with an answer that came instead.
void read_as_response(const Message& message) {
  const Status status = store_protocol::response_status(message);
  require(message.code != 0 || status.ok(), "code 0 is success");
  const std::size_t flags = message.parts.empty() ? 0 : message.parts[0].size();
  if (auto values = store_protocol::read_try_get(message, flags); values.ok()) {
    require(store_protocol::try_get_response(message.id, *values).parts == message.parts,
            "values have one form only");
  }
  if (const auto entries = store_protocol::read_list(message); entries.ok()) {
    require(entries->size() * 2 == message.parts.size(), "no entry is lost");
  }
  if (auto changes = store_protocol::read_watch(message); changes.ok()) {
    require(store_protocol::watch_response(message.id, *changes).parts == message.parts,
            "changes have one form only");
  }
}

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
      read_as_response(*message);
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
  const std::string swap =
      frame({.code = code(kCompareAndSet), .id = 9, .number = 1, .parts = {"key", "new", "value"}});
  const std::string create =
      frame({.code = code(kCompareAndSet), .id = 10, .parts = {"key", "new"}});
  const std::string append = frame({.code = code(kAppend), .id = 11, .parts = {"key", "more"}});
  const std::string peek = frame({.code = code(kTryGet), .id = 12, .parts = {"key", "none"}});
  const std::string list =
      frame({.code = code(kList), .id = 13, .number = 1, .parts = {"", "key"}});
  const std::string watch =
      frame({.code = code(kWatch), .id = 14, .number = 1000, .parts = {"k", "0"}});
  const std::string later =
      frame({.code = code(kWatch), .id = 15, .number = 1000, .parts = {"k", "7"}});
  const std::string own = frame({.code = code(kSetOwned), .id = 16, .parts = {"key", "mine"}});
  const std::string stat = frame({.code = code(kStat), .id = 17});
  return {"\x3f" + set + swap + create + append + peek + list + watch + later + own + stat,
          "\x3f" + watch + create + later + append + remove + own + remove + list + peek,
          "\x7f" + frame(store_protocol::try_get_response(18, {"a", std::nullopt})) +
              frame(store_protocol::list_response(19, {{"a", 1, 2}, {"b", 3, 4}}, true)) +
              frame(store_protocol::watch_response(20, {5, {{"a", "x"}, {"b", std::nullopt}}})),
          "\x7f" + set + number + add + get + remove,
          "\x01" + number + add + most + most,
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
