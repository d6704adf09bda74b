// A rank that is killed or stopped while the others wait for it in calls of every kind; and what a
// rank forks, which is none.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/communicator.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr int kWorld = 4;
constexpr int kVictim = 2;

class DeadRanks : public ::testing::TestWithParam<const char*> {
 protected:
  static ForkedRanks::Options options() {
    return {.hosts = std::vector<int>(kWorld, 0),
            .environment = {{"DLAUNCH_TRANSPORT", GetParam()}}};
  }
};

// What every call in progress says about the victim; blocks until they have ended.
std::string wait_in_every_kind_of_call(Communicator& world, LineChannel& test, StatusCode code,
                                       const std::string& words) {
  std::vector<float> bucket(1'000'003);
  std::vector<float> small(7);
  std::vector<double> message(5);
  std::vector<double> blocking(1'001);
  std::vector<std::pair<std::string, Work>> works{
      {"asynchronous", world.start_all_reduce(bucket)},
      {"high priority",
       world.start_all_reduce(small, ReduceOp::kSum, Algorithm::kAuto, Priority::kHigh)},
      {"message", world.start_recv(message, kVictim)}};
  test.write_line("ready");
  std::vector<std::pair<std::string, Status>> ended{{"blocking", world.all_reduce(blocking)}};
  for (auto& [name, work] : works) ended.emplace_back(name, work.wait(10s));
  ended.emplace_back("later", world.barrier());
  for (const auto& [name, status] : ended) {
    if (status.code() != code || status.to_string().find(words) == std::string::npos) {
      return name + ": " + status.to_string();
    }
  }
  return "as expected";
}

std::string wait_for_the_end(LineChannel& test) {
  test.write_line("ready");
  (void)test.read_line(Deadline::after(60s));
  return "not killed";
}

void expect_ready(ForkedRanks& ranks) {
  for (int rank = 0; rank < kWorld; ++rank) {
    ASSERT_EQ(ranks[rank].read_line(Deadline::after(30s)), "ready") << "rank " << rank;
  }
}

TEST_P(DeadRanks, KilledFailEveryCallInProgressOnEveryRankPromptly) {
  ForkedRanks ranks(options(), [](Communicator& world, LineChannel& test) {
    if (world.rank() == kVictim) return wait_for_the_end(test);
    return wait_in_every_kind_of_call(world, test, StatusCode::kPeerLost, "peer 2: ");
  });
  ASSERT_NO_FATAL_FAILURE(expect_ready(ranks));
  ranks.send_signal(kVictim, SIGKILL);
  const auto killed = Clock::now();
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_EQ(ranks[rank].read_line(Deadline::after(20s)), "as expected") << "rank " << rank;
  }
  EXPECT_LT(Clock::now() - killed, kPromptly);
}

TEST_P(DeadRanks, StoppedAreNamedAtTheDeadline) {
  ForkedRanks ranks(options(), [](Communicator& world, LineChannel& test) {
    if (world.rank() == kVictim) return wait_for_the_end(test);
    world.set_timeout(4s);
    return wait_in_every_kind_of_call(world, test, StatusCode::kTimeout, "waiting for rank 2");
  });
  ASSERT_NO_FATAL_FAILURE(expect_ready(ranks));
  ranks.send_signal(kVictim, SIGSTOP);
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_EQ(ranks[rank].read_line(Deadline::after(20s)), "as expected") << "rank " << rank;
  }
}

// It gives up while a message of it is on its way to a rank that has not come to take it: two
// ranks, of which there is no third that could tell.
TEST_P(DeadRanks, ThatGaveUpInTheMiddleOfAMessageHaveSaidWhy) {
  ForkedRanks::Options two = options();
  two.hosts.resize(2);
  ForkedRanks ranks(two, [](Communicator& world, LineChannel& test) -> std::string {
    std::vector<float> data(6'000'000);
    if (world.rank() == 0) {
      const Work work = world.start_all_reduce(data);
      (void)test.read_line(Deadline::after(60s));
      world.abort(Status(StatusCode::kIo, "sample 17 cannot be read"));
      test.write_line("gone");
      ::_exit(0);
    }
    (void)test.read_line(Deadline::after(60s));
    return world.start_all_reduce(data).wait().to_string();
  });
  std::this_thread::sleep_for(300ms);  // for it to be on its way
  ranks[0].write_line("give up");
  ASSERT_EQ(ranks[0].read_line(Deadline::after(20s)), "gone");
  ranks[1].write_line("go on");
  EXPECT_THAT(ranks[1].read_line(Deadline::after(20s)).value_or("nothing"),
              HasSubstr("sample 17 cannot be read (reported by rank 0)"));
}

