// Ranks that wait for each other in calls of different kinds, and ranks that only look as if they
// did; with threads as ranks.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/bystanders.h"
#include "runtime/comm/communicator.h"
#include "tests/support/soon.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

Status receive(Communicator& comm, int peer, std::uint64_t tag = 0) {
  std::vector<float> data(3);
  return comm.recv(data, peer, tag);
}
Status send(Communicator& comm, int peer, std::uint64_t tag = 0) {
  const std::vector<float> data(3);
  return comm.send(data, peer, tag);
}
Status reduce_ten(Communicator& comm) {
  std::vector<float> data(10);
  return comm.all_reduce(data);
}

// --- waits that never end ------------------------------------------------------------------------

struct Standstill {
  std::string name;
  std::function<Status(Communicator&)> one;     // what rank 1 calls
  std::function<Status(Communicator&)> others;  // what the others call
  std::string words_of_one;
  std::string words_of_others;
};

std::vector<Standstill> standstills() {
  const auto barrier = [](Communicator& c) { return c.barrier(); };
  return {
      {"recv_and_collective", [](Communicator& c) { return receive(c, 0, 7); }, reduce_ten,
       "recv f32[3] from rank 0 tag 7", "blocking all_reduce sum f32[10]"},
      {"start_recv_and_collective",
       [](Communicator& c) {
         std::vector<double> data(2);
         return c.start_recv(data, 2).wait();
       },
       barrier, "recv f64[2] from rank 2", "blocking barrier"},
      {"recv_and_asynchronous_collective", [](Communicator& c) { return receive(c, 2); },
       [](Communicator& c) { return c.start_barrier(Priority::kHigh).wait(); },
       "recv f32[3] from rank 2", "high-priority barrier"},
      {"recv_and_gather_of_the_root", [](Communicator& c) { return receive(c, 0); },
       [](Communicator& c) {
         std::vector<float> output(c.rank() == 0 ? 6 : 0);
         const std::vector<float> input(2);
         const Status status = c.gather(input, output, 0);
         return status.ok() ? c.barrier() : status;  // who only sent goes on
       },
       "recv f32[3] from rank 0", "gather f32[6] root 0"},
      {"recv_and_recv", [](Communicator& c) { return receive(c, 0, 1); },
       [](Communicator& c) { return c.rank() == 0 ? receive(c, 1, 2) : c.barrier(); },
       "recv f32[3] from rank 0 tag 1", "recv f32[3] from rank 1 tag 2"},
      {"recv_after_messages_that_came",
       [](Communicator& c) {
         EXPECT_TRUE(receive(c, 0).ok());
         EXPECT_TRUE(send(c, 0).ok());
         return receive(c, 0);
       },
       [](Communicator& c) {
         if (c.rank() == 0) {
           EXPECT_TRUE(send(c, 1).ok());
           EXPECT_TRUE(receive(c, 1).ok());
         }
         return c.barrier();
       },
       "recv f32[3] from rank 0", "blocking barrier"},
  };
}

class WaitForEachOther : public ::testing::TestWithParam<std::size_t> {};

TEST_P(WaitForEachOther, IsFoundOutAndNamesBothCallsOnEveryRank) {
  const Standstill standstill = standstills()[GetParam()];
  const auto begin = Clock::now();
  run_threads_as_ranks(3, [&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    const Status status = comm.rank() == 1 ? standstill.one(comm) : standstill.others(comm);
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_THAT(status.to_string(),
                AllOf(HasSubstr(standstill.words_of_one), HasSubstr(standstill.words_of_others)))
        << "rank " << comm.rank();
    EXPECT_EQ(comm.barrier().code(), StatusCode::kMismatch) << "and it stays failed";
  });
  EXPECT_LT(Clock::now() - begin, kPromptly);
}

INSTANTIATE_TEST_SUITE_P(Kinds, WaitForEachOther,
                         ::testing::Range(std::size_t{0}, standstills().size()),
                         [](const auto& test) { return standstills()[test.param].name; });

