#include "transport/tcp/frame_receiver.h"

#include <algorithm>
#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/fabric.h"

namespace dlaunch {
namespace {

std::vector<std::byte> data_frame(MessageTag tag, const std::vector<std::byte>& payload) {
  const EncodedHeader header =
      encode_header({.kind = FrameKind::kData, .tag = tag, .bytes = payload.size()});
  std::vector<std::byte> frame(header.begin(), header.end());
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

// Feeds a stream as a socket would that returns reads of random lengths.
Status feed(FrameReceiver& receiver, std::span<const std::byte> stream,
            std::mt19937_64& generator) {
  while (!stream.empty()) {
    const std::span<std::byte> destination = receiver.destination();
    const std::size_t read = std::min<std::size_t>(1 + generator() % 200, stream.size());
    const std::size_t direct = std::min(read, destination.size());
    if (direct > 0) std::memcpy(destination.data(), stream.data(), direct);
    // The staging buffer is reused after each call, so it is gone then.
    const std::vector<std::byte> staged(stream.begin() + static_cast<std::ptrdiff_t>(direct),
                                        stream.begin() + static_cast<std::ptrdiff_t>(read));
    DLAUNCH_RETURN_IF_ERROR(receiver.consume(direct, staged));
    stream = stream.subspan(read);
  }
  return Status();
}

// Whether any header in the stream has a bit set in the upper half of its length.
bool asks_for_gigabytes(std::span<const std::byte> stream) {
  while (stream.size() >= kFrameHeaderBytes) {
    const auto header = decode_header(stream.first<kFrameHeaderBytes>());
    if (!header.ok()) return false;
    if (header->bytes > stream.size()) return header->bytes >> 30 != 0;
    stream =
        stream.subspan(kFrameHeaderBytes +
                       std::min<std::size_t>(header->bytes, stream.size() - kFrameHeaderBytes));
  }
  return false;
}

TEST(FrameReceiver, PutsMessagesTogetherFromReadsOfAnyLength) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 generator(seed);
  for (int turn = 0; turn < 100; ++turn) {
    EndpointContext context{.world_size = 2};
    FrameReceiver receiver(context, 1);
    constexpr std::size_t kMessages = 30;
    std::vector<std::vector<std::byte>> in(kMessages);
    std::vector<Transfer> transfers(kMessages);
    std::vector<std::byte> stream;
    for (std::size_t i = 0; i < kMessages; ++i) {
      const auto payload = random_bytes((i * 37) % 401, seed + i);
      const auto frame = data_frame({.sequence = i}, payload);
      stream.insert(stream.end(), frame.begin(), frame.end());
      in[i].resize(payload.size());
      transfers[i] = make_transfer(1, {.sequence = i}, in[i]);
    }
    // Receives are posted at random moments of the stream.
    std::vector<std::size_t> order(kMessages);
    for (std::size_t i = 0; i < kMessages; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), generator);
    std::span<const std::byte> rest(stream);
    for (const std::size_t i : order) {
      const std::size_t part = std::min<std::size_t>(generator() % 600, rest.size());
      ASSERT_TRUE(feed(receiver, rest.first(part), generator).ok());
      rest = rest.subspan(part);
      ASSERT_TRUE(receiver.post(transfers[i]).ok());
    }
    ASSERT_TRUE(feed(receiver, rest, generator).ok());
    EXPECT_TRUE(receiver.at_boundary());
    EXPECT_FALSE(receiver.has_receives());
    for (std::size_t i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(transfers[i].done()) << "message " << i;
      EXPECT_TRUE(transfers[i].status().ok());
      EXPECT_EQ(in[i], random_bytes((i * 37) % 401, seed + i));
    }
  }
}

TEST(FrameReceiver, KnowsWhereAStreamWasCutOff) {
  std::mt19937_64 generator(1);
  const auto frame = data_frame({.sequence = 1}, random_bytes(20, 1));
  for (std::size_t kept = 0; kept <= frame.size(); ++kept) {
    EndpointContext context{.world_size = 2};
    FrameReceiver receiver(context, 1);
    ASSERT_TRUE(feed(receiver, std::span(frame).first(kept), generator).ok());
    EXPECT_EQ(receiver.at_boundary(), kept == 0 || kept == frame.size()) << kept;
  }
}

TEST(FrameReceiver, RefusesBytesAfterTheLastFrame) {
  EndpointContext context{.world_size = 2};
  FrameReceiver receiver(context, 1);
  std::vector<std::byte> stream = encode_goodbye();
  EXPECT_TRUE(receiver.consume(0, stream).ok());
  EXPECT_TRUE(receiver.goodbye());
  EXPECT_EQ(receiver.consume(0, std::vector<std::byte>(1)).code(), StatusCode::kProtocol);
}

TEST(FrameReceiver, SurvivesGarbage) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 generator(seed);
  for (int turn = 0; turn < 2000; ++turn) {
    EndpointContext context{.world_size = 2};
    FrameReceiver receiver(context, 1);
    std::vector<std::byte> stream;
    for (int frames = 0; frames < 4; ++frames) {
      auto frame = frames == 3 ? encode_abort({.reporter = 1, .text = "why"})
                               : data_frame({.sequence = generator() % 3},
                                            random_bytes(generator() % 90, generator()));
      stream.insert(stream.end(), frame.begin(), frame.end());
    }
    stream[generator() % stream.size()] ^= static_cast<std::byte>(1U << generator() % 8);
    // Whatever comes of it, memory stays intact. A length that was garbled into gigabytes is not
    // tried: it is a valid one.
    if (!asks_for_gigabytes(stream)) (void)feed(receiver, stream, generator);
  }
}

}  // namespace
}  // namespace dlaunch
