// The coordinator beside a store: what becomes of the last that its own node says.
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "launcher/nodes/coordinator_thread.h"
#include "runtime/base/logging.h"
#include "runtime/base/token.h"
#include "runtime/rendezvous/store_server.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {
namespace {

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
        NodeCoordinator::Options{.nodes = "1", .version = "1.0", .host_id = "1"});
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

}  // namespace
}  // namespace dlaunch::testing