// --- waits that end ------------------------------------------------------------------------------

// Longer than a call may stand still before its rank looks around, and than the looks after it.
constexpr auto kLate = 900ms;

TEST(WaitInARow, IsNoMistake) {
  run_threads_as_ranks(4, [](Communicator& comm) {
    // Rank 3 waits in a collective for the others, which wait for each other's messages, of which
    // the first is late.
    if (comm.rank() == 0) std::this_thread::sleep_for(kLate);
    if (comm.rank() > 0 && comm.rank() < 3) {
      EXPECT_TRUE(receive(comm, comm.rank() - 1).ok());
    }
    if (comm.rank() < 2) {
      EXPECT_TRUE(send(comm, comm.rank() + 1).ok());
    }
    const Status status = comm.barrier();
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

// Rank 2 waits for rank 3, which is late, to hand on its part to the root: it gets out of the call
// without rank 1, which waits for what it does then.
TEST(WaitOfARankThatHandsOnAPart, IsNoMistake) {
  if (share_memory()) GTEST_SKIP() << "there it waits for all";
  run_threads_as_ranks(4, [](Communicator& comm) {
    const std::vector<float> data(10, 1.0F);
    std::vector<float> sum(comm.rank() == 0 ? 10 : 0);
    if (comm.rank() == 3) std::this_thread::sleep_for(kLate);
    if (comm.rank() == 1) {
      EXPECT_TRUE(receive(comm, 2).ok());
    }
    const Status status = comm.reduce(data, sum, ReduceOp::kSum, 0);
    EXPECT_TRUE(status.ok()) << "rank " << comm.rank() << ": " << status.to_string();
    if (comm.rank() == 2) {
      EXPECT_TRUE(send(comm, 1).ok());
    }
  });
}

// The other thread has made no call before.
TEST(WaitOfTwoThreads, IsNoMistakeWhileTheOtherOneMayStillSend) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    std::thread other([&] {
      if (comm.rank() == 1) return;
      std::this_thread::sleep_for(kLate);
      EXPECT_TRUE(send(comm, 1).ok());
    });
    if (comm.rank() == 1) {
      EXPECT_TRUE(receive(comm, 0).ok());
    }
    const Status status = comm.barrier();
    EXPECT_TRUE(status.ok()) << status.to_string();
    other.join();
  });
}

TEST(WaitOfTwoThreads, IsNoMistakeWhileTheOtherOneMayStillStartACollective) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    const auto start_and_wait = [&] {
      const Status status = comm.start_barrier().wait();
      EXPECT_TRUE(status.ok()) << status.to_string();
    };
    std::thread other([&] {
      if (comm.rank() == 1) return;
      std::this_thread::sleep_for(kLate);
      start_and_wait();
    });
    if (comm.rank() == 1) start_and_wait();
    const Status status = comm.barrier();
    EXPECT_TRUE(status.ok()) << status.to_string();
    other.join();
  });
}

struct Indexed {
  std::int64_t index;
  std::int64_t value;
};
std::atomic<bool> adding_first{false};

// Rank 0 adds the first record, and takes its time.
struct AddSlowly {
  void operator()(Indexed& a, const Indexed& b) const {
    a.value += b.value;
    if (a.index > 0) return;
    adding_first = true;
    std::this_thread::sleep_for(kLate);
  }
};

