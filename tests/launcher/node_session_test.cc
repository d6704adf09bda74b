// A node's session against a store in which the test plays the coordinator and the other node.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>

#include <gtest/gtest.h>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/read.hpp>
#include <asio/write.hpp>

#include "launcher/hang/observed_text.h"
#include "launcher/nodes/node_session.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/logging.h"
#include "runtime/base/token.h"
#include "runtime/rendezvous/store_protocol.h"
#include "tests/support/soon.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;
using testing::soon;

class NodeSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string token = make_token();
    auto server = StoreServer::start({.token = token, .logger = make_logger("test")});
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = *std::move(server);
    // The session finds this port taken, and so the store there.
    settings_ = {.least = 2, .most = 2, .host = "127.0.0.1", .port = server_->port()};
    settings_.token = token;
    settings_.join_timeout = 60s;
    auto store = TcpStore::connect(settings_.endpoint(), token, soon());
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = *std::move(store);
    options_ = describe_node(settings_, job_, "job", "here", 1);
    round_ = {.number = 0,
              .job_id = "job",
              .nodes = {{.id = options_.self.id, .host = "here", .ranks = 1, .first_rank = 0},
                        {.id = "other", .host = "there", .ranks = 1, .first_rank = 1}},
              .world = 2,
              .store = "127.0.0.1"};
  }

  void set(std::string_view key, const std::string& value) {
    const Status done = store_->set(key, value);
    ASSERT_TRUE(done.ok()) << done.to_string();
  }
  std::string key_of(std::string_view folder, const std::string& name) {
    return std::string(folder) + name;
  }

  // Runs the loop until it is true.
  template <typename Condition>
  bool comes_true(Condition condition) {
    const auto timer = loop_.call_at(std::chrono::steady_clock::now() + 20s, [] {});
    const Deadline deadline = Deadline::after(20s);
    while (!condition() && !deadline.expired()) loop_.run_once();
    loop_.cancel(timer);
    return condition();
  }

  // A session whose round runs.
  void begin_round() {
    set(node_keys::kRound, to_text(round_));
    session_ = std::make_unique<NodeSession>(loop_, relay_, options_);
    const Deadline deadline = Deadline::after(20s);
    const auto timer = loop_.call_at(std::chrono::steady_clock::now() + 20s, [] {});
    ASSERT_TRUE(session_->next_round([&] { return deadline.expired(); }));
    loop_.cancel(timer);
  }

  const EndedRecord interrupted_{.how = EndedRecord::How::kSignal, .exit_code = 143};
  EventLoop loop_;
  OutputOptions output_;
  OutputRelay relay_{loop_, output_};
  JobOptions job_;
  NodeSettings settings_;
  NodeAgent::Options options_;
  RoundRecord round_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<TcpStore> store_;
  std::unique_ptr<NodeSession> session_;
};

TEST_F(NodeSessionTest, HasACoordinatorWaitAsLongForNodesAsTheSettingsSay) {
  settings_.last_call = 9s;
  settings_.longest_silence = 20s;
  const auto options = describe_node(settings_, job_, "job", "here", 1).coordinator;
  EXPECT_EQ(options.settle, 9s);
  EXPECT_EQ(options.join_timeout, settings_.join_timeout);
  EXPECT_EQ(options.longest_silence, 20s);
}

TEST_F(NodeSessionTest, EndsARoundThatWasStoppedBeforeItWasTakenUp) {
  set(node_keys::kStop, to_text(StopRecord{0, "another node's ranks have failed"}));
  begin_round();
  bool ended = false;
  session_->when_round_stops([&] { ended = true; });
  EXPECT_TRUE(ended);
}

TEST_F(NodeSessionTest, DoesNotEndARoundForTheStopOfTheOneBefore) {
  set(node_keys::kStop, to_text(StopRecord{0, "of the last round"}));
  round_.number = 1;
  begin_round();
  bool ended = false;
  session_->when_round_stops([&] { ended = true; });
  EXPECT_FALSE(ended);
}

// Another dlaunch of the job on the host of the store: its ranks give their peers on other hosts
// the address through which they reach the store.
TEST_F(NodeSessionTest, GivesItsRanksAnAddressOfTheStoreThatIsNotThisHostsAlone) {
  begin_round();
  const std::string port = ":" + std::to_string(server_->port());
  EXPECT_EQ(session_->store_address({.store = "192.0.2.1"}), "192.0.2.1" + port);
  EXPECT_EQ(session_->store_address({.store = "127.0.0.1"}), "127.0.0.1" + port);
}

