// A rank that cannot connect to the world, while the others can.
#include <sys/resource.h>
#include <sys/syscall.h>

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/descriptor_room.h"
#include "runtime/comm/communicator.h"
#include "tests/support/forbidden_call.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/sanitized.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Connecting : public ::testing::TestWithParam<const char*> {};

// The last one has met the others and shared memory with them, or has connected to them, when it
// finds that it can make no endpoint.
TEST_P(Connecting, SaysWhyAnotherRankHasGivenUpLate) {
  const ForkedRanks::Options options{.hosts = {0, 0, 1},
                                     .environment = {{"DLAUNCH_TRANSPORT", GetParam()}},
                                     .enter = [](int host) {
                                       // Which nothing else than an endpoint needs, on a rank
                                       // that leads no others.
                                       if (host == 1) forbid_system_call(SYS_eventfd2);
                                     }};
  ForkedRanks ranks(options,
                    [](Communicator&, LineChannel&) -> std::string { return "connected"; });
  EXPECT_THAT(ranks[2].read_line(Deadline::after(60s)).value_or("nothing"), HasSubstr("eventfd"));
  for (const int rank : {0, 1}) {
    EXPECT_THAT(ranks[rank].read_line(Deadline::after(60s)).value_or("nothing"),
                AllOf(HasSubstr("peer 2: gave up: "), HasSubstr("eventfd")))
        << "rank " << rank;
  }
}

// Rank 2 may open what it takes to meet the others, and no connections to them: nobody waits for
// it.
TEST_P(Connecting, SaysOnEveryRankWhoHasTooFewDescriptors) {
  if (kSanitized)
    GTEST_SKIP() << "a sanitizer opens a pipe to look at an object, and takes it for bad otherwise";
  const bool tcp = std::string(GetParam()) == "tcp";
  const ForkedRanks::Options options{
      .hosts = {0, 0, 1},
      .timeout = 60s,
      .environment = {{"DLAUNCH_TRANSPORT", GetParam()}},
      .enter = [tcp](int host) {
        // It shares memory before it is known that it has no room for the rest.
        const auto room = static_cast<rlim_t>(descriptor_room().open + (tcp ? 12 : 24));
        const rlimit low{.rlim_cur = room, .rlim_max = room};
        if (host == 1) ::setrlimit(RLIMIT_NOFILE, &low);
      }};
  ForkedRanks ranks(options,
                    [](Communicator&, LineChannel&) -> std::string { return "connected"; });
  const Deadline promptly = Deadline::after(kPromptly);
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(
        ranks[rank].read_line(promptly).value_or("nothing"),
        AllOf(HasSubstr("rank 2 may open "), HasSubstr("raise its hard limit (ulimit -Hn) from ")))
        << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Connecting, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace dlaunch::testing
