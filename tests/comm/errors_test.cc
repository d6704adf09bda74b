// What ranks are told when something goes wrong, with threads as ranks.
#include <chrono>
#include <functional>
#include <latch>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/soon.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// --- ranks that call different things ------------------------------------------------------------

struct Disagreement {
  std::string name;
  std::function<Status(Communicator&)> odd;     // what one rank calls
  std::function<Status(Communicator&)> others;  // what the others call
  std::string odd_words;
  std::string others_words;
};

std::vector<float> floats(std::size_t count = 60) {
  return std::vector<float>(count, 1.0F);
}

Status all_reduce(Communicator& comm, std::size_t count, ReduceOp op = ReduceOp::kSum,
                  Algorithm algorithm = Algorithm::kRing) {
  auto data = floats(count);
  return comm.all_reduce(data, op, algorithm);
}
Status broadcast(Communicator& comm, int root) {
  auto data = floats();
  return comm.broadcast(data, root);
}
Status gather(Communicator& comm, int root) {
  const auto input = floats(2);
  auto output = floats(comm.rank() == root ? 2 * static_cast<std::size_t>(comm.size()) : 0);
  return comm.gather(input, output, root);
}
Status all_gather(Communicator& comm, std::vector<std::size_t> counts) {
  const auto input = floats(counts[static_cast<std::size_t>(comm.rank())]);
  auto output = floats(8);
  return comm.all_gather(input, output, counts);
}

std::vector<Disagreement> disagreements() {
  std::vector<Disagreement> cases;
  const auto add = [&](std::string name, auto odd, auto others, std::string odd_words,
                       std::string others_words) {
    cases.push_back({std::move(name), odd, others, std::move(odd_words), std::move(others_words)});
  };
  add(
      "operation", [](Communicator& c) { return c.barrier(); },
      [](Communicator& c) { return all_reduce(c, 60); }, "barrier", "all_reduce sum f32[60]");
  add(
      "dtype",
      [](Communicator& c) {
        std::vector<std::int32_t> data(60);
        return c.all_reduce(data, ReduceOp::kSum, Algorithm::kRing);
      },
      [](Communicator& c) { return all_reduce(c, 60); }, "i32[60]", "f32[60]");
  add(
      "count", [](Communicator& c) { return all_reduce(c, 61); },
      [](Communicator& c) { return all_reduce(c, 60); }, "f32[61]", "f32[60]");
  add(
      "zero_count", [](Communicator& c) { return all_reduce(c, 0); },
      [](Communicator& c) { return all_reduce(c, 60); }, "f32[0]", "f32[60]");
  add(
      "reduction", [](Communicator& c) { return all_reduce(c, 60, ReduceOp::kMax); },
      [](Communicator& c) { return all_reduce(c, 60, ReduceOp::kAvg); }, "max", "avg");
  add(
      "algorithm",
      [](Communicator& c) { return all_reduce(c, 60, ReduceOp::kSum, Algorithm::kButterfly); },
      [](Communicator& c) { return all_reduce(c, 60); }, "butterfly", "ring");
  add(
      "counts",
      [](Communicator& c) {
        return all_gather(c, {1, 2, 3, 2});
      },
      [](Communicator& c) {
        return all_gather(c, {1, 3, 2, 2});
      },
      "counts", "counts");
  // Here no message meets a wrong receive: each side only sends, or only waits. A rank that only
  // sent finds out in its next call.
  add(
      "broadcast_root_odd_is_0", [](Communicator& c) { return broadcast(c, 0); },
      [](Communicator& c) { return broadcast(c, 2); }, "root 0", "root 2");
  add(
      "broadcast_root_odd_is_2", [](Communicator& c) { return broadcast(c, 2); },
      [](Communicator& c) { return broadcast(c, 0); }, "root 2", "root 0");
  add(
      "gather_root", [](Communicator& c) { return gather(c, 0); },
      [](Communicator& c) { return gather(c, 2); }, "gather f32[8] root 0", "gather f32[8] root 2");
  return cases;
}