// The store goes with its node, which does not wait for ranks that end slowly elsewhere.
TEST_F(NodeSessionTest, KeepsToTheLastVerdictWhenTheStoreGoes) {
  begin_round();
  bool ended = false;
  session_->when_round_stops([&] { ended = true; });
  set(node_keys::kStop, to_text(StopRecord{0, "the other node has left the job"}));
  set(node_keys::kVerdict, to_text(VerdictRecord{.exit_code = 143}));
  ASSERT_TRUE(comes_true([&] { return ended && session_->verdict(); }));
  store_.reset();
  server_.reset();
  session_->end_round({.how = EndedRecord::How::kStopped});
  EXPECT_FALSE(session_->next_round([] { return false; }));
  EXPECT_FALSE(session_->error());
  EXPECT_EQ(session_->verdict()->exit_code, 143);
}

TEST_F(NodeSessionTest, EndsItsRoundWithAnErrorWhenTheStoreGoesBeforeAVerdict) {
  begin_round();
  bool ended = false;
  session_->when_round_stops([&] { ended = true; });
  store_.reset();
  server_.reset();
  ASSERT_TRUE(comes_true([&] { return ended; }));
  EXPECT_EQ(session_->error()->exit_code, kLauncherNodeLost);
}

// The ranks of other nodes may go on for long.
TEST_F(NodeSessionTest, WaitsWithoutALimitForTheVerdictOverARoundThatGoesOn) {
  round_.verdict_limit_ms = 1;
  begin_round();
  const auto limit_passed = loop_.call_at(std::chrono::steady_clock::now() + 300ms, [&] {
    set(node_keys::kVerdict, to_text(VerdictRecord{.exit_code = 7}));
  });
  session_->end_round({.how = EndedRecord::How::kFinished});
  loop_.cancel(limit_passed);
  ASSERT_FALSE(session_->error()) << session_->error()->why;
  EXPECT_EQ(session_->verdict()->exit_code, 7);
}

// To the others it is a node that has finished.
TEST_F(NodeSessionTest, LeavesWithoutAWordWhereTheOthersGoOn) {
  begin_round();
  const auto leave = [&] { return NodeSession::Departure{.ended = interrupted_, .silent = true}; };
  EXPECT_FALSE(session_->end_round({}, "", {.departure = leave, .signals = [] { return 1; }}));
  EXPECT_TRUE(session_->left());
  EXPECT_FALSE(session_->error());
  session_->end_between(interrupted_);
  EXPECT_FALSE(session_->next_round([] { return false; }));
  const auto said = store_->get(key_of(node_keys::kEnded, "0/" + options_.self.id), soon());
  ASSERT_TRUE(said.ok()) << said.status().to_string();
  EXPECT_EQ(parse_record<EndedRecord>(*said)->how, EndedRecord::How::kFinished);
  session_.reset();
  EXPECT_TRUE(store_->list(node_keys::kMember).value_or_throw().empty());
}

TEST_F(NodeSessionTest, DoesNotWaitForOtherNodesRanksToEndOnceItsUserGivesUp) {
  round_.verdict_limit_ms = 20'000;
  begin_round();
  int signals = 1;
  const auto again = loop_.call_at(std::chrono::steady_clock::now() + 100ms, [&] { ++signals; });
  EXPECT_FALSE(session_->end_round(
      {.how = EndedRecord::How::kSignal}, "",
      {.departure = [] { return std::nullopt; }, .signals = [&] { return signals; }}));
  loop_.cancel(again);
  EXPECT_EQ(signals, 2);
  EXPECT_TRUE(session_->gave_up());
  EXPECT_FALSE(session_->error());
  EXPECT_FALSE(session_->next_round([] { return false; }));
}

