// For whom a collective in shared memory waits.
#include <deque>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/collective/shared_execution.h"
#include "transport/loopback/loopback.h"

namespace dlaunch {
namespace {

using Members = std::vector<int>;
constexpr int kBarrierMembers = 4;

// A barrier, of which each member's steps are taken here.
class SharedBarrier : public testing::Test {
 protected:
  SharedBarrier() {
    for (int member = 0; member < kBarrierMembers; ++member) {
      endpoints_.push_back(network_.endpoint(member));
      executions_.emplace_back(*endpoints_.back(), sequences_.emplace_back(), nullptr);
    }
  }

  SharedExecution& of(int member) { return executions_[static_cast<std::size_t>(member)]; }

  void enter(int member) {
    const SharedShape shape{.kind = CollectiveKind::kBarrier,
                            .member = member,
                            .members = kBarrierMembers,
                            .slot = SharedGroup::slot_bytes(SharedGroup::Channel::kShort)};
    of(member).start({.plan = std::make_shared<SharedPlan>(shared_plan(shape))});
    of(member).advance();
  }

  LoopbackNetwork network_{kBarrierMembers, nullptr, true};
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::deque<SharedSequence> sequences_;
  std::deque<SharedExecution> executions_;
};

TEST_F(SharedBarrier, AwaitsOneMemberAfterTheOtherBeginningWithTheNeighbour) {
  enter(1);
  EXPECT_EQ(of(1).awaited_member(), 2);
  EXPECT_EQ(of(1).waiting_for(), (Members{0, 2, 3}));
  enter(0);
  EXPECT_FALSE(of(1).ready()) << "member 2 is the one that it waits for";
  enter(2);
  EXPECT_TRUE(of(1).ready());
  of(1).advance();
  EXPECT_EQ(of(1).awaited_member(), 3);
  EXPECT_EQ(of(1).waiting_for(), Members{3});
  enter(3);
  EXPECT_TRUE(of(3).done()) << "it was the last";
  of(1).advance();
  EXPECT_TRUE(of(1).done());
  EXPECT_EQ(of(1).awaited_member(), Readiness::kAnyMember);
}

}  // namespace
}  // namespace dlaunch
