// What a peer of the same host writes into a ring of the shared segment, against ShmLink: messages
// of a good peer, and lines and counts of one that has lost its mind.
//
// Input: steps of a byte and what it takes (see Drive).
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "transport/shm/link.h"

namespace dlaunch::fuzz {
namespace {

constexpr RingShape kShape{.lines = 8, .bulk_bytes = 256};
// Longer messages are not tried: memory is set aside for them, and a sanitizer marks all of it.
constexpr std::uint64_t kMostPayload = 2000;

using Bytes = std::vector<std::byte>;

// Zero-filled, aligned memory.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : memory_(static_cast<std::byte*>(::operator new(bytes, kAlignment))) {
    std::memset(memory_, 0, bytes);
  }
  ~Memory() { ::operator delete(memory_, kAlignment); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* get() const { return memory_; }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  std::byte* memory_;
};

// Of a group in which nobody sleeps: all that changes is who has sent something, so one will do for
// all inputs.
std::byte* group_memory() {
  static const Memory memory(SharedGroup::memory_bytes(2));
  return memory.get();
}

// Steps, by the first byte modulo 8:
//   0, 1  the good peer sends a message: sequence, two bytes of length
//   2, 3  a receive is posted: sequence, two bytes of length
//   4, 5  the reader reads, the good peer goes on with what is queued
//   6     the next line is written raw: kind, inline bytes, then its content
//   7     the credits that the reader has given are overwritten: 16 bytes
class Drive {
 public:
  void run(Input input) {
    while (!input.rest().empty() && status_.ok()) step(input);
    for (int turn = 0; turn < 64 && status_.ok(); ++turn) exchange();
    reader_.fail_transfers(Status(StatusCode::kAborted, "the end"));
    writer_.fail_transfers(Status(StatusCode::kAborted, "the end"));
    check();
  }

 private:
  struct Message {
    Transfer transfer;
    Bytes data;
  };

  void step(Input& input) {
    switch (input.take_byte() % 8) {
      case 0:
      case 1:
        return send(make(input, sent_));
      case 2:
      case 3:
        return post(make(input, posted_));
      case 6:
        return write_raw(input);
      case 7: {
        const std::string credits = input.take(sizeof(std::uint64_t) * 2);
        std::memcpy(ring_memory_.get(), credits.data(), credits.size());
        honest_ = false;
        return;
      }
      default:
        exchange();
    }
  }

  Message& make(Input& input, std::deque<Message>& among) {
    Message& message = among.emplace_back();
    message.transfer.tag.sequence = input.take_byte() % 3;
    message.data.resize((input.take_byte() * std::size_t{8} + input.take_byte() % 8) %
                        kMostPayload);
    message.transfer.data = message.data.data();
    message.transfer.bytes = message.data.size();
    return message;
  }

  void send(Message& message) {
    for (std::byte& each : message.data) each = static_cast<std::byte>(next_byte_++);
    writer_.send(message.transfer);
  }

  void post(Message& message) {
    const Status posted = reader_.post(message.transfer);
    if (status_.ok()) status_ = posted;
  }

  void exchange() {
    const Status read = reader_.read();
    if (status_.ok()) status_ = read;
    writer_.flush();
  }

  // In place of whatever the good peer would have written there.
  void write_raw(Input& input) {
    honest_ = false;
    const std::uint64_t kind = input.take_byte();
    const std::uint64_t inline_bytes = input.take_byte();
    RingLineContent content{};
    const std::string bytes = input.take(sizeof content);
    std::memcpy(&content, bytes.data(), bytes.size());
    if (inline_bytes == RingWriter::kNumbers && content.number(0) <= kMaxMessageBytes) {
      content.set_number(0, content.number(0) % kMostPayload);
    }
    raw_.put_line(static_cast<RingLineKind>(kind), static_cast<std::uint8_t>(inline_bytes),
                  content);
  }

  void check() {
    require(!reader_.awaited() && !writer_.awaited(), "failed transfers are gone");
    std::map<std::uint64_t, std::deque<const Message*>> expected;
    for (const Message& message : sent_) {
      expected[message.transfer.tag.sequence].push_back(&message);
    }
    for (const Message& message : posted_) {
      require(message.transfer.done(), "every posted receive ends");
      if (!honest_ || !message.transfer.status().ok()) continue;
      auto& queue = expected[message.transfer.tag.sequence];
      require(!queue.empty(), "no receive ends well without its message");
      require(queue.front()->data == message.data, "messages arrive whole and in order");
      queue.pop_front();
    }
    require(!honest_ || status_.code() != StatusCode::kProtocol, "a good peer is understood");
  }

  Memory ring_memory_{kShape.memory_bytes()};
  Memory way_back_{kShape.memory_bytes()};
  EndpointContext context_{.rank = 0, .world_size = 2};
  EndpointContext peer_context_{.rank = 1, .world_size = 2};
  SharedGroup group_{{.index = 0,
                      .members = {{.rank = 0, .pid = 0}, {.rank = 1, .pid = 0}},
                      .memory = group_memory()}};
  SharedGroup peer_group_{{.index = 1,
                           .members = {{.rank = 0, .pid = 0}, {.rank = 1, .pid = 0}},
                           .memory = group_memory()}};
  RingMemory ring_{ring_memory_.get(), kShape};
  RingMemory back_{way_back_.get(), kShape};
  ShmLink reader_{context_, 1, group_, 1, back_, ring_};
  ShmLink writer_{peer_context_, 0, peer_group_, 0, ring_, back_};
  RingWriter raw_{ring_};
  std::deque<Message> sent_;  // do not move
  std::deque<Message> posted_;
  Status status_;
  bool honest_ = true;
  unsigned next_byte_ = 1;
};

}  // namespace

std::vector<std::string> seed_inputs() {
  using namespace std::string_literals;
  const std::string short_message = "\0\0\1\0"s;
  const std::string long_message = "\0\1\x60\3"s;
  const std::string short_receive = "\2\0\1\0"s;
  const std::string long_receive = "\2\1\x60\3"s;
  const std::string read = "\4"s;
  const std::string raw = "\6\1\xff"s + std::string(40, '\0') + "\x40\1\0\0\0\0\0\0\x20"s;
  const std::string fragment = "\6\2\xff"s + std::string(40, '\0') + "\x20\0\0\0\0\0\0\0"s;
  return {short_message + read + short_receive + long_receive + long_message + read + read,
          long_message + short_message + long_message + read + long_receive + read + long_receive +
              read + short_receive,
          raw + read + fragment + read + long_receive,
          "\7"s + std::string(16, '\x7f') + long_message};
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dlaunch::fuzz::Drive().run(dlaunch::fuzz::Input(data, size));
  return 0;
}
