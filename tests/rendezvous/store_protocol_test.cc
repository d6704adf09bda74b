#include "runtime/rendezvous/store_protocol.h"

#include <optional>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/rendezvous/missing_keys.h"

namespace dlaunch::store_protocol {
namespace {

using ::testing::HasSubstr;

Message sample() {
  return {.code = 2,
          .id = 0x0102030405060708,
          .number = -5,
          .parts = {"", "key", std::string(3, '\0')}};
}

TEST(StoreProtocol, WritesTheDocumentedBytes) {
  std::string frame;
  append_frame(frame, {.code = 3, .id = 258, .number = -2, .parts = {"ab"}});
  const std::string expected(
      "\x1b\0\0\0"
      "\x03"
      "\x02\x01\0\0\0\0\0\0"
      "\xfe\xff\xff\xff\xff\xff\xff\xff"
      "\x01\0\0\0"
      "\x02\0\0\0"
      "ab",
      31);
  EXPECT_EQ(frame, expected);
}

TEST(StoreProtocol, ReadsWhatItWrites) {
  std::string frame;
  append_frame(frame, sample());
  EXPECT_EQ(frame.size(), 4 + body_bytes(sample()));
  const auto message = decode_body(std::string_view(frame).substr(4));
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(*message, sample());
}

TEST(StoreProtocol, RefusesEveryCutAndEveryExtraByte) {
  std::string frame;
  append_frame(frame, sample());
  const std::string body = frame.substr(4);
  for (std::size_t length = 0; length < body.size(); ++length) {
    EXPECT_EQ(decode_body(std::string_view(body).substr(0, length)).status().code(),
              StatusCode::kProtocol)
        << length;
  }
  EXPECT_EQ(decode_body(body + "x").status().code(), StatusCode::kProtocol);
}

TEST(StoreProtocol, SurvivesRandomBytes) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::string body(random() % 64, '\0');
    for (char& byte : body) byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 3);
    const auto message = decode_body(body);
    if (!message.ok()) continue;
    std::string again;
    append_frame(again, *message);
    EXPECT_EQ(again.substr(4), body);  // whatever is accepted has one spelling
    (void)check_request(*message).ok();
  }
}

TEST(StoreProtocol, RefusesACountOfPartsThatTheBytesCannotHold) {
  std::string frame;
  append_frame(frame, {.code = 1});
  std::string body = frame.substr(4);
  body.replace(body.size() - 4, 4, "\xff\xff\xff\xff");
  EXPECT_EQ(decode_body(body).status().code(), StatusCode::kProtocol);
}

TEST(StoreProtocol, ChecksWhatARequestAsksFor) {
  const auto refused = [](Message message) {
    const Status status = check_request(message);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.to_string();
  };
  const std::string long_key(kMostKeyBytes + 1, 'k');
  EXPECT_THAT(refused({.code = 99}), HasSubstr("unknown operation 99"));
  EXPECT_THAT(refused({.code = 0}), HasSubstr("unknown operation 0"));
  EXPECT_THAT(refused({.code = 1, .parts = {"key"}}), HasSubstr("1 parts"));
  EXPECT_THAT(refused({.code = 1, .parts = {"", "value"}}), HasSubstr("1 to 1024 bytes"));
  EXPECT_THAT(refused({.code = 1, .parts = {"k", std::string(kMostValueBytes + 1, 'v')}}),
              HasSubstr("16777217"));
  EXPECT_THAT(refused({.code = 2, .number = -1, .parts = {"key"}}), HasSubstr("negative"));
  EXPECT_THAT(refused({.code = 2, .parts = {"key", long_key}}), HasSubstr("1025"));
  EXPECT_THAT(refused({.code = 3, .parts = {}}), HasSubstr("0 parts"));
  EXPECT_THAT(refused({.code = 4, .parts = {"a", "b"}}), HasSubstr("2 parts"));
  EXPECT_TRUE(check_request({.code = 1, .parts = {std::string(kMostKeyBytes, 'k'), ""}}).ok());
  EXPECT_THAT(refused({.code = 5, .parts = {"k", "new", "old"}}), HasSubstr("3 parts"));
  EXPECT_THAT(refused({.code = 5, .number = 1, .parts = {"k", "new"}}), HasSubstr("2 parts"));
  EXPECT_THAT(refused({.code = 5, .number = 2, .parts = {"k", "new"}}), HasSubstr("neither"));
  EXPECT_THAT(refused({.code = 6, .parts = {"k"}}), HasSubstr("1 parts"));
  EXPECT_THAT(refused({.code = 7, .parts = {""}}), HasSubstr("1 to 1024 bytes"));
  EXPECT_THAT(refused({.code = 8, .number = 1, .parts = {long_key, ""}}), HasSubstr("1025"));
  EXPECT_THAT(refused({.code = 8, .parts = {"", ""}}), HasSubstr("no entries"));
  EXPECT_THAT(refused({.code = 9, .parts = {"", "1x"}}), HasSubstr("without a revision"));
  EXPECT_THAT(refused({.code = 9, .number = -1, .parts = {"", "1"}}), HasSubstr("negative"));
  EXPECT_THAT(refused({.code = 11, .parts = {"x"}}), HasSubstr("1 parts"));
}

