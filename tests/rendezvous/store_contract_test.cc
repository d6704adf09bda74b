// What every Store does, tested over each of them.
#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/token.h"
#include "runtime/rendezvous/memory_store.h"
#include "runtime/rendezvous/store_batch.h"
#include "runtime/rendezvous/store_server.h"
#include "runtime/rendezvous/tcp_store.h"
#include "tests/support/soon.h"

namespace dlaunch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::soon;

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
  explicit TcpPlace(std::string prefix = "") : prefix_(std::move(prefix)) {}
  std::shared_ptr<Store> client() override {
    return TcpStore::connect("127.0.0.1:" + std::to_string(server_->port()), token_, soon(),
                             prefix_)
        .value_or_throw();
  }

 private:
  std::string prefix_;
  std::string token_ = make_token();
  std::unique_ptr<StoreServer> server_ = StoreServer::start({.token = token_}).value_or_throw();
};

struct Kind {
  const char* name;
  std::unique_ptr<Place> (*make)();
};

class StoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  /// Sets keys, without a round trip for each where that is possible.
  Status set_all(const std::vector<std::string>& keys) {
    auto* const tcp = dynamic_cast<TcpStore*>(store_.get());
    StoreBatch batch;
    for (const std::string& key : keys) {
      if (tcp == nullptr) {
        DLAUNCH_RETURN_IF_ERROR(store_->set(key, ""));
        continue;
      }
      batch.set(key, "");
      if (batch.size() < 500 && &key != &keys.back()) continue;
      if (auto done = tcp->run(batch, soon()); !done.ok()) return done.status();
      batch.clear();
    }
    return {};
  }
  /// Sets and removes a key again and again, the same way.
  Status set_and_remove(const std::string& key, int times) {
    auto* const tcp = dynamic_cast<TcpStore*>(store_.get());
    StoreBatch batch;
    for (int i = 0; i < times; ++i) {
      if (tcp != nullptr) {
        batch.set(key, "");
        batch.remove(key);
        continue;
      }
      DLAUNCH_RETURN_IF_ERROR(store_->set(key, ""));
      DLAUNCH_RETURN_IF_ERROR(store_->remove(key).status());
    }
    return tcp == nullptr ? Status() : tcp->run(batch, soon()).status();
  }

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
  ASSERT_TRUE(store_->set("k7", "x").ok());
  EXPECT_THAT(store_->get_all(many, at_once()).status().to_string(),
              HasSubstr("no value for 'k{0-6,8-99}' (99 keys)"));
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

TEST_P(StoreContract, GivesTheValuesThatAreThereWithoutWaiting) {
  ASSERT_TRUE(store_->set("a", "1").ok());
  ASSERT_TRUE(store_->set("empty", "").ok());
  EXPECT_THAT(*store_->try_get({"none", "a", "empty", "none", "a"}),
              ElementsAre(std::nullopt, "1", "", std::nullopt, "1"));
  EXPECT_THAT(*store_->try_get({}), ElementsAre());
}

TEST_P(StoreContract, SetsAKeyOnlyIfItHoldsWhatIsExpected) {
  const auto swap = [&](std::optional<std::string_view> expected, std::string_view desired) {
    const auto done = store_->compare_and_set("key", expected, desired);
    EXPECT_TRUE(done.ok()) << done.status().to_string();
    return std::pair(done->swapped, done->value);
  };
  using Swap = std::pair<bool, std::optional<std::string>>;
  EXPECT_EQ(swap("", "x"), Swap(false, std::nullopt));  // an absent key holds nothing, not ""
  EXPECT_EQ(swap(std::nullopt, ""), Swap(true, ""));
  EXPECT_EQ(swap(std::nullopt, "x"), Swap(false, ""));
  EXPECT_EQ(swap("", "first"), Swap(true, "first"));
  EXPECT_EQ(swap("other", "second"), Swap(false, "first"));
  EXPECT_EQ(swap("first", "second"), Swap(true, "second"));
  EXPECT_EQ(*store_->get("key", at_once()), "second");
}

TEST_P(StoreContract, LetsOneOfManyThatCompareAndSetWin) {
  std::atomic<int> winners = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i, client = place_->client()] {
      const auto swap = client->compare_and_set("leader", std::nullopt, std::to_string(i));
      ASSERT_TRUE(swap.ok());
      if (swap->swapped) ++winners;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(winners, 1);
}

