// The coordinator beside a store: what becomes of the last that its own node says.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

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

class RunningCoordinator : public ::testing::Test {
 protected:
  static StoreServer::Options with_token(const std::string& token) {
    return {.token = token, .logger = make_logger("test")};
  }
  std::unique_ptr<TcpStore> connect() const {
    return TcpStore::connect("127.0.0.1:" + std::to_string(server_->port()), token_, soon())
        .value_or_throw();
  }
  void set(std::string_view key, const std::string& id, const std::string& value) {
    ASSERT_TRUE(store_->set(std::string(key) + id, value).ok());
  }
  std::string text(std::string_view key) {
    return store_->get(std::string(key), soon()).value_or_throw();
  }

  const std::string token_ = make_token();
  const std::unique_ptr<StoreServer> server_ =
      StoreServer::start(with_token(token_)).value_or_throw();
  const std::unique_ptr<TcpStore> store_ = connect();
  CoordinatorThread coordinator_{
      connect(),
      NodeCoordinator::Options{
          .least = 1, .most = 1, .nodes = "1", .version = "1.0", .host_id = "1"},
      fail_test};
};

TEST_F(RunningCoordinator, TurnsAwayAMemberThatItDoesNotUnderstand) {
  set(node_keys::kMember, "1", "{}");
  EXPECT_NE(text(std::string(node_keys::kRefused) + "1").find("a node's record: "),
            std::string::npos);
}

TEST_F(RunningCoordinator, DoesNotWaitForANodeWhoseEndItDoesNotUnderstand) {
  set(node_keys::kMember, "1",
      to_text(MemberRecord{.id = "1", .version = "1.0", .nodes = "1", .ranks = 1}));
  text(node_keys::kRound);
  set(node_keys::kEnded, "0/1", to_text(EndedRecord{.age_ns = -1}));
  const auto verdict = parse_record<VerdictRecord>(text(node_keys::kVerdict)).value_or_throw();
  EXPECT_EQ(verdict.exit_code, 122);
  EXPECT_NE(verdict.reason.find("a number is out of range"), std::string::npos) << verdict.reason;
}

// The node leaves at once after it has spoken, while the coordinator is busy with the round before.
// Many times, because only a moment makes the difference.
TEST(CoordinatorThread, KnowsTheLastThatItsNodeSaidBeforeItLeft) {
  for (int run = 0; run < 200; ++run) {
    const std::string token = make_token();
    const auto server = StoreServer::start({.token = token, .logger = make_logger("test")});
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    const std::string endpoint = "127.0.0.1:" + std::to_string((*server)->port());
    const auto store = TcpStore::connect(endpoint, token, soon()).value_or_throw();
    auto coordinator = std::make_unique<CoordinatorThread>(
        TcpStore::connect(endpoint, token, soon()).value_or_throw(),
        NodeCoordinator::Options{.nodes = "1", .version = "1.0", .host_id = "1"}, fail_test);
    const MemberRecord self{.id = "1", .version = "1.0", .nodes = "1", .ranks = 1};
    const std::string member = std::string(node_keys::kMember) + "1";
    ASSERT_TRUE(store->set(member, to_text(self)).ok());
    ASSERT_TRUE(store->get(std::string(node_keys::kRound), soon()).ok());
    const EndedRecord told{
        .how = EndedRecord::How::kSignal, .exit_code = 143, .error = "ended by SIGTERM"};
    ASSERT_TRUE(store->set(std::string(node_keys::kEnded) + "0/1", to_text(told)).ok());
    ASSERT_TRUE(store->remove(member).ok());
    coordinator.reset();
    const auto verdict = store->get(std::string(node_keys::kVerdict), soon());
    ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
    ASSERT_EQ(parse_record<VerdictRecord>(*verdict)->exit_code, 143) << *verdict;
  }
}

// Its ranks may have been gone for a moment when its connection goes.
TEST(CoordinatorThread, TakesALostNodeForTheReasonOfWhatFailsSinceItLivedForCertain) {
  const std::string token = make_token();
  const auto server = StoreServer::start({.token = token}).value_or_throw();
  const std::string endpoint = "127.0.0.1:" + std::to_string(server->port());
  const auto store = TcpStore::connect(endpoint, token, soon()).value_or_throw();
  const CoordinatorThread coordinator(
      TcpStore::connect(endpoint, token, soon()).value_or_throw(),
      {.least = 1, .most = 2, .nodes = "1:2", .version = "1.0", .host_id = "1"}, fail_test);
  const std::string member(node_keys::kMember);
  for (const std::string id : {"1", "2"}) {
    const MemberRecord node{.id = id, .version = "1.0", .nodes = "1:2", .ranks = 1};
    ASSERT_TRUE(store->set(member + id, to_text(node)).ok());
  }
  ASSERT_TRUE(store->get(std::string(node_keys::kRound), soon()).ok());
  const EndedRecord failed{.how = EndedRecord::How::kFailed,
                           .failure = serialize({.rank = 0, .host = "here", .exit_code = 1}),
                           .exit_code = 1};
  ASSERT_TRUE(store->set(std::string(node_keys::kEnded) + "0/1", to_text(failed)).ok());
  ASSERT_TRUE(store->get(std::string(node_keys::kStop), soon()).ok());
  ASSERT_TRUE(store->remove(member + "2").ok());
  const auto verdict = store->get(std::string(node_keys::kVerdict), soon());
  ASSERT_TRUE(verdict.ok()) << verdict.status().to_string();
  EXPECT_EQ(parse_record<VerdictRecord>(*verdict)->exit_code, 122) << *verdict;
  EXPECT_TRUE(store->remove(member + "1").ok());  // the coordinator would wait for that
}