class Mismatch : public ::testing::TestWithParam<std::tuple<std::size_t, int>> {};

// A rank whose part in the wrong call is only to send learns of it in its next call, which it makes
// at once.
TEST_P(Mismatch, IsToldToEveryRankAndNamesBothCalls) {
  const auto [index, odd_rank] = GetParam();
  const Disagreement disagreement = disagreements()[index];
  const int world = 4;
  const auto begin = Clock::now();
  std::latch passed(world);  // or the mismatch might end another rank's barrier
  run_threads_as_ranks(world, [&, odd = odd_rank](Communicator& comm) {
    EXPECT_TRUE(comm.barrier().ok());
    passed.arrive_and_wait();
    Status status = comm.rank() == odd ? disagreement.odd(comm) : disagreement.others(comm);
    if (status.ok()) status = comm.barrier();
    EXPECT_EQ(status.code(), StatusCode::kMismatch)
        << "rank " << comm.rank() << ": " << status.to_string();
    EXPECT_THAT(status.to_string(),
                AllOf(HasSubstr(disagreement.odd_words), HasSubstr(disagreement.others_words)))
        << "rank " << comm.rank();
    // And it stays failed.
    EXPECT_EQ(comm.barrier().code(), StatusCode::kMismatch);
    EXPECT_EQ(comm.start_barrier().wait(5s).code(), StatusCode::kMismatch);
  });
  EXPECT_LT(Clock::now() - begin, kPromptly);
}

INSTANTIATE_TEST_SUITE_P(Cases, Mismatch,
                         ::testing::Combine(::testing::Range(std::size_t{0},
                                                             disagreements().size()),
                                            ::testing::Values(0, 3)),
                         [](const auto& test) {
                           return disagreements()[std::get<0>(test.param)].name + "_rank_" +
                                  std::to_string(std::get<1>(test.param));
                         });

// Every rank sends to a root that does not see itself as one, and is done: nobody waits for
// anything.
TEST(MismatchWithoutAnyReceive, IsFoundByTheNextCollective) {
  std::latch sent(3);
  run_threads_as_ranks(3, [&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    const std::vector<float> input{1, 2};
    std::vector<float> nothing;
    const int root = comm.rank() == 1 ? 2 : 1;
    EXPECT_TRUE(comm.gather(input, nothing, root).ok());
    sent.arrive_and_wait();
    const Status status = comm.barrier();
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_THAT(
        status.to_string(),
        AllOf(HasSubstr("barrier #3 after gather f32[6] root " + std::to_string(root)),
              HasSubstr("called gather f32[6] root 1"), HasSubstr("called gather f32[6] root 2")));
  });
}

TEST(MismatchOfAsynchronousCalls, IsToldToEveryRank) {
  const auto begin = Clock::now();
  run_threads_as_ranks(3, [](Communicator& comm) {
    std::vector<float> first(5);
    std::vector<float> second(comm.rank() == 2 ? 7 : 6);
    Work ok = comm.start_all_reduce(first);
    Work wrong = comm.start_all_reduce(second);
    const Status status = wrong.wait(10s);
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_THAT(status.to_string(), AllOf(HasSubstr("f32[6]"), HasSubstr("f32[7]")));
    (void)ok.wait(10s);
    EXPECT_EQ(comm.barrier().code(), StatusCode::kMismatch) << "blocking calls fail too";
  });
  EXPECT_LT(Clock::now() - begin, kPromptly);
}

TEST(MismatchOfMessages, NamesBothCounts) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    std::vector<double> data(comm.rank() == 0 ? 3 : 4);
    Status status = comm.rank() == 0 ? comm.send(data, 1) : comm.recv(data, 0);
    if (status.ok()) status = comm.barrier();  // the sender may be done before the receiver looks
    EXPECT_EQ(status.code(), StatusCode::kMismatch) << status.to_string();
    EXPECT_THAT(status.to_string(), AllOf(HasSubstr("f64[3]"), HasSubstr("f64[4]")));
  });
}