// A call is made when start_...() returns, also while the progress thread is busy with another one.
TEST(WaitForARankBusyWithItsOwnReduction, IsNoMistake) {
  adding_first = false;
  run_threads_as_ranks(2, [&](Communicator& comm) {
    std::vector<Indexed> input(16'384);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = {static_cast<std::int64_t>(i), 1};
    std::vector<Indexed> output(input.size());
    Work reduction = comm.start_reduce_records(std::span<const Indexed>(input),
                                               std::span<Indexed>(output), AddSlowly(), 0);
    while (!adding_first) std::this_thread::yield();
    Work asynchronous = comm.start_barrier();
    const auto check = [&](const Status& status) {
      EXPECT_TRUE(status.ok()) << "rank " << comm.rank() << ": " << status.to_string();
    };
    if (comm.rank() == 1) check(asynchronous.wait());
    check(comm.barrier());
    check(asynchronous.wait());
    check(reduction.wait());
    if (comm.rank() == 0) {
      EXPECT_TRUE(std::ranges::all_of(output, [](const Indexed& sum) { return sum.value == 2; }));
    }
  });
}

// Old announcements of waits that have ended are not taken for new ones.
TEST(WaitThatHasEnded, IsForgotten) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    for (int turn = 0; turn < 2; ++turn) {
      // One waits in a recv while the other one is late, then the other way around.
      const bool late = comm.rank() == turn;
      if (late) std::this_thread::sleep_for(kLate / 2);
      const int peer = 1 - comm.rank();
      const Status status = late ? send(comm, peer) : receive(comm, peer);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
    if (comm.rank() == 0) std::this_thread::sleep_for(kLate / 2);
    const Status status = comm.barrier();
    EXPECT_TRUE(status.ok()) << status.to_string();
  });
}

// --- at the deadline -----------------------------------------------------------------------------

// Rank 1 waits for rank 2, which computes; rank 0 is ahead and waits for rank 1.
TEST(TimeoutOfARankAhead, TellsForWhomTheRankThatItWaitsForWaits) {
  std::latch done(3);
  run_threads_as_ranks(3, [&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    if (comm.rank() == 2) return done.arrive_and_wait();
    comm.set_timeout(comm.rank() == 0 ? 4s : 15s);
    std::vector<float> gathered(comm.rank() == 1 ? 6 : 0);
    const std::vector<float> input(2);
    Status status = comm.gather(input, gathered, 1);
    if (status.ok()) status = comm.broadcast(gathered, 1);
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    if (share_memory()) {  // there rank 0 stays in the gather, too
      EXPECT_THAT(status.to_string(), HasSubstr("waiting for rank 2"));
    } else {
      EXPECT_THAT(status.to_string(), AllOf(HasSubstr("timed out after 4 s waiting for rank 1"),
                                            HasSubstr("rank 1 waited in gather #2 f32[6] root 1"),
                                            HasSubstr("for rank 2")));
    }
    done.arrive_and_wait();
  });
}

// Another thread might still send, so nobody can be sure before.
TEST(TimeoutOfRanksThatWaitForEachOther, NamesBothCalls) {
  std::latch done(2);
  std::latch met(2);
  run_threads_as_ranks(2, [&](Communicator& comm) {
    std::thread thread([&] { done.wait(); });
    comm.set_timeout(4s);
    met.arrive_and_wait();
    const auto begin = Clock::now();
    const Status status = comm.rank() == 1 ? receive(comm, 0) : comm.barrier();
    EXPECT_GE(Clock::now() - begin, 1s);
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    EXPECT_THAT(status.to_string(),
                AllOf(HasSubstr("timed out after 4 s waiting for rank"),
                      HasSubstr("waits in recv f32[3] from rank 0"), HasSubstr("blocking barrier")))
        << "rank " << comm.rank();
    done.count_down();
    thread.join();
  });
}

// Whatever threads this process has.
TEST(Bystanders, CountOnlyAsLongAsTheyAreSomeAndWhereSomebodyWaits) {
  Bystanders all;
  for (const pid_t thread : threads_of_process()) all.add(thread);
  if (!all.nobody_but(kThisThread)) GTEST_SKIP() << "/proc cannot be read, or threads begin";
  EXPECT_FALSE(all.nobody_but(kNoThread));
  constexpr pid_t kOfNoProcess = std::numeric_limits<pid_t>::max();
  EXPECT_TRUE(all.nobody_but(kOfNoProcess));
  { const Bystanders::Stay stay(all); }
  EXPECT_FALSE(all.nobody_but(kOfNoProcess));  // this thread is none any more
  EXPECT_TRUE(all.nobody_but(kThisThread));
}

}  // namespace
}  // namespace dlaunch::testing
