#include "transport/tcp/frame.h"

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/fabric.h"

namespace dlaunch {
namespace {

using ::testing::HasSubstr;

FrameHeader random_header(std::mt19937_64& generator) {
  FrameHeader header;
  header.tag = {.sequence = generator(),
                .context = static_cast<std::uint32_t>(generator()),
                .step = static_cast<std::uint32_t>(generator())};
  header.signature = {.count = generator(),
                      .root = static_cast<std::int32_t>(generator() % 1000) - 1,
                      .operation = static_cast<std::uint8_t>(generator()),
                      .dtype = static_cast<std::uint8_t>(generator()),
                      .reduce_op = static_cast<std::uint8_t>(generator()),
                      .algorithm = static_cast<std::uint8_t>(generator()),
                      .extra = generator()};
  header.bytes = generator() % (kMaxMessageBytes + 1);
  return header;
}

TEST(FrameHeader, SurvivesTheWire) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 generator(seed);
  for (int turn = 0; turn < 1000; ++turn) {
    const FrameHeader header = random_header(generator);
    const Result<FrameHeader> decoded = decode_header(encode_header(header));
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(*decoded, header);
  }
}

TEST(FrameHeader, IsLittleEndianOnEveryMachine) {
  const EncodedHeader encoded = encode_header(
      {.tag = {.sequence = 0x0102030405060708U, .context = 0x11121314U, .step = 0x21222324U},
       .signature = {.count = 0x3132333435363738U,
                     .root = 0x41424344,
                     .operation = 0x51,
                     .dtype = 0x52,
                     .reduce_op = 0x53,
                     .algorithm = 0x54,
                     .extra = 0x6162636465666768U},
       .bytes = 0x0172737475U});
  const unsigned char expected[kFrameHeaderBytes] = {
      'D',  'L',  'F',  '1',  1,    1,    0,    0,    8,    7,    6,    5,    4,    3,
      2,    1,    0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35,
      0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41, 0x51, 0x52, 0x53, 0x54, 0x68, 0x67,
      0x66, 0x65, 0x64, 0x63, 0x62, 0x61, 0x75, 0x74, 0x73, 0x72, 0x01, 0,    0,    0};
  EXPECT_EQ(std::memcmp(encoded.data(), expected, sizeof(expected)), 0);
}

// Changes one field of a good header and returns what decoding says.
Status with_byte(std::size_t at, int value, FrameKind kind = FrameKind::kData) {
  EncodedHeader encoded = encode_header({.kind = kind});
  encoded[at] = static_cast<std::byte>(value);
  return decode_header(encoded).status();
}

TEST(FrameHeader, RefusesEveryFieldOutOfRange) {
  for (std::size_t at = 0; at < 8; ++at) {
    for (int value = 0; value < 256; ++value) {
      const EncodedHeader good = encode_header({});
      if (static_cast<std::byte>(value) == good[at]) continue;
      if (at == 5 && value == 2) continue;  // a goodbye is fine too
      EXPECT_EQ(with_byte(at, value).code(), StatusCode::kProtocol) << at << " " << value;
    }
  }
  EXPECT_THAT(with_byte(4, 9).to_string(), HasSubstr("version 9"));
  EXPECT_THAT(with_byte(5, 77).to_string(), HasSubstr("kind 77"));
  EXPECT_EQ(with_byte(35, 0x80).code(), StatusCode::kProtocol);  // a root below -1
  EXPECT_EQ(with_byte(55, 1).code(), StatusCode::kProtocol);     // an absurd length
  EXPECT_EQ(with_byte(48, 1, FrameKind::kGoodbye).code(), StatusCode::kProtocol);
  EXPECT_EQ(with_byte(5, 3).code(), StatusCode::kProtocol);  // an abort without a reason
  for (std::size_t at = 8; at < 48; ++at) {
    EXPECT_EQ(with_byte(at, 0x55, FrameKind::kGoodbye).code(), StatusCode::kProtocol) << at;
  }
}

TEST(FrameHeader, RefusesAbsurdLengths) {
  FrameHeader header;
  header.bytes = kMaxMessageBytes;
  EXPECT_TRUE(decode_header(encode_header(header)).ok());
  header.bytes = kMaxMessageBytes + 1;
  EXPECT_FALSE(decode_header(encode_header(header)).ok());
}

TEST(FrameHeader, AcceptsOnlyWhatEncodingProduces) {
  const std::uint64_t seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 generator(seed);
  for (int turn = 0; turn < 20000; ++turn) {
    EncodedHeader garbled = encode_header(random_header(generator));
    for (int i = 0; i < 3; ++i) {
      garbled[generator() % garbled.size()] ^= static_cast<std::byte>(1U << generator() % 8);
    }
    const Result<FrameHeader> decoded = decode_header(garbled);
    if (decoded.ok()) {
      EXPECT_EQ(encode_header(*decoded), garbled);
    }
  }
}

TEST(FailureNotice, SurvivesTheWire) {
  const FailureNotice notice{
      .code = StatusCode::kPeerLost, .about = 3, .reporter = 1, .text = "peer 3: gone"};
  const std::vector<std::byte> frame = encode_abort(notice);
  const auto header = decode_header(std::span(frame).first<kFrameHeaderBytes>());
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->kind, FrameKind::kAbort);
  EXPECT_EQ(header->bytes, frame.size() - kFrameHeaderBytes);
  const auto decoded = decode_notice(std::span(frame).subspan(kFrameHeaderBytes), 4);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->code, notice.code);
  EXPECT_EQ(decoded->about, 3);
  EXPECT_EQ(decoded->reporter, 1);
  EXPECT_EQ(decoded->text, notice.text);
  EXPECT_FALSE(decode_notice(std::span(frame).subspan(kFrameHeaderBytes), 3).ok());
}