// --- ranks that die ------------------------------------------------------------------------------

TEST(KilledRank, IsNamedByEveryOtherRankInBlockingAndAsynchronousCalls) {
  for (const bool asynchronous : {false, true}) {
    const int world = 5;
    ThreadWorld network(world);
    std::latch connected(world);  // not a barrier of theirs, which the death might end
    const auto begin = Clock::now();
    run_threads_as_ranks(network, world, [&](Communicator& comm) {
      connected.arrive_and_wait();
      if (comm.rank() == 3) {
        network.kill(3);
        return;
      }
      std::vector<float> data(100'000);
      const Status status =
          asynchronous ? comm.start_all_reduce(data).wait(10s) : comm.all_reduce(data);
      EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.to_string();
      EXPECT_EQ(status.peer(), 3) << status.to_string();
      EXPECT_THAT(status.to_string(), AllOf(HasSubstr("all_reduce #"), HasSubstr("peer 3")));
      EXPECT_EQ(comm.all_reduce(data).code(), StatusCode::kPeerLost);
      EXPECT_EQ(comm.start_barrier().wait(5s).peer(), 3);
    });
    EXPECT_LT(Clock::now() - begin, kPromptly);
  }
}

TEST(LeavingRank, IsNamedByThoseThatStillNeedIt) {
  run_threads_as_ranks(4, [](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    if (comm.rank() == 1) return;
    const Status status = comm.barrier();
    EXPECT_EQ(status.code(), StatusCode::kPeerLeft) << status.to_string();
    EXPECT_EQ(status.peer(), 1) << status.to_string();
  });
}

std::size_t count_of(std::string_view words, std::string_view text) {
  std::size_t found = 0;
  for (std::size_t at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++found;
  return found;
}

// Most ranks hear of it from another one, which hears of it in several lanes.
TEST(LeavingRank, IsReportedInAnOperationThatIsNamedOnce) {
  run_threads_as_ranks(6, [](Communicator& comm) {
    std::vector<float> data(1'000);
    std::vector<float> second(10);
    std::vector<float> third(10);
    const Status met = comm.barrier();
    if (comm.rank() == 1) {
      ASSERT_TRUE(met.ok()) << met.to_string();
      return;
    }
    if (!met.ok()) return;  // a rank that was faster has met with the failure already
    Work work = comm.start_all_reduce(second);
    Work high = comm.start_all_reduce(third, ReduceOp::kMax, Algorithm::kAuto, Priority::kHigh);
    for (const Status& status :
         {comm.all_reduce(data, ReduceOp::kSum, Algorithm::kRing), work.wait(), high.wait()}) {
      const std::string text = status.to_string();
      EXPECT_LE(count_of("(reported by rank ", text), 1U) << text;
      for (const char* name : {"all_reduce #1 sum f32[10]", "all_reduce #1 max f32[10]",
                               "all_reduce #2 sum f32[1000] ring"}) {
        EXPECT_LE(count_of(name, text), 1U) << text;
      }
    }
  });
}

TEST(LeavingRank, DoesNotDisturbThoseThatDoNotNeedIt) {
  run_threads_as_ranks(3, [](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    if (comm.rank() == 2) return;
    for (int i = 0; i < 20; ++i) {
      std::vector<std::int32_t> data{comm.rank()};
      const int peer = 1 - comm.rank();
      std::vector<std::int32_t> received(1);
      Work recv = comm.start_recv(received, peer);
      ASSERT_TRUE(comm.start_send(data, peer).wait().ok());
      ASSERT_TRUE(recv.wait().ok());
      EXPECT_EQ(received[0], peer);
    }
  });
}

// --- ranks that do not come ----------------------------------------------------------------------

// In a ring only one rank waits for the missing one directly; the others must not blame each other.
TEST(Timeout, NamesTheMissingRankOnEveryRank) {
  const int world = 4;
  std::latch done(world);
  run_threads_as_ranks(world, [&](Communicator& comm) {
    ASSERT_TRUE(comm.barrier().ok());
    comm.set_timeout(4s);
    std::vector<float> data(40);
    if (comm.rank() == 2) done.arrive_and_wait();
    const Status status = comm.all_reduce(data, ReduceOp::kSum, Algorithm::kRing);
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    EXPECT_THAT(status.to_string(), HasSubstr("timed out after 4 s waiting for rank 2"));
    if (comm.rank() != 2) done.arrive_and_wait();
  });
}

TEST(Timeout, OfAMessageNamesItsSender) {
  std::latch gave_up(1);
  run_threads_as_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      gave_up.wait();
      EXPECT_EQ(comm.barrier().code(), StatusCode::kTimeout);
      return;
    }
    comm.set_timeout(50ms);
    std::vector<float> data(3);
    Work receive = comm.start_recv(data, 1, 9);
    std::this_thread::sleep_for(100ms);
    EXPECT_FALSE(receive.done());  // nobody has waited for it
    const auto begin = std::chrono::steady_clock::now();
    const Status status = receive.wait();
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 50ms);
    gave_up.count_down();
    EXPECT_EQ(status.code(), StatusCode::kTimeout);
    EXPECT_EQ(status.to_string(),
              "recv f32[3] from rank 1 tag 9: timed out after 0.05 s waiting for rank 1");
  });
}