// The receiver comes when the sender has given up, and over TCP takes the rest of the message from
// a connection that parts: that must not make a success of it, for the communicator has failed.
TEST_P(DeadRanks, SendersThatGaveUpSaySoThoughTheirMessageArrives) {
  ForkedRanks::Options two = options();
  two.hosts.resize(2);
  ForkedRanks ranks(two, [](Communicator& world, LineChannel& test) -> std::string {
    std::vector<float> data(6'000'000);
    if (Status met = world.barrier(); !met.ok()) return met.to_string();
    if (world.rank() == 1) {
      (void)test.read_line(Deadline::after(60s));
      (void)world.recv(data, 0);
      return "came";
    }
    world.set_timeout(1s);
    const Status sent = world.send(data, 1);
    test.write_line("gave up");
    return sent.to_string() + "; " + world.barrier().to_string();
  });
  ASSERT_EQ(ranks[0].read_line(Deadline::after(20s)), "gave up");
  ranks[1].write_line("now");
  EXPECT_EQ(ranks[1].read_line(Deadline::after(20s)), "came");
  const std::string said = ranks[0].read_line(Deadline::after(20s)).value_or("nothing");
  EXPECT_THAT(said, HasSubstr("send f32[6000000] to rank 1: timed out after 1 s"));
  EXPECT_THAT(said, HasSubstr("; the communicator failed earlier: send"));
}

// The victim tells its color and comes no further: rank 1 of the part, but rank 2 for who called.
TEST_P(DeadRanks, ThatDoNotComeToASplitAreNamedAtItsDeadline) {
  ForkedRanks ranks(options(), [](Communicator& world, LineChannel& test) -> std::string {
    std::vector<std::int64_t> color{0, 0};
    std::vector<std::int64_t> colors(2 * kWorld);
    if (world.rank() == kVictim) {
      const CollectiveCall told{
          .kind = CollectiveKind::kAllGather, .input = color, .output = colors, .of_split = true};
      if (const Status status = world.run(told); !status.ok()) return status.to_string();
      return wait_for_the_end(test);
    }
    world.set_timeout(4s);
    const auto begin = Clock::now();
    const auto part = world.split(world.rank() == 0 ? 1 : 0, 0);
    if (world.rank() == 0) return part.ok() ? "as expected" : part.status().to_string();
    const std::string words = part.status().to_string();
    const bool right = part.status().code() == StatusCode::kTimeout &&
                       words.find("timed out after 4 s waiting for rank 2") != words.npos;
    return right && Clock::now() - begin < kPromptly ? "as expected" : words;
  });
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_EQ(ranks[rank].read_line(Deadline::after(30s)), "as expected") << "rank " << rank;
  }
}

// The child's calls are refused. It destroys its copies of everything, threads and locks included.
std::string fork_in_the_middle(Communicator& /*world*/, LineChannel& /*test*/) {
  auto world = connect_world().value_or_throw();
  SharedMemory memory = world->allocate(100'000).value_or_throw();
  std::ranges::fill(memory.as<int>(), 7);
  std::vector<int> late(5, 1);
  Work pending = world->rank() == 0 ? Work::finished(Status()) : world->start_all_reduce(late);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(10);
    std::vector<int> own(1);
    const Status refused[]{world->barrier(),
                           world->send(own, world->rank()),
                           world->recv(own, world->rank()),
                           world->start_all_reduce(own).wait(),
                           world->start_send(own, world->rank()).wait(),
                           world->start_recv(own, world->rank()).wait(),
                           world->split(0, 0).status(),
                           world->allocate(100).status()};
    for (const Status& status : refused)
      if (status.code() != StatusCode::kInvalidArgument) ::_exit(1);
    world->abort(Status(StatusCode::kAborted, "by the child"));
    memory = SharedMemory();
    world.reset();
    ::_exit(0);
  }
  int ended = -1;
  ::waitpid(child, &ended, 0);
  if (ended != 0) return "the child ended with " + std::to_string(ended);
  const Status met = world->barrier();
  if (!met.ok()) return met.to_string();
  if (world->rank() == 0) pending = world->start_all_reduce(late);
  const Status reduced = pending.wait();
  if (!reduced.ok()) return reduced.to_string();
  if (late != std::vector<int>(5, kWorld)) return "wrong sums";
  const bool kept = std::ranges::count(memory.as<int>(), 7) == std::ssize(memory.as<int>());
  return kept ? "as expected" : "the memory has lost what was in it";
}

TEST_P(DeadRanks, ChildrenOfRanksDisturbNobodyWhenTheyEnd) {
  ForkedRanks ranks(options(), fork_in_the_middle);
  for (int rank = 0; rank < kWorld; ++rank) {
    EXPECT_EQ(ranks[rank].read_line(Deadline::after(30s)), "as expected") << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, DeadRanks, ::testing::Values("shm", "tcp"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace dlaunch::testing
