// The byte stream of a peer, against FrameReceiver: reads of any length, receives posted at any
// moment. What is received is compared with a plain reading of the whole stream.
//
// Input: a byte n, n bytes of schedule (see Drive), then the stream.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "transport/tcp/frame_receiver.h"

namespace dlaunch::fuzz {
namespace {

constexpr int kWorld = 4;
constexpr std::size_t kMostPayload = 512;

using Bytes = std::vector<std::byte>;

Bytes to_bytes(std::string_view text) {
  Bytes bytes;
  bytes.reserve(text.size());
  for (const char letter : text) bytes.push_back(static_cast<std::byte>(letter));
  return bytes;
}

// Every header of the stream that can be found by reading it from its start; visit may change the
// header in place.
void for_each_frame(Bytes& stream, const auto& visit) {
  std::size_t at = 0;
  while (stream.size() - at >= kFrameHeaderBytes) {
    const std::span<std::byte, kFrameHeaderBytes> encoded(stream.data() + at, kFrameHeaderBytes);
    auto header = decode_header(encoded);
    if (!header.ok()) return;
    visit(*header, encoded, at + kFrameHeaderBytes);
    if (header->bytes > stream.size() - at - kFrameHeaderBytes) return;
    at += kFrameHeaderBytes + header->bytes;
  }
}

// A message may be as long as its header says, and memory is set aside for it (pages that are not
// written cost nothing, but a sanitizer marks them all). Here lengths stay small.
void shorten_messages(Bytes& stream) {
  for_each_frame(stream, [](FrameHeader& header, auto encoded, std::size_t) {
    if (header.kind != FrameKind::kData || header.bytes <= kMostPayload) return;
    header.bytes %= kMostPayload;
    const EncodedHeader shorter = encode_header(header);
    std::copy(shorter.begin(), shorter.end(), encoded.begin());
  });
}

using Messages = std::map<std::uint64_t, std::deque<Bytes>>;  // by sequence, in arrival order

Messages read_plainly(Bytes& stream) {
  Messages messages;
  bool ended = false;
  for_each_frame(stream, [&](const FrameHeader& header, auto, std::size_t payload) {
    if (ended || header.bytes > stream.size() - payload) return;
    ended = header.kind != FrameKind::kData;
    const MessageTag plain{.sequence = header.tag.sequence};
    if (ended || header.tag != plain) return;
    const auto begin = stream.begin() + static_cast<std::ptrdiff_t>(payload);
    messages[header.tag.sequence].emplace_back(begin,
                                               begin + static_cast<std::ptrdiff_t>(header.bytes));
  });
  return messages;
}

// Feeds the stream. A schedule byte below 128 reads as many bytes and one more; any other posts a
// receive of (byte / 4) % 32 bytes for sequence byte % 4. The schedule starts again at its end.
class Drive {
 public:
  Drive(std::string schedule, Bytes stream)
      : schedule_(std::move(schedule)), stream_(std::move(stream)), context_{.world_size = kWorld} {
    if (schedule_.empty()) schedule_ = "\x7f";
  }

  void run() {
    Status status;
    std::span<const std::byte> rest(stream_);
    for (std::size_t step = 0; status.ok() && !rest.empty() && !ended(); ++step) {
      const auto now = static_cast<std::uint8_t>(schedule_[step % schedule_.size()]);
      if (now < 128) {
        status = feed(rest, std::min<std::size_t>(now + 1U, rest.size()));
      } else if (posted_.size() < 64) {
        status = post(now % 4, now / 4 % 32);
      } else {
        status = feed(rest, 1);
      }
    }
    receiver_.fail_receives(Status(StatusCode::kAborted, "the end"));
    check();
  }

 private:
  struct Posted {
    Transfer transfer;
    Bytes data;
  };

  bool ended() const { return receiver_.goodbye() || receiver_.notice().has_value(); }

  Status feed(std::span<const std::byte>& rest, std::size_t count) {
    const std::span<std::byte> destination = receiver_.destination();
    const std::size_t direct = std::min(count, destination.size());
    if (direct > 0) std::memcpy(destination.data(), rest.data(), direct);
    // The staging buffer is used again after each read.
    const Bytes staged(rest.begin() + static_cast<std::ptrdiff_t>(direct),
                       rest.begin() + static_cast<std::ptrdiff_t>(count));
    rest = rest.subspan(count);
    return receiver_.consume(direct, staged);
  }

  Status post(std::uint64_t sequence, std::size_t bytes) {
    Posted& posted = posted_.emplace_back();
    posted.data.resize(bytes);
    posted.transfer.peer = 1;
    posted.transfer.tag.sequence = sequence;
    posted.transfer.data = posted.data.data();
    posted.transfer.bytes = bytes;
    return receiver_.post(posted.transfer);
  }

  void check() {
    require(!receiver_.has_receives(), "failed receives are gone");
    Messages expected = read_plainly(stream_);
    for (const Posted& posted : posted_) {
      require(posted.transfer.done(), "every posted receive ends");
      if (!posted.transfer.status().ok()) continue;
      auto& queue = expected[posted.transfer.tag.sequence];
      require(!queue.empty(), "no receive ends well without its message");
      require(queue.front() == posted.data, "messages arrive whole and in order");
      queue.pop_front();
    }
    if (const auto& notice = receiver_.notice()) {
      require(notice->about >= -1 && notice->about < kWorld, "a notice names a rank of the world");
      (void)notice->to_status().to_string();
    }
  }

  std::string schedule_;
  Bytes stream_;
  EndpointContext context_;
  FrameReceiver receiver_{context_, 1};
  std::deque<Posted> posted_;  // does not move
};

std::string data_frame(std::uint64_t sequence, std::size_t bytes) {
  const EncodedHeader header =
      encode_header({.kind = FrameKind::kData, .tag = {.sequence = sequence}, .bytes = bytes});
  std::string frame(reinterpret_cast<const char*>(header.data()), header.size());
  for (std::size_t i = 0; i < bytes; ++i) frame += static_cast<char>('a' + (sequence + i) % 26);
  return frame;
}

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::vector<std::string> seed_inputs() {
  const std::string schedule("\x06\x80\x81\x1f\x94\x03\x7f", 7);
  const std::string messages =
      data_frame(0, 0) + data_frame(1, 0) + data_frame(0, 5) + data_frame(2, 31);
  std::string lying = data_frame(3, 9);
  lying[kFrameHeaderBytes - 4] = '\x3f';  // a length of 63 * 2^32
  const std::string abort = text_of(encode_abort(
      {.code = StatusCode::kPeerLost, .about = 2, .reporter = 3, .text = "peer 2: reset"}));
  return {schedule + messages, schedule + messages + text_of(encode_goodbye()),
          std::string("\x01\x7f", 2) + messages + abort, schedule + lying,
          std::string("\x02\xa0\x00", 3) + data_frame(0, 8) + data_frame(0, 8) + abort};
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dlaunch::fuzz::Input input(data, size);
  const std::string schedule = input.take(input.take_byte());
  dlaunch::fuzz::Bytes stream = dlaunch::fuzz::to_bytes(input.rest());
  dlaunch::fuzz::shorten_messages(stream);
  dlaunch::fuzz::Drive(schedule, std::move(stream)).run();
  return 0;
}