TEST(Timeout, OfAReceiveFromAnyRankSaysSo) {
  run_threads_as_ranks(1, [&](Communicator& comm) {
    comm.set_timeout(50ms);
    std::vector<float> data(3);
    EXPECT_EQ(comm.recv(data, kAnyRank, 9).to_string(),
              "recv f32[3] from any rank tag 9: timed out after 0.05 s waiting for any rank");
  });
}

TEST(Timeout, NotAboveZeroFailsWhateverHasToWait) {
  std::latch gave_up(1);
  run_threads_as_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return gave_up.wait();
    comm.set_timeout(-1s);
    std::vector<float> data(3);
    EXPECT_EQ(comm.recv(data, 1).code(), StatusCode::kTimeout);
    gave_up.count_down();
  });
}

TEST(SlowRank, IsWaitedForWithoutHarm) {
  run_threads_as_ranks(3, [](Communicator& comm) {
    for (int round = 0; round < 2; ++round) {
      if (comm.rank() == round) {
        // Being late is what is tested: the others announce meanwhile that they wait.
        std::this_thread::sleep_for(450ms);
      }
      std::vector<std::int32_t> data{1};
      ASSERT_TRUE(comm.all_reduce(data).ok());
      EXPECT_EQ(data[0], 3);
    }
  });
}

// --- giving up -----------------------------------------------------------------------------------

TEST(Abort, EndsWhatIsInProgressOnEveryRankWithItsReason) {
  const auto begin = Clock::now();
  std::latch connected(3);
  run_threads_as_ranks(3, [&](Communicator& comm) {
    connected.arrive_and_wait();
    std::vector<float> data(7);
    if (comm.rank() == 0) {
      Work pending = comm.start_all_reduce(data);
      comm.abort(Status(StatusCode::kIo, "the disk is full"));
      EXPECT_EQ(pending.wait(5s).code(), StatusCode::kIo);
      return;
    }
    const Status status =
        comm.rank() == 1 ? comm.all_reduce(data) : comm.start_all_reduce(data).wait(5s);
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("the disk is full"));
  });
  EXPECT_LT(Clock::now() - begin, kPromptly);
}

TEST(Abort, EndsABlockingCallOfAnotherThread) {
  run_threads_as_ranks(2, [](Communicator& comm) {
    if (comm.rank() == 1) {
      EXPECT_EQ(comm.barrier().code(), StatusCode::kAborted);
      return;
    }
    std::vector<float> data(7);
    std::thread other([&] { EXPECT_EQ(comm.recv(data, 1).code(), StatusCode::kAborted); });
    comm.abort(Status(StatusCode::kAborted, "enough"));
    other.join();
  });
}

}  // namespace
}  // namespace dlaunch::testing
