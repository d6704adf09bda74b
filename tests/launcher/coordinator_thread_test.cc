// The coordinator beside a store: what becomes of the last that its own node says.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "launcher/nodes/coordinator_thread.h"
#include "runtime/base/logging.h"
#include "runtime/base/token.h"
#include "runtime/rendezvous/store_server.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

void fail_test(const std::string& why) {
  ADD_FAILURE() << why;
}

// A job's store, with a client that plays the agents.
class JobStore {
 public:
  std::unique_ptr<TcpStore> connect() const {
    return TcpStore::connect("127.0.0.1:" + std::to_string(server_->port()), token_, soon())
        .value_or_throw();
  }
  std::unique_ptr<CoordinatorThread> coordinate(NodeCoordinator::Options options) const {
    options.version = "1.0";
    options.host_id = "1";
    return std::make_unique<CoordinatorThread>(connect(), std::move(options), fail_test);
  }
  TcpStore* operator->() const { return store_.get(); }

  void set(std::string_view key, const std::string& id, const std::string& value) const {
    ASSERT_TRUE(store_->set(std::string(key) + id, value).ok());
  }
  /// Waits for it.
  std::string text(std::string_view key) const {
    return store_->get(std::string(key), soon()).value_or_throw();
  }
  VerdictRecord verdict() const {
    return parse_record<VerdictRecord>(text(node_keys::kVerdict)).value_or_throw();
  }
  /// `nodes`: as all are told.
  void come(const std::string& id, const std::string& nodes) const {
    set(node_keys::kMember, id,
        to_text(MemberRecord{.id = id, .version = "1.0", .nodes = nodes, .ranks = 1}));
  }
  void go(const std::string& id) const {
    EXPECT_TRUE(store_->remove(std::string(node_keys::kMember) + id).ok());
  }

 private:
  static StoreServer::Options with_token(const std::string& token) {
    return {.token = token, .logger = make_logger("test")};
  }

  const std::string token_ = make_token();
  const std::unique_ptr<StoreServer> server_ =
      StoreServer::start(with_token(token_)).value_or_throw();
  const std::unique_ptr<TcpStore> store_ = connect();
};

TEST(CoordinatorThread, TurnsAwayAMemberThatItDoesNotUnderstand) {
  const JobStore store;
  const auto coordinator = store.coordinate({.nodes = "1"});
  store.set(node_keys::kMember, "1", "{}");
  EXPECT_NE(store.text(std::string(node_keys::kRefused) + "1").find("a node's record: "),
            std::string::npos);
}

TEST(CoordinatorThread, DoesNotWaitForANodeWhoseEndItDoesNotUnderstand) {
  const JobStore store;
  const auto coordinator = store.coordinate({.nodes = "1"});
  store.come("1", "1");
  store.text(node_keys::kRound);
  store.set(node_keys::kEnded, "0/1", to_text(EndedRecord{.age_ns = -1}));
  const auto verdict = store.verdict();
  EXPECT_EQ(verdict.exit_code, 122);
  EXPECT_NE(verdict.reason.find("a number is out of range"), std::string::npos) << verdict.reason;
}

// The node leaves at once after it has spoken, while the coordinator is busy with the round before.
// Many times, because only a moment makes the difference.
TEST(CoordinatorThread, KnowsTheLastThatItsNodeSaidBeforeItLeft) {
  for (int run = 0; run < 200; ++run) {
    const JobStore store;
    auto coordinator = store.coordinate({.nodes = "1"});
    store.come("1", "1");
    store.text(node_keys::kRound);
    const EndedRecord told{
        .how = EndedRecord::How::kSignal, .exit_code = 143, .error = "ended by SIGTERM"};
    store.set(node_keys::kEnded, "0/1", to_text(told));
    store.go("1");
    coordinator.reset();
    ASSERT_EQ(store.verdict().exit_code, 143) << store.text(node_keys::kVerdict);
  }
}

// Its ranks may have been gone for a moment when its connection goes.
TEST(CoordinatorThread, TakesALostNodeForTheReasonOfWhatFailsSinceItLivedForCertain) {
  const JobStore store;
  const auto coordinator = store.coordinate({.least = 1, .most = 2, .nodes = "1:2"});
  for (const char* id : {"1", "2"}) store.come(id, "1:2");
  store.text(node_keys::kRound);
  const EndedRecord failed{.how = EndedRecord::How::kFailed,
                           .failure = serialize({.rank = 0, .host = "here", .exit_code = 1}),
                           .exit_code = 1};
  store.set(node_keys::kEnded, "0/1", to_text(failed));
  store.text(node_keys::kStop);
  store.go("2");
  EXPECT_EQ(store.verdict().exit_code, 122) << store.text(node_keys::kVerdict);
  store.go("1");  // the coordinator would wait for that
}

// It may be stopped, or cut off for a moment, and has not heard yet how the job ended.
TEST(CoordinatorThread, DoesNotTakeTheStoreFromANodeThatIsSilentForAMoment) {
  const JobStore store;
  auto coordinator =
      store.coordinate({.least = 2, .most = 2, .nodes = "2", .longest_silence = 60s});
  for (const char* id : {"1", "2"}) store.come(id, "2");
  store.text(node_keys::kRound);
  for (const char* id : {"0/1", "0/2"}) store.set(node_keys::kEnded, id, to_text(EndedRecord{}));
  store.text(node_keys::kVerdict);
  store.go("1");
  std::atomic<bool> has_left = false;
  std::thread silent([&] {
    std::this_thread::sleep_for(4s);  // nobody who speaks is waited for so long
    has_left = true;
    store.go("2");
  });
  coordinator.reset();
  EXPECT_TRUE(has_left);
  silent.join();
}

TEST(CoordinatorThread, RemovesWhatRoundsHaveLeftInTheStore) {
  const JobStore store;
  const auto coordinator = store.coordinate({.nodes = "1", .max_restarts = 2, .restart_delay = 0s});
  store.come("1", "1");
  const EndedRecord failed{.how = EndedRecord::How::kFailed,
                           .failure = serialize({.rank = 0, .host = "here", .exit_code = 3}),
                           .got_ready = true};
  std::uint64_t revision = 0;
  for (int round = 0; round < 2; ++round) {
    const std::string number = std::to_string(round);
    for (const std::string& key : {"attempt " + number + "/key", "outcomes/" + number + "/1"})
      store.set(key, "", "x");
    store.text(node_keys::kRound);
    store.set(node_keys::kEnded, number + "/1", to_text(failed));
  }
  const auto left = [&] { return store->list("attempt ").value_or_throw().size(); };
  while (left() == 2) {
    const auto seen = store->watch("attempt ", revision, soon());
    ASSERT_TRUE(seen.ok()) << seen.status().to_string();
    revision = seen->revision;
  }
  EXPECT_EQ(store->list("attempt ").value_or_throw().front().key, "attempt 1/key");
  EXPECT_EQ(store->list("outcomes/").value_or_throw().front().key, "outcomes/1/1");
  store.go("1");  // the coordinator would wait for that
}

}  // namespace
}  // namespace dlaunch::testing
