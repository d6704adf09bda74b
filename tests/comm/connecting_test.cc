// A rank that cannot connect to the world, while the others can.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/forked_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Nothing else than an endpoint needs one, on a rank that leads no others.
void forbid_eventfds() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_eventfd2, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{.len = std::size(program), .filter = program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

class Connecting : public ::testing::TestWithParam<const char*> {};

// The last one has met the others and shared memory with them, or has connected to them, when it
// finds that it can make no endpoint.
TEST_P(Connecting, SaysWhyAnotherRankHasGivenUpLate) {
  const ForkedRanks::Options options{.hosts = {0, 0, 1},
                                     .environment = {{"DLAUNCH_TRANSPORT", GetParam()}},
                                     .enter = [](int host) {
                                       if (host == 1) forbid_eventfds();
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

INSTANTIATE_TEST_SUITE_P(Transports, Connecting, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace dlaunch::testing