// Its ranks were ended because others failed: the job is not to start them again.
TEST_F(NodeSessionTest, TellsThatItsUserEndsTheJobWhileOtherNodesEndTheirRanks) {
  round_.verdict_limit_ms = 20'000;
  begin_round();
  int signals = 0;
  const auto first = loop_.call_at(std::chrono::steady_clock::now() + 50ms, [&] { ++signals; });
  std::thread coordinator([&] {
    const auto text = store_->get(key_of(node_keys::kEnded, "-1/" + options_.self.id), soon());
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    if (text.ok()) {
      EXPECT_EQ(parse_record<EndedRecord>(*text).value_or_throw().how, EndedRecord::How::kSignal);
    }
    set(node_keys::kVerdict, to_text(VerdictRecord{.exit_code = 3}));
  });
  const auto departure = [&]() -> std::optional<NodeSession::Departure> {
    if (signals == 0) return std::nullopt;
    return NodeSession::Departure{.ended = interrupted_};
  };
  EXPECT_TRUE(session_->end_round({.how = EndedRecord::How::kStopped}, "",
                                  {.departure = departure, .signals = [&] { return signals; }}));
  coordinator.join();
  loop_.cancel(first);
  EXPECT_FALSE(session_->gave_up());
  EXPECT_EQ(session_->verdict()->exit_code, 3);
}

TEST_F(NodeSessionTest, LeavesAtOnceWhileRanksEndWhereTheOthersCanGoOn) {
  round_.verdict_limit_ms = 20'000;
  begin_round();
  const auto leave = [&] { return NodeSession::Departure{.ended = interrupted_, .silent = true}; };
  EXPECT_FALSE(session_->end_round({.how = EndedRecord::How::kStopped}, "",
                                   {.departure = leave, .signals = [] { return 1; }}));
  EXPECT_TRUE(session_->gave_up());
  const auto said = store_->get(key_of(node_keys::kEnded, "-1/" + options_.self.id), soon());
  ASSERT_TRUE(said.ok()) << said.status().to_string();
  EXPECT_EQ(parse_record<EndedRecord>(*said)->how, EndedRecord::How::kSignal);
}

// Its guard has gone: nothing that it said would change what the others make of that.
TEST_F(NodeSessionTest, SaysNothingMoreWhereItIsLostToTheOthers) {
  round_.verdict_limit_ms = 20'000;
  begin_round();
  const auto lost = [&] { return NodeSession::Departure{.silent = true, .lost = true}; };
  std::thread coordinator([&] {
    EXPECT_TRUE(store_->get(key_of(node_keys::kEnded, "0/" + options_.self.id), soon()).ok());
    set(node_keys::kVerdict, to_text(VerdictRecord{.exit_code = 3}));
  });
  EXPECT_TRUE(session_->end_round({.how = EndedRecord::How::kStopped}, "",
                                  {.departure = lost, .signals = [] { return 0; }}));
  coordinator.join();
  EXPECT_FALSE(session_->gave_up());
  const auto said =
      store_->try_get({key_of(node_keys::kEnded, "-1/" + options_.self.id)}).value_or_throw();
  EXPECT_FALSE(said[0]);
}

// Also where it is just joining: whoever has been a member is one that has left, and is not lost.
TEST_F(NodeSessionTest, TellsThatItsUserEndsItWheneverItHasJoined) {
  int members = 0;
  for (int run = 0; run < 60; ++run) {
    auto options = describe_node(settings_, job_, "job", "here", 1);
    session_ = std::make_unique<NodeSession>(loop_, relay_, options);
    std::this_thread::sleep_for(run % 20 * 500us);  // so that it is met at every step of joining
    session_->end_between(interrupted_);
    session_.reset();
    const auto seen = store_->watch(node_keys::kMember, 0, Deadline::after(0ms));
    const bool was_member = seen.ok() && std::ranges::any_of(seen->changes, [&](const auto& each) {
                              return each.key == key_of(node_keys::kMember, options.self.id);
                            });
    members += was_member ? 1 : 0;
    const auto said =
        store_->try_get({key_of(node_keys::kEnded, "-1/" + options.self.id)}).value_or_throw();
    EXPECT_EQ(said[0].has_value(), was_member) << run;
  }
  EXPECT_GT(members, 0);
}