TEST_P(StoreContract, AppendsToValues) {
  EXPECT_EQ(*store_->append("log", "ab"), 2);
  EXPECT_EQ(*store_->append("log", ""), 2);
  EXPECT_EQ(*store_->append("log", "cd"), 4);
  EXPECT_EQ(*store_->get("log", at_once()), "abcd");
}

TEST_P(StoreContract, ListsKeysByTheirBeginning) {
  for (const char* key : {"b/2", "a/1", "b/10", "b", "c"}) {
    ASSERT_TRUE(store_->set(key, std::string(key) + "!").ok());
  }
  const auto names = [&](std::string_view prefix) {
    std::vector<std::string> keys;
    const auto entries = store_->list(prefix).value_or_throw();
    for (const auto& entry : entries) {
      EXPECT_EQ(entry.bytes, entry.key.size() + 1);
      EXPECT_GT(entry.revision, 0U);
      keys.push_back(entry.key);
    }
    return keys;
  };
  EXPECT_THAT(names(""), ElementsAre("a/1", "b", "b/10", "b/2", "c"));
  EXPECT_THAT(names("b/"), ElementsAre("b/10", "b/2"));
  EXPECT_THAT(names("d"), ElementsAre());
}

TEST_P(StoreContract, ListsMoreKeysThanOneAnswerHolds) {
  constexpr int kKeys = 18'000;
  const std::string longest(1000 - 6, 'k');  // 17 MiB of them
  std::vector<std::string> keys;
  for (int i = 100'000; i < 100'000 + kKeys; ++i) keys.push_back(longest + std::to_string(i));
  ASSERT_TRUE(set_all(keys).ok());
  const auto entries = store_->list("k").value_or_throw();
  ASSERT_EQ(entries.size(), static_cast<std::size_t>(kKeys));
  EXPECT_TRUE(std::ranges::is_sorted(entries, {}, &StoreEntry::key));
}

TEST_P(StoreContract, WatchesBeginWithWhatIsThere) {
  ASSERT_TRUE(store_->set("w/b", "1").ok());
  ASSERT_TRUE(store_->set("w/a", "2").ok());
  ASSERT_TRUE(store_->set("other", "3").ok());
  const auto seen = store_->watch("w/", 0, at_once());
  ASSERT_TRUE(seen.ok()) << seen.status().to_string();
  using Change = StoreChanges::Change;
  EXPECT_THAT(seen->changes, ElementsAre(Change{"w/b", "1"}, Change{"w/a", "2"}));  // by time
  const auto later = store_->watch("w/", seen->revision, at_once());
  EXPECT_EQ(later.status().code(), StatusCode::kTimeout);
  EXPECT_EQ(later.status().to_string(), "store: no change of keys that begin with 'w/'");
}

TEST_P(StoreContract, WatchersSeeTheLastStateOfEveryKeyThatChanged) {
  constexpr int kChanges = 200;
  std::thread other([client = place_->client()] {
    for (int i = 0; i < kChanges; ++i) {
      ASSERT_TRUE(client->set("w/" + std::to_string(i % 7), std::to_string(i)).ok());
      ASSERT_TRUE(client->add("not watched", 1).ok());
    }
    ASSERT_TRUE(client->remove("w/3").ok());
    ASSERT_TRUE(client->append("w/end", "x").ok());
  });
  std::map<std::string, std::optional<std::string>> state;
  for (std::uint64_t revision = 0; !state.contains("w/end");) {
    const auto seen = store_->watch("w/", revision, soon());
    ASSERT_TRUE(seen.ok()) << seen.status().to_string();
    EXPECT_GT(seen->revision, revision);
    EXPECT_FALSE(seen->changes.empty());
    revision = seen->revision;
    for (const auto& change : seen->changes) state[change.key] = change.value;
  }
  other.join();
  EXPECT_EQ(state["w/3"], std::nullopt);
  EXPECT_EQ(state["w/0"], "196");
  EXPECT_EQ(state["w/6"], "195");
}

TEST_P(StoreContract, WatchersSeeAnAppendToAKeyThatIsThere) {
  using Change = StoreChanges::Change;
  ASSERT_TRUE(store_->set("w/log", "a").ok());
  const auto before = store_->watch("w/", 0, at_once());
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  ASSERT_TRUE(place_->client()->append("w/log", "b").ok());
  const auto after = store_->watch("w/", before->revision, at_once());
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  EXPECT_THAT(after->changes, ElementsAre(Change{"w/log", "ab"}));
}

