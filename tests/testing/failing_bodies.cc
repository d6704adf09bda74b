// Tests that fail, hang, crash or skip on purpose, for reported_failures_test.cc.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string_view>

#include "tests/support/distributed_test.h"

namespace dlaunch::testing {
namespace {

using std::chrono::seconds;

TEST(Failing, ExpectationOnOneRank) {
  run_on_ranks(4, [](Communicator& world) {
    std::cout << "hello from rank " << world.rank() << std::endl;
    EXPECT_NE(world.rank(), 2) << "two is \"too\" much";
  });
}

TEST(Failing, ExpectationBeforeTheCallOnARank) {
  EXPECT_EQ(std::getenv("RANK"), nullptr) << "before the call";
  run_on_ranks(2, [](Communicator&) {});
}

TEST(Failing, ExpectationsOnEveryRank) {
  run_on_ranks(3, [](Communicator& world) {
    EXPECT_EQ(world.rank(), 100);
    EXPECT_EQ(world.rank(), 200);
  });
}

TEST(Failing, AssertionWhilePeersWait) {
  run_on_ranks(3, [](Communicator& world) {
    ASSERT_NE(world.rank(), 1) << "the root cause";
    const Status status = world.barrier();
    EXPECT_TRUE(status.ok()) << status.to_string();
    std::cout << "rank " << world.rank() << " came to its end" << std::endl;
  });
}

TEST(Failing, Exception) {
  run_on_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) throw std::runtime_error("thrown by rank 1");
  });
}

TEST(Failing, Crash) {
  run_on_ranks(3, [](Communicator& world) {
    if (world.rank() == 1) {
      std::fputs("last words\n", stderr);
      std::abort();
    }
    (void)world.barrier();
  });
}

TEST(Failing, ExitCode) {
  run_on_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) std::_Exit(7);
  });
}

TEST(Failing, EarlyExitWithSuccess) {
  run_on_ranks(2, [](Communicator& world) {
    if (world.rank() == 1) std::_Exit(0);
  });
}

TEST(Failing, Hang) {
  const auto body = [](Communicator& world) {
    while (world.rank() % 2 == 1) ::pause();
  };
  run_on_ranks(4, body, {.deadline = seconds(10)});
}

TEST(Failing, HangBeforeTheBody) {
  const char* rank = std::getenv("RANK");  // NOLINT(concurrency-mt-unsafe): read only
  if (rank != nullptr && std::string_view(rank) == "0") ::pause();
  run_on_ranks(2, [](Communicator&) {}, {.deadline = seconds(2)});
}

TEST(Failing, CallWithinABody) {
  run_on_ranks(2, [](Communicator&) { run_on_ranks(2, [](Communicator&) {}); });
}

TEST(Failing, NoWorkers) {
  run_on_ranks(0, [](Communicator&) {});
}

TEST(Failing, SecondCall) {
  run_on_ranks(2, [](Communicator&) { std::cout << "first job" << std::endl; });
  run_on_ranks(2, [](Communicator& world) {
    std::cout << "second job" << std::endl;
    EXPECT_NE(world.rank(), 0);
  });
}

TEST(Passing, Talkative) {
  run_on_ranks(2, [](Communicator& world) {
    std::cout << "rank " << world.rank() << " says [  FAILED  ] on stdout" << std::endl;
    std::cerr << "rank " << world.rank() << " says [  FAILED  ] on stderr" << std::endl;
  });
}

TEST(Passing, SkipOnEveryRank) {
  run_on_ranks(3, [](Communicator&) { GTEST_SKIP() << "no such device"; });
}

TEST(Passing, SkipOnOneRank) {
  run_on_ranks(3, [](Communicator& world) {
    if (world.rank() == 1) GTEST_SKIP() << "nothing to do";
  });
}

}  // namespace
}  // namespace dlaunch::testing