TEST(FailureNotice, RefusesTruncatedAndImpossibleOnes) {
  const std::vector<std::byte> frame =
      encode_abort({.code = StatusCode::kIo, .about = -1, .reporter = 0, .text = "x"});
  const std::span payload = std::span(frame).subspan(kFrameHeaderBytes);
  for (std::size_t kept = 0; kept < 12; ++kept) {
    EXPECT_EQ(decode_notice(payload.first(kept), 2).status().code(), StatusCode::kProtocol);
  }
  std::vector<std::byte> bad(payload.begin(), payload.end());
  bad[0] = std::byte{0};
  EXPECT_FALSE(decode_notice(bad, 2).ok());  // "ok" is no failure
  bad[0] = std::byte{200};
  EXPECT_FALSE(decode_notice(bad, 2).ok());
}

TEST(FailureNotice, CutsLongTextsAndDropsControlCharacters) {
  const std::vector<std::byte> frame = encode_abort({.code = StatusCode::kIo,
                                                     .about = -1,
                                                     .reporter = 0,
                                                     .text = "\x1b[31m" + std::string(10000, 'a')});
  EXPECT_TRUE(decode_header(std::span(frame).first<kFrameHeaderBytes>()).ok());
  const auto notice = decode_notice(std::span(frame).subspan(kFrameHeaderBytes), 1);
  ASSERT_TRUE(notice.ok());
  EXPECT_EQ(notice->text.size(), kMaxNoticeText);
  EXPECT_EQ(notice->text.substr(0, 6), " [31ma");
}

TEST(FailureNotice, SaysOnceWhoItIsAboutAndWhoReportsIt) {
  const Status direct = Status::about_peer(StatusCode::kPeerLost, 3, "connection reset");
  EXPECT_EQ(FailureNotice::from(direct, 1).to_status().to_string(),
            "peer 3: connection reset (reported by rank 1)");
  const Status deep = direct.within("step 2").within("all_reduce #4");
  EXPECT_EQ(FailureNotice::from(deep, 1).to_status().to_string(),
            "all_reduce #4: step 2: peer 3: connection reset (reported by rank 1)");
  EXPECT_EQ(FailureNotice::from(deep, 1).to_status().peer(), 3);
  EXPECT_EQ(FailureNotice::from(Status(StatusCode::kIo, "disk full"), 0).to_status().peer(),
            std::nullopt);
  // Told once more by a rank that has heard it.
  const Status heard = FailureNotice::from(deep, 1).to_status();
  EXPECT_EQ(FailureNotice::from(heard, 0).to_status().to_string(), heard.to_string());
  EXPECT_EQ(FailureNotice::from(heard, 0).to_status().peer(), 3);
  const Status alike(StatusCode::kIo, "no job (reported by rank x)");
  EXPECT_EQ(FailureNotice::from(alike, 2).to_status().to_string(),
            "no job (reported by rank x) (reported by rank 2)");
}

// As it is told by a rank whose other lane met with the failure first.
TEST(FailureNotice, KeepsEveryContextFindable) {
  const Status lost = Status::about_peer(StatusCode::kPeerLeft, 3, "has left");
  const Status nobodys(StatusCode::kTimeout, "timed out: 5 s");
  for (const auto& [cause, told] :
       {std::pair(lost, "peer 3: has left"), std::pair(nobodys, "timed out: 5 s")}) {
    const Status heard =
        FailureNotice::from(cause.within("step 0").within("barrier #3").within("all_reduce #1"), 2)
            .to_status();
    EXPECT_EQ(heard.to_string(),
              std::string("all_reduce #1: barrier #3: step 0: ") + told + " (reported by rank 2)");
    EXPECT_EQ(heard.within("step 5").within_once("barrier #3").to_string(),
              std::string("barrier #3: step 0: ") + told + " (reported by rank 2)");
    EXPECT_EQ(heard.peer(), cause.peer());
    EXPECT_EQ(heard.code(), cause.code());
  }
}

}  // namespace
}  // namespace dlaunch
