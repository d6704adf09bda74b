// What every Store does, tested over each of them.
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/token.h"
#include "runtime/rendezvous/memory_store.h"
#include "runtime/rendezvous/store_server.h"
#include "runtime/rendezvous/tcp_store.h"

namespace dlaunch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}
Deadline at_once() {
  return Deadline::after(std::chrono::seconds(0));
}

// A store and further clients of the same one.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::shared_ptr<Store> client() = 0;
};

class MemoryPlace : public Place {
 public:
  std::shared_ptr<Store> client() override { return store_; }

 private:
  std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
};

class TcpPlace : public Place {
 public:
  std::shared_ptr<Store> client() override {
    return TcpStore::connect("127.0.0.1:" + std::to_string(server_->port()), token_, soon())
        .value_or_throw();
  }

 private:
  std::string token_ = make_token();
  std::unique_ptr<StoreServer> server_ = StoreServer::start({.token = token_}).value_or_throw();
};

struct Kind {
  const char* name;
  std::unique_ptr<Place> (*make)();
};

class StoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Place> place_ = GetParam().make();
  std::shared_ptr<Store> store_ = place_->client();
};

TEST_P(StoreContract, GivesBackWhatWasSet) {
  const std::string binary("a\0b\xff", 4);
  ASSERT_TRUE(store_->set("key", binary).ok());
  ASSERT_TRUE(store_->set("empty", "").ok());
  EXPECT_EQ(*store_->get("key", at_once()), binary);
  EXPECT_EQ(*store_->get("empty", at_once()), "");
  ASSERT_TRUE(store_->set("key", "new").ok());
  EXPECT_THAT(*store_->get_all({"key", "empty", "key"}, at_once()), ElementsAre("new", "", "new"));
  EXPECT_THAT(*store_->get_all({}, at_once()), ElementsAre());
}

TEST_P(StoreContract, NamesTheKeysThatAreMissingAtTheDeadline) {
  ASSERT_TRUE(store_->set("there", "x").ok());
  const auto result = store_->get_all({"there", "rank 1", "rank 2"},
                                      Deadline::after(std::chrono::milliseconds(20)));
  EXPECT_EQ(result.status().code(), StatusCode::kTimeout);
  EXPECT_EQ(result.status().to_string(), "store: no value for 'rank 1', 'rank 2'");
  std::vector<std::string> many;
  for (int i = 0; i < 100; ++i) many.push_back("k" + std::to_string(i));
  EXPECT_THAT(store_->get_all(many, at_once()).status().to_string(), HasSubstr("and 92 more keys"));
}

TEST_P(StoreContract, WaitsUntilOthersHaveSetTheKeys) {
  std::thread other([client = place_->client()] {
    for (const char* key : {"c", "a", "b"}) ASSERT_TRUE(client->set(key, key).ok());
  });
  EXPECT_THAT(*store_->get_all({"a", "b", "c"}, soon()), ElementsAre("a", "b", "c"));
  other.join();
}

TEST_P(StoreContract, LetsOtherThreadsOfOneClientWorkWhileOneWaits) {
  std::thread waiting([&] { EXPECT_EQ(*store_->get("answer", soon()), "42"); });
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(store_->add("counter", 1).ok());
    ASSERT_TRUE(store_->set("answer", "42").ok());
  });
  other.join();
  waiting.join();
}

TEST_P(StoreContract, AddsToCounters) {
  EXPECT_EQ(*store_->add("counter", 5), 5);
  EXPECT_EQ(*store_->add("counter", -7), -2);
  EXPECT_EQ(*store_->add("counter", 0), -2);
  EXPECT_EQ(*store_->get("counter", at_once()), "-2");
  ASSERT_TRUE(store_->set("set", "41").ok());
  EXPECT_EQ(*store_->add("set", 1), 42);
  ASSERT_TRUE(store_->set("word", "x1").ok());
  EXPECT_EQ(store_->add("word", 1).status().code(), StatusCode::kInvalidArgument);
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(*store_->add("big", kMost), kMost);
  EXPECT_EQ(store_->add("big", 1).status().code(), StatusCode::kInvalidArgument);
}

TEST_P(StoreContract, CountsEveryAddOfManyClients) {
  constexpr int kClients = 8;
  constexpr int kAdds = 100;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([client = place_->client()] {
      for (int k = 0; k < kAdds; ++k) ASSERT_TRUE(client->add("n", 1).ok());
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(*store_->add("n", 0), kClients * kAdds);
}

TEST_P(StoreContract, AnAddWakesThoseThatWaitForItsKey) {
  std::thread other([client = place_->client()] { ASSERT_TRUE(client->add("n", 3).ok()); });
  EXPECT_EQ(*store_->get("n", soon()), "3");
  other.join();
}

TEST_P(StoreContract, RemovesKeys) {
  ASSERT_TRUE(store_->set("key", "x").ok());
  EXPECT_TRUE(*store_->remove("key"));
  EXPECT_FALSE(*store_->remove("key"));
  EXPECT_EQ(store_->get("key", at_once()).status().code(), StatusCode::kTimeout);
}

TEST_P(StoreContract, RefusesKeysAndValuesOutOfBounds) {
  const std::string long_key(1025, 'k');
  EXPECT_EQ(store_->set("", "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->set(long_key, "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->add(long_key, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->remove("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->get(long_key, at_once()).status().code(), StatusCode::kInvalidArgument);
  const std::string value((16 << 20) + 1, 'v');
  EXPECT_EQ(store_->set("key", value).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(store_->set("key", std::string_view(value).substr(1)).ok());  // 16 MiB are allowed
  EXPECT_EQ(store_->get("key", soon())->size(), value.size() - 1);
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreContract,
    ::testing::Values(Kind{"Memory", [] { return std::unique_ptr<Place>(new MemoryPlace); }},
                      Kind{"Tcp", [] { return std::unique_ptr<Place>(new TcpPlace); }}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace dlaunch
