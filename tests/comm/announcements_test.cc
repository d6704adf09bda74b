// What ranks tell each other of calls that stand still, without the calls.
#include "runtime/comm/announcements.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/collective/types.h"
#include "tests/support/sanitized.h"
#include "tests/support/soon.h"
#include "transport/loopback/loopback.h"

namespace dlaunch::testing {
namespace {

using ::testing::HasSubstr;

class TwoRanks : public ::testing::Test {
 protected:
  // Rank 0 begins as many barriers, and tells rank 1 that the first one waits.
  std::string trail_of_the_first_of(std::uint64_t calls) {
    const MessageSignature barrier{.operation =
                                       static_cast<std::uint8_t>(CollectiveKind::kBarrier)};
    const Deadline::Clock::time_point begin = Deadline::Clock::now();
    for (std::uint64_t number = 1; number <= calls; ++number) {
      zero_.called(LaneKind::kAsync, number);
      EXPECT_TRUE(zero_.entered(LaneKind::kAsync, number, barrier).ok());
    }
    const Announcements::Wait wait{.lane = LaneKind::kAsync, .sequence = 1, .waiting_for = {1}};
    EXPECT_TRUE(zero_.look_around(wait, true).ok());
    EXPECT_TRUE(one_.look_around({.lane = LaneKind::kBlocking, .message = {.peer = 0}}, true).ok());
    EXPECT_TRUE(one_.silent(LaneKind::kAsync, calls).empty()) << "rank 1 has heard nothing";
    return one_.trail(0, begin);
  }

  LoopbackNetwork network_{2};
  Announcements zero_{network_.endpoint(0)};
  Announcements one_{network_.endpoint(1)};
};

TEST_F(TwoRanks, TellWhichCallWaits) {
  EXPECT_THAT(trail_of_the_first_of(200), HasSubstr("rank 0 waited in barrier #1 "));
}

TEST_F(TwoRanks, TellNoOtherCallThanTheOneThatWaits) {
  EXPECT_EQ(trail_of_the_first_of(300), "");
}

// Rank 1 never reads what it is sent, and its ring is full.
class WithoutReader final : public Endpoint {
 public:
  explicit WithoutReader(std::unique_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}

  int rank() const override { return endpoint_->rank(); }
  int world_size() const override { return endpoint_->world_size(); }
  void start_send(Transfer& transfer) override {
    if (transfer.peer != 1) endpoint_->start_send(transfer);
  }
  void start_recv(Transfer& transfer) override { endpoint_->start_recv(transfer); }
  void cancel(Transfer& transfer, Status why) override {
    endpoint_->cancel(transfer, std::move(why));
  }
  void poll(Deadline deadline, const Readiness* also) override { endpoint_->poll(deadline, also); }
  void wake() override { endpoint_->wake(); }
  Status failure() const override { return endpoint_->failure(); }
  void fail(Status why) override { endpoint_->fail(std::move(why)); }
  const char* transport_name(int peer) const override { return endpoint_->transport_name(peer); }

 private:
  std::unique_ptr<Endpoint> endpoint_;
};

TEST(AnnouncementsOfWaits, AreNotKeptForOthersBehindThoseOfARankThatNeverListens) {
  if (kSanitized) GTEST_SKIP() << "sanitizers allocate memory themselves";
  constexpr int kRounds = 30;
  constexpr int kCalls = 50;  // that another rank may leave unanswered
  LoopbackNetwork network(3);
  Announcements zero(std::make_unique<WithoutReader>(network.endpoint(0)));
  Announcements two(network.endpoint(2));
  const MessageSignature barrier{.operation = static_cast<std::uint8_t>(CollectiveKind::kBarrier)};
  std::uint64_t number = 0;
  // Until it knows that `rank` has made call `number`.
  const auto listen_for = [&](Announcements& who, int rank) {
    const Deadline deadline = soon();
    while (std::ranges::count(who.silent(LaneKind::kBlocking, number), rank) > 0) {
      ASSERT_FALSE(deadline.expired()) << "rank " << rank << " has not been heard";
      ASSERT_TRUE(who.look_around({.sequence = number, .waiting_for = {1}}, false).ok());
    }
  };
  std::vector<std::size_t> in_use;
  for (int round = 0; round < kRounds; ++round) {
    for (int call = 0; call < kCalls; ++call) {
      ++number;
      for (Announcements* const each : {&zero, &two}) {
        each->called(LaneKind::kBlocking, number);
        ASSERT_TRUE(each->entered(LaneKind::kBlocking, number, barrier).ok());
      }
      ASSERT_TRUE(zero.look_around({.sequence = number, .waiting_for = {1}}, true).ok());
    }
    ASSERT_TRUE(two.look_around({.message = {.peer = 0}}, true).ok());  // from then on it listens
    ASSERT_NO_FATAL_FAILURE(listen_for(two, 0));
    ASSERT_NO_FATAL_FAILURE(listen_for(zero, 2));
    in_use.push_back(::mallinfo2().uordblks);
  }
  ASSERT_FALSE(two.trail(0, {}).empty()) << "rank 2 has heard nothing";
  // Kept would be some 300 bytes of each.
  EXPECT_LT(in_use.back(), in_use[kRounds / 3] + std::size_t{kRounds} * kCalls * 50);
}

}  // namespace
}  // namespace dlaunch::testing