TEST_P(StoreContract, WatchersSeeAKeyThatIsThereAgainAsOneChange) {
  using Change = StoreChanges::Change;
  ASSERT_TRUE(store_->set("w/a", "1").ok());
  ASSERT_TRUE(*store_->remove("w/a"));
  ASSERT_TRUE(store_->set("w/a", "2").ok());
  const auto seen = store_->watch("w/", 0, at_once());
  ASSERT_TRUE(seen.ok()) << seen.status().to_string();
  EXPECT_THAT(seen->changes, ElementsAre(Change{"w/a", "2"}));
}

// Only so many removals are remembered.
TEST_P(StoreContract, WatchersSeeARemovalThoughAnOlderOneOfItsKeyIsForgotten) {
  using Change = StoreChanges::Change;
  ASSERT_TRUE(store_->set("w/a", "1").ok());
  ASSERT_TRUE(*store_->remove("w/a"));
  ASSERT_TRUE(store_->set("w/a", "2").ok());
  const auto before = store_->watch("w/", 0, at_once());
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  ASSERT_TRUE(set_and_remove("other", 4000).ok());
  ASSERT_TRUE(*store_->remove("w/a"));
  ASSERT_TRUE(set_and_remove("other", 200).ok());
  const auto seen = store_->watch("w/", before->revision, at_once());
  ASSERT_TRUE(seen.ok()) << seen.status().to_string();
  EXPECT_THAT(seen->changes, ElementsAre(Change{"w/a", std::nullopt}));
}

TEST_P(StoreContract, WatchersSeeMoreChangesThanOneAnswerHolds) {
  constexpr std::size_t kKeys = 5000;
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < kKeys; ++i) keys.push_back("w/" + std::to_string(i));
  ASSERT_TRUE(set_all(keys).ok());
  std::vector<std::string> seen;
  for (std::uint64_t revision = 0; seen.size() < kKeys;) {
    const auto changes = store_->watch("w/", revision, at_once());
    ASSERT_TRUE(changes.ok()) << seen.size() << ": " << changes.status().to_string();
    revision = changes->revision;
    for (const auto& change : changes->changes) seen.push_back(change.key);
  }
  EXPECT_EQ(seen, keys);  // by time
}

TEST_P(StoreContract, RefusesKeysAndValuesOutOfBounds) {
  const std::string long_key(1025, 'k');
  EXPECT_EQ(store_->set("", "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->set(long_key, "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->add(long_key, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->remove("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->get(long_key, at_once()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->append(long_key, "x").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->compare_and_set("", {}, "x").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store_->try_get({"a", ""}).status().code(), StatusCode::kInvalidArgument);
  const std::string value((16 << 20) + 1, 'v');
  EXPECT_EQ(store_->set("key", value).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(store_->set("key", std::string_view(value).substr(1)).ok());  // 16 MiB are allowed
  EXPECT_EQ(store_->get("key", soon())->size(), value.size() - 1);
  EXPECT_EQ(store_->append("key", "x").status().code(), StatusCode::kInvalidArgument);
}

TEST_P(StoreContract, NamesKeysInErrorsAsItsCallerDoes) {
  ASSERT_TRUE(store_->set("text", "x").ok());
  EXPECT_EQ(store_->add("text", 1).status().to_string(), "store: 'text' holds no number to add to");
  EXPECT_EQ(store_->get_all({"text", "a", "b"}, at_once()).status().to_string(),
            "store: no value for 'a', 'b'");
}

TEST_P(StoreContract, SwapsTheLongestValues) {
  const std::string before(16 << 20, 'b');
  const std::string after(16 << 20, 'a');
  ASSERT_TRUE(store_->set("key", before).ok());
  const auto swap = store_->compare_and_set("key", before, after);
  ASSERT_TRUE(swap.ok()) << swap.status().to_string();
  EXPECT_TRUE(swap->swapped);
  EXPECT_EQ(*store_->get("key", soon()), after);
}

INSTANTIATE_TEST_SUITE_P(
    Stores, StoreContract,
    ::testing::Values(Kind{"Memory", [] { return std::unique_ptr<Place>(new MemoryPlace); }},
                      Kind{"Tcp", [] { return std::unique_ptr<Place>(new TcpPlace); }},
                      Kind{"TcpWithPrefix",
                           [] { return std::unique_ptr<Place>(new TcpPlace("attempt 1/")); }}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace dlaunch
