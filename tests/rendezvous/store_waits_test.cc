// Requests that wait for keys, without sockets.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <asio/io_context.hpp>

#include "runtime/base/status.h"
#include "runtime/rendezvous/store_protocol.h"
#include "runtime/rendezvous/store_waits.h"

namespace dlaunch {
namespace {

using store_protocol::Message;
using store_protocol::Operation;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

class StoreWaitsTest : public ::testing::Test {
 protected:
  static Message request(Operation operation, std::vector<std::string> parts) {
    const std::int64_t microseconds = std::chrono::microseconds(std::chrono::hours(1)).count();
    return {.code = static_cast<std::uint8_t>(operation),
            .id = 1,
            .number = operation == Operation::kGetAll ? microseconds : 0,
            .parts = std::move(parts)};
  }
  void set(const std::string& key, const std::string& value) {
    waits_.handle(request(Operation::kSet, {key, value}), this, [](const Message&) {});
  }
  void remove(const std::string& key) {
    waits_.handle(request(Operation::kRemove, {key}), this, [](const Message&) {});
  }

  asio::io_context context_;
  StoreWaits waits_{context_};
};

TEST_F(StoreWaitsTest, WaitAgainForAKeyThatWentBeforeTheLastOneCame) {
  std::optional<Message> answer;
  waits_.handle(request(Operation::kGetAll, {"a", "b", "c"}), this,
                [&](const Message& response) { answer = response; });
  set("a", "old");
  set("b", "2");
  remove("a");
  set("c", "3");
  EXPECT_FALSE(answer);
  EXPECT_EQ(waits_.waiting(), 1U);
  set("a", "1");
  ASSERT_TRUE(answer);
  EXPECT_THAT(answer->parts, ElementsAre("1", "2", "3"));
  EXPECT_EQ(waits_.waiting(), 0U);
}

TEST_F(StoreWaitsTest, AnswerEverybodyWhoWaitsForTheSameKeyWithHisOwn) {
  std::vector<std::pair<std::uint64_t, std::vector<std::string>>> answers;
  std::uint64_t id = 0;
  for (const auto& keys : std::vector<std::vector<std::string>>{
           {"last", "a"}, {"last", "a"}, {"last", "b"}, {"last"}, {"last", "a"}}) {
    Message asked = request(Operation::kGetAll, keys);
    asked.id = ++id;
    waits_.handle(std::move(asked), this, [&](const Message& response) {
      answers.emplace_back(response.id, response.parts);
    });
  }
  set("a", "1");
  set("b", "2");
  set("last", "3");
  using Parts = std::vector<std::string>;
  EXPECT_THAT(answers, ElementsAre(Pair(1U, Parts{"3", "1"}), Pair(2U, Parts{"3", "1"}),
                                   Pair(3U, Parts{"3", "2"}), Pair(4U, Parts{"3"}),
                                   Pair(5U, Parts{"3", "1"})));
}

TEST_F(StoreWaitsTest, AreKeptForOneClientUpToALimitThatIsNoOthers) {
  std::vector<Message> answers;
  const auto wait_for_ever = [&](const void* owner) {
    waits_.handle(request(Operation::kGetAll, {"never"}), owner,
                  [&](const Message& response) { answers.push_back(response); });
  };
  for (std::size_t i = 0; i < store_protocol::kMostWaits; ++i) wait_for_ever(this);
  EXPECT_THAT(answers, IsEmpty());
  wait_for_ever(this);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_EQ(store_protocol::response_status(answers[0]).code(), StatusCode::kUnavailable);
  const char other = 0;
  wait_for_ever(&other);
  EXPECT_THAT(answers, SizeIs(1));
  EXPECT_EQ(waits_.waiting(), store_protocol::kMostWaits + 1);
}

TEST_F(StoreWaitsTest, DoNotCountAgainstTheLimitOfTheirBytesWhenTheyHaveEnded) {
  // Of a client with nothing left to wait for nothing is known any more.
  waits_.handle(request(Operation::kWatch, {"never", "0"}), this, [](const Message&) {});
  const std::vector<std::string> keys(16'000, std::string(1000, 'k'));
  for (int i = 0; i < 8; ++i) {
    std::optional<Message> answer;
    waits_.handle(request(Operation::kGetAll, keys), this,
                  [&](const Message& response) { answer = response; });
    ASSERT_FALSE(answer) << i << ": " << store_protocol::response_status(*answer).to_string();
    set(keys[0], "");
    ASSERT_TRUE(answer);
    EXPECT_THAT(answer->parts, SizeIs(keys.size()));
    remove(keys[0]);
  }
}

std::chrono::nanoseconds cpu_time() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// Each key is what all wait for in its turn. If every wait looked at all of its keys each time,
// that would take many times as long as for keys that come the other way round, where all wait for
// the last one to come. Each asks for a key of its own too, or one look would do for all.
TEST_F(StoreWaitsTest, OfManyClientsTakeAboutAsLongInWhateverOrderTheKeysCome) {
  constexpr std::size_t kRanks = 300;
  std::vector<char> owners(kRanks);
  const auto time_of = [&](const std::string& prefix, bool in_order) {
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < kRanks; ++i) keys.push_back(prefix + std::to_string(i));
    std::vector<std::vector<std::string>> asked(kRanks, keys);
    for (std::size_t i = 0; i < kRanks; ++i) {
      asked[i].push_back(prefix + "own " + std::to_string(i));
      set(asked[i].back(), asked[i].back());
    }
    std::size_t answered = 0;
    const auto before = cpu_time();
    for (std::size_t i = 0; i < kRanks; ++i) {
      waits_.handle(request(Operation::kGetAll, asked[i]), &owners[i],
                    [&, i](const Message& response) {
                      if (response.parts == asked[i]) ++answered;
                    });
    }
    for (std::size_t i = 0; i < kRanks; ++i) {
      EXPECT_EQ(answered, 0U);
      const std::string& key = keys[in_order ? i : kRanks - 1 - i];
      set(key, key);
    }
    EXPECT_EQ(answered, kRanks);
    return cpu_time() - before;
  };
  // The least of several, for a processor that is shared has slow moments.
  auto reversed = std::chrono::nanoseconds::max();
  auto in_order = std::chrono::nanoseconds::max();
  for (int turn = 0; turn < 3; ++turn) {
    const std::string prefix = "attempt " + std::to_string(turn) + "/world/";
    reversed = std::min(reversed, time_of(prefix + "1/", false));
    in_order = std::min(in_order, time_of(prefix + "2/", true));
  }
  EXPECT_LT(in_order, 6 * reversed);
}

}  // namespace
}  // namespace dlaunch