// It may be stopped, or cut off for a moment, and has not heard yet how the job ended.
TEST(CoordinatorThread, DoesNotTakeTheStoreFromANodeThatIsSilentForAMoment) {
  const std::string token = make_token();
  const auto server = StoreServer::start({.token = token}).value_or_throw();
  const std::string endpoint = "127.0.0.1:" + std::to_string(server->port());
  const auto store = TcpStore::connect(endpoint, token, soon()).value_or_throw();
  auto coordinator = std::make_unique<CoordinatorThread>(
      TcpStore::connect(endpoint, token, soon()).value_or_throw(),
      NodeCoordinator::Options{.least = 2,
                               .most = 2,
                               .nodes = "2",
                               .version = "1.0",
                               .host_id = "1",
                               .longest_silence = 60s},
      fail_test);
  const std::string member(node_keys::kMember);
  for (const std::string id : {"1", "2"}) {
    const MemberRecord node{.id = id, .version = "1.0", .nodes = "2", .ranks = 1};
    ASSERT_TRUE(store->set(member + id, to_text(node)).ok());
  }
  ASSERT_TRUE(store->get(std::string(node_keys::kRound), soon()).ok());
  for (const std::string id : {"1", "2"})
    ASSERT_TRUE(
        store->set(std::string(node_keys::kEnded) + "0/" + id, to_text(EndedRecord{})).ok());
  ASSERT_TRUE(store->get(std::string(node_keys::kVerdict), soon()).ok());
  ASSERT_TRUE(store->remove(member + "1").ok());
  std::atomic<bool> has_left = false;
  std::thread silent([&] {
    std::this_thread::sleep_for(4s);  // nobody who speaks is waited for so long
    has_left = true;
    EXPECT_TRUE(store->remove(member + "2").ok());
  });
  coordinator.reset();
  EXPECT_TRUE(has_left);
  silent.join();
}

TEST(CoordinatorThread, RemovesWhatRoundsHaveLeftInTheStore) {
  const std::string token = make_token();
  const auto server = StoreServer::start({.token = token}).value_or_throw();
  const std::string endpoint = "127.0.0.1:" + std::to_string(server->port());
  const auto store = TcpStore::connect(endpoint, token, soon()).value_or_throw();
  const CoordinatorThread coordinator(TcpStore::connect(endpoint, token, soon()).value_or_throw(),
                                      {.nodes = "1",
                                       .version = "1.0",
                                       .host_id = "1",
                                       .max_restarts = 2,
                                       .restart_delay = std::chrono::seconds(0)},
                                      fail_test);
  const std::string member = std::string(node_keys::kMember) + "1";
  const MemberRecord self{.id = "1", .version = "1.0", .nodes = "1", .ranks = 1};
  ASSERT_TRUE(store->set(member, to_text(self)).ok());
  const EndedRecord failed{.how = EndedRecord::How::kFailed,
                           .failure = serialize({.rank = 0, .host = "here", .exit_code = 3}),
                           .got_ready = true};
  std::uint64_t revision = 0;
  for (int round = 0; round < 2; ++round) {
    const std::string number = std::to_string(round);
    for (const std::string& key : {"attempt " + number + "/key", "outcomes/" + number + "/1"}) {
      ASSERT_TRUE(store->set(key, "x").ok());
    }
    ASSERT_TRUE(store->get(std::string(node_keys::kRound), soon()).ok());
    ASSERT_TRUE(store->set("nodes/ended/" + number + "/1", to_text(failed)).ok());
  }
  const auto left = [&] { return store->list("attempt ").value_or_throw().size(); };
  while (left() == 2) {
    const auto seen = store->watch("attempt ", revision, soon());
    ASSERT_TRUE(seen.ok()) << seen.status().to_string();
    revision = seen->revision;
  }
  EXPECT_EQ(store->list("attempt ").value_or_throw().front().key, "attempt 1/key");
  EXPECT_EQ(store->list("outcomes/").value_or_throw().front().key, "outcomes/1/1");
  EXPECT_TRUE(store->remove(member).ok());  // the coordinator would wait for that
}

}  // namespace
}  // namespace dlaunch::testing