TEST(StoreProtocol, ReadsTheResponsesItWrites) {
  const std::vector<std::optional<std::string>> values{"a", std::nullopt, ""};
  EXPECT_EQ(*read_try_get(try_get_response(1, values), 3), values);
  const std::vector<StoreEntry> entries{{"a", 3, 7}, {"b", 0, 18446744073709551615U}};
  EXPECT_EQ(*read_list(list_response(1, entries, true)), entries);
  const StoreChanges changes{.revision = 9, .changes = {{"a", "x"}, {"b", std::nullopt}}};
  const auto read = read_watch(watch_response(1, changes));
  EXPECT_EQ(read->revision, 9U);
  EXPECT_EQ(read->changes, changes.changes);
}

TEST(StoreProtocol, RefusesResponsesThatNoServerSends) {
  const auto code = [](const auto& result) { return result.status().code(); };
  constexpr auto kWrong = StatusCode::kProtocol;
  EXPECT_EQ(code(read_try_get({}, 0)), kWrong);
  EXPECT_EQ(code(read_try_get({.parts = {"1"}}, 1)), kWrong);
  EXPECT_EQ(code(read_try_get({.parts = {"01", "x"}}, 1)), kWrong);
  EXPECT_EQ(code(read_try_get({.parts = {"2", "x"}}, 1)), kWrong);
  EXPECT_EQ(code(read_list({.parts = {"key"}})), kWrong);
  for (const char* numbers : {"", "1", "1 ", " 1", "1 2 ", "x 1", "-1 2"}) {
    EXPECT_EQ(code(read_list({.parts = {"key", numbers}})), kWrong) << numbers;
  }
  EXPECT_EQ(code(read_watch({})), kWrong);
  EXPECT_EQ(code(read_watch({.parts = {"1", "key"}})), kWrong);
  EXPECT_EQ(code(read_watch({.parts = {"0", "key", "value"}})), kWrong);
}

TEST(MissingKeys, AreNamedTogetherWhereTheyDifferInANumberOnly) {
  EXPECT_EQ(describe_missing({"a"}), "no value for 'a'");
  EXPECT_EQ(describe_missing({"r 1", "r 2", "s", "r 3"}), "no value for 'r 1', 'r 2', 's', 'r 3'");
  EXPECT_EQ(describe_missing({"r/0", "r/1", "r/2", "r/4", "r/6", "r/7", "end", "007", "5"}),
            "no value for 'r/{0-2,4,6,7}' (6 keys), 'end', '007', '5'");
  std::vector<std::string> many;
  for (int i = 0; i < 20; ++i) many.push_back("k" + std::to_string(i) + "x");
  EXPECT_THAT(describe_missing(many), HasSubstr("'k7x' and 12 more keys"));
  many.clear();
  for (int i = 0; i < 200; i += 2) many.push_back("k" + std::to_string(i));
  EXPECT_THAT(describe_missing(many), HasSubstr("60,62,...}' (100 keys)"));
}

TEST(StoreProtocol, CarriesErrorsWithTheirText) {
  const Status error(StatusCode::kTimeout, "no value for 'a'");
  const Status received = response_status(error_response(7, error));
  EXPECT_EQ(received.code(), StatusCode::kTimeout);
  EXPECT_EQ(received.to_string(), "no value for 'a'");
  EXPECT_TRUE(response_status({.id = 7}).ok());
  EXPECT_EQ(response_status({.code = 200, .parts = {"x"}}).code(), StatusCode::kProtocol);
}

TEST(FrameBuffer, FindsFramesHoweverTheyAreTorn) {
  std::string stream;
  for (int i = 0; i < 20; ++i)
    append_frame(stream, {.id = static_cast<std::uint64_t>(i), .parts = {"p"}});
  for (const std::size_t piece : {1U, 3U, 17U, 1000U}) {
    FrameBuffer buffer(1000);
    std::uint64_t next = 0;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      buffer.append(std::string_view(stream).substr(at, piece));
      while (true) {
        const auto body = buffer.next();
        ASSERT_TRUE(body.ok());
        if (!*body) break;
        const auto message = decode_body(**body);
        ASSERT_TRUE(message.ok());
        EXPECT_EQ(message->id, next++);
      }
    }
    EXPECT_EQ(next, 20U);
  }
}

TEST(FrameBuffer, RefusesAFrameAboveTheLimitBeforeItHasCome) {
  FrameBuffer buffer(100);
  buffer.append(std::string_view("\x65\0\0\0", 4));
  EXPECT_EQ(buffer.next().status().code(), StatusCode::kProtocol);
}

}  // namespace
}  // namespace dlaunch::store_protocol