// Proves to its clients that it knows the token, and says no more.
class MuteStore {
 public:
  explicit MuteStore(std::string token)
      : token_(std::move(token)),
        acceptor_(context_, asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        thread_([this] { serve(); }) {}
  ~MuteStore() {
    ::shutdown(acceptor_.native_handle(), SHUT_RDWR);
    thread_.join();
  }
  MuteStore(const MuteStore&) = delete;
  MuteStore& operator=(const MuteStore&) = delete;
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  void serve() {
    asio::error_code error;
    while (true) {
      asio::ip::tcp::socket client(context_);
      acceptor_.accept(client, error);
      if (error) return;
      const Nonce own = make_nonce();
      std::array<std::byte, sizeof(Nonce) + sizeof(Mac)> proof{};
      asio::write(client, asio::buffer(store_protocol::kGreeting), error);
      asio::write(client, asio::buffer(own), error);
      asio::read(client, asio::buffer(proof), error);
      Nonce theirs;
      std::copy_n(proof.begin(), theirs.size(), theirs.begin());
      asio::write(client, asio::buffer(make_proof(token_, HandshakeRole::kListener, theirs, own)),
                  error);
      clients_.push_back(std::move(client));
    }
  }

  const std::string token_;
  asio::io_context context_;
  asio::ip::tcp::acceptor acceptor_;
  std::vector<asio::ip::tcp::socket> clients_;
  std::thread thread_;
};

TEST_F(NodeSessionTest, GivesUpAStoreThatKnowsTheTokenAndSaysNoMore) {
  const MuteStore mute(settings_.token);
  settings_.port = mute.port();
  settings_.join_timeout = 1s;
  session_ = std::make_unique<NodeSession>(loop_, relay_,
                                           describe_node(settings_, job_, "job", "here", 1));
  ASSERT_TRUE(comes_true([&] {
    EXPECT_FALSE(session_->next_round([&] { return session_->error().has_value(); }));
    return session_->error().has_value();
  }));
  EXPECT_EQ(session_->error()->exit_code, kLauncherRendezvous);
  EXPECT_NE(session_->error()->why.find("no answer in time"), std::string::npos)
      << session_->error()->why;
}

TEST_F(NodeSessionTest, GivesUpIfNoVerdictComesOverARoundThatIsToEnd) {
  round_.verdict_limit_ms = 1;
  begin_round();
  session_->end_round({.how = EndedRecord::How::kStopped});
  ASSERT_TRUE(session_->error());
  EXPECT_EQ(session_->error()->why, "the node with the store does not decide");
}

TEST_F(NodeSessionTest, GivesUpIfNoVerdictComesAfterTheStopOfARoundThatWentWellHere) {
  round_.verdict_limit_ms = 1;
  begin_round();
  const auto stop = loop_.call_at(std::chrono::steady_clock::now(), [&] {
    set(node_keys::kStop, to_text(StopRecord{0, "another node's ranks have failed"}));
  });
  session_->end_round({.how = EndedRecord::How::kFinished});
  loop_.cancel(stop);
  ASSERT_TRUE(session_->error());
}

TEST_F(NodeSessionTest, GivesUpANodeThatDoesNotAnswer) {
  begin_round();
  std::optional<std::vector<std::optional<SeenRecord>>> answers;
  session_->ask({}, 50ms, [&](const auto& seen) { answers = seen; });
  ASSERT_TRUE(comes_true([&] { return answers.has_value(); }));
  ASSERT_EQ(answers->size(), 2U);
  EXPECT_FALSE(answers->at(1));
}

TEST_F(NodeSessionTest, AsksQuestionsOneAfterTheOther) {
  begin_round();
  int answered = 0;
  for (int i = 0; i < 3; ++i) {
    session_->ask({}, 50ms, [&, i](const auto&) { EXPECT_EQ(answered++, i); });
  }
  EXPECT_TRUE(comes_true([&] { return answered == 3; }));
}

TEST_F(NodeSessionTest, TellsWhatTheOtherNodeHasSeen) {
  begin_round();
  std::optional<std::vector<std::optional<SeenRecord>>> answers;
  session_->ask({.stacks_of = {1}}, 20s, [&](const auto& seen) { answers = seen; });
  const auto text = store_->get(key_of(node_keys::kLook, options_.self.id), soon());
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  const auto look = parse_record<LookRecord>(*text);
  ASSERT_TRUE(look.ok());
  EXPECT_EQ(look->stacks_of, std::vector<int>{1});
  set(key_of(node_keys::kSeen, look->question + "/other"),
      to_text(SeenRecord{.ranks = {}, .lines = {"a stack"}}));
  ASSERT_TRUE(comes_true([&] { return answers.has_value(); }));
  ASSERT_TRUE(answers->at(1));
  EXPECT_EQ(answers->at(1)->lines, std::vector<std::string>{"a stack"});
  // Nothing of it stays in the store.
  EXPECT_TRUE(comes_true([&] {
    return store_->list(node_keys::kLook).value_or_throw().empty() &&
           store_->list(node_keys::kSeen).value_or_throw().empty();
  }));
}

TEST_F(NodeSessionTest, DoesNotAskForStacksOfItsOwnRanksElsewhere) {
  begin_round();
  bool answered = false;
  session_->ask({.stacks_of = {0}}, 1h, [&](const auto&) { answered = true; });
  EXPECT_TRUE(comes_true([&] { return answered; }));
}

TEST_F(NodeSessionTest, AnswersWhatTheOtherNodeAsks) {
  begin_round();
  bool asked = false;
  session_->when_asked([&](const LookRecord& look) {
    asked = true;
    session_->answer(look, {.ranks = "[]", .lines = {}});
  });
  set(key_of(node_keys::kLook, "other"), to_text(LookRecord{.question = "q", .round = 0}));
  ASSERT_TRUE(comes_true([&] { return asked; }));
  const auto answer = store_->get("seen/q/" + options_.self.id, soon());
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_EQ(parse_record<SeenRecord>(*answer)->ranks, "[]");
}

TEST_F(NodeSessionTest, AnswersForRanksThatHaveEnded) {
  begin_round();
  std::thread other([&] {
    // Asked once this node waits for the verdict.
    EXPECT_TRUE(store_->get(key_of(node_keys::kEnded, "0/" + options_.self.id), soon()).ok());
    set(key_of(node_keys::kLook, "other"), to_text(LookRecord{.question = "q", .round = 0}));
    const auto answer = store_->get("seen/q/" + options_.self.id, soon());
    EXPECT_TRUE(answer.ok()) << answer.status().to_string();
    if (answer.ok()) {
      EXPECT_TRUE(parse_record<SeenRecord>(*answer)->ended);
    }
    set(node_keys::kVerdict, to_text(VerdictRecord{}));
  });
  session_->end_round({});
  other.join();
  EXPECT_TRUE(session_->verdict());
}

TEST_F(NodeSessionTest, GivesUpQuestionsAboutARoundThatIsOver) {
  begin_round();
  int answered = 0;
  session_->ask({}, 1h, [&](const auto& seen) {  // is being asked
    EXPECT_EQ(seen.size(), 2U);
    ++answered;
  });
  session_->ask({}, 1h, [&](const auto& seen) {  // and this one is not
    EXPECT_TRUE(seen.empty());
    ++answered;
  });
  std::thread coordinator([&] {
    EXPECT_TRUE(store_->get(key_of(node_keys::kEnded, "0/" + options_.self.id), soon()).ok());
    set(node_keys::kVerdict, to_text(VerdictRecord{}));
  });
  session_->end_round({});
  coordinator.join();
  EXPECT_TRUE(comes_true([&] { return answered == 2; }));
}

TEST(ObservedText, KeepsWhatAHangReportSays) {
  const auto now = Deadline::Clock::now();
  ObservedRank rank{
      .rank = 3, .pid = 47, .running = true, .state = "stopped by a signal", .shown = {}};
  rank.shown.process = 47;
  rank.shown.activities.push_back({.kind = ActivityKind::kCollective,
                                   .name = "world/1",
                                   .operation = "all_reduce",
                                   .sequence = 12,
                                   .dtype = DType::kF32,
                                   .count = 1000,
                                   .bytes = 4000,
                                   .members = 4,
                                   .since = now - 5s});
  const auto elsewhere = now + 1h;  // another machine's clock
  const auto read = parse_observed(serialize({rank}, now), elsewhere);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(describe_ranks(*read, 4, elsewhere), describe_ranks({rank}, 4, now));
}

TEST(ObservedText, RefusesNumbersOutOfRange) {
  const auto now = Deadline::Clock::now();
  ObservedRank rank{.rank = 1, .state = "running", .shown = {}};
  rank.shown.activities.push_back({.operation = "barrier", .lane = 1});
  std::string text = serialize({rank}, now);
  ASSERT_TRUE(parse_observed(text, now).ok());
  const auto lane = text.find("\"lane\":1");
  ASSERT_NE(lane, std::string::npos);
  for (const char* wrong : {"\"lane\":-1", "\"lane\":1e9", "\"lane\":99", "\"lane\":\"\""}) {
    std::string changed = text;
    EXPECT_FALSE(parse_observed(changed.replace(lane, 8, wrong), now).ok()) << wrong;
  }
}

}  // namespace
}  // namespace dlaunch
