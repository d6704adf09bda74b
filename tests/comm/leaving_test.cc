// Ranks that leave in order: what they have sent still comes, and nobody waits for them in vain.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds kTimeout{25};

class LeavingRanks : public ::testing::TestWithParam<const char*> {
 protected:
  static ForkedRanks::Options options(std::chrono::nanoseconds timeout = kTimeout) {
    return {.timeout = timeout, .environment = {{"DLAUNCH_TRANSPORT", GetParam()}}};
  }
  static bool is_tcp() { return std::string(GetParam()) == "tcp"; }
  // Of a message that waits for its receiver, but not its sender: in the systems of both, or in the
  // segment.
  static std::size_t bytes() { return is_tcp() ? 300'000 : 1'000; }
};

// Sends, and leaves. Its communicator is one of its own, which it can destroy.
std::string send_and_leave(std::size_t bytes, LineChannel& test) {
  auto world = connect_world().value_or_throw();
  const std::vector<std::uint8_t> data(bytes, 7);
  const Status sent = world->send(data, 1);
  if (!sent.ok()) return sent.to_string();
  test.write_line("sent");
  world.reset();
  return "left";
}

std::string receive(std::size_t bytes, Communicator& world) {
  std::vector<std::uint8_t> data(bytes);
  const Status received = world.recv(data, 0);
  if (!received.ok()) return received.to_string();
  return data == std::vector<std::uint8_t>(bytes, 7) ? "received" : "garbled";
}

// It has something for the one that has left, which a socket that is closed answers with a reset.
TEST_P(LeavingRanks, HaveTheirMessagesReceivedThoughTheReceiverSendsFirst) {
  ForkedRanks ranks(options(), [](Communicator& first, LineChannel& test) -> std::string {
    if (first.rank() == 0) return send_and_leave(bytes(), test);
    const auto world = connect_world().value_or_throw();
    if (test.read_line(soon()) != "go on") return "?";
    const std::vector<std::uint8_t> task(1);
    Work sent = world->start_send(task, 0, 5);
    return receive(bytes(), *world);
  });
  ASSERT_EQ(ranks[0].read_line(soon()), "sent");
  // Over TCP it stays for as long as the receiver does not come.
  const auto left = ranks[0].read_line(Deadline::after(is_tcp() ? 1s : 20s));
  EXPECT_EQ(left, is_tcp() ? std::nullopt : std::optional<std::string>("left"));
  ranks[1].write_line("go on");
  EXPECT_EQ(ranks[1].read_line(Deadline::after(20s)), "received");
  if (is_tcp()) {
    EXPECT_EQ(ranks[0].read_line(Deadline::after(20s)), "left");
  }
}

TEST_P(LeavingRanks, SayGoodbyeToWhoWaitsInOtherCallsBeforeTheirMessagesHaveCome) {
  ForkedRanks ranks(options(), [](Communicator& first, LineChannel& test) -> std::string {
    if (first.rank() == 0) return send_and_leave(bytes(), test);
    const auto world = connect_world().value_or_throw();
    const Status status = world->barrier();
    return status.code() == StatusCode::kPeerLeft ? "has left" : status.to_string();
  });
  const Deadline promptly = Deadline::after(kPromptly);
  EXPECT_EQ(ranks[1].read_line(promptly), "has left");
  EXPECT_EQ(ranks[0].read_line(promptly), "sent");
  EXPECT_EQ(ranks[0].read_line(promptly), "left");
}

TEST_P(LeavingRanks, GoAfterTheirTimeoutIfNobodyReceives) {
  ForkedRanks ranks(options(1500ms), [](Communicator& first, LineChannel& test) -> std::string {
    if (first.rank() == 0) return send_and_leave(bytes(), test);
    const auto world = connect_world().value_or_throw();
    (void)test.read_line(soon());
    return "never received";
  });
  EXPECT_EQ(ranks[0].read_line(soon()), "sent");
  EXPECT_EQ(ranks[0].read_line(Deadline::after(kPromptly)), "left");
}

INSTANTIATE_TEST_SUITE_P(Transports, LeavingRanks, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace dlaunch::testing
