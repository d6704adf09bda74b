// What goes wrong while nobody waits on the host: found by the watch, told to all ranks, and the
// streams run on.
#include <chrono>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/device/failing_ranks.h"
#include "tests/device/fake_ranks.h"
#include "tests/device/fake_stream.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

DeviceCommunicatorOptions over(DevicePathKind path, std::chrono::nanoseconds timeout = 60s) {
  return {.path = path,
          .timeout = timeout,
          .memory = MemoryPathOptions{.slot_bytes = 1 << 16, .one_shot_bytes = 1 << 12}};
}

class DeviceFailures : public ::testing::TestWithParam<int> {
 protected:
  int world() const { return GetParam(); }
  int last() const { return GetParam() - 1; }
};

TEST_P(DeviceFailures, RankThatDoesNotCallIsNamedAtTheDeadline) {
  run_fake_ranks(world(), over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 1000);
    EXPECT_TRUE(rank.communicator->barrier().ok());  // now they are not far apart
    rank.communicator->set_timeout(5s);
    if (rank.communicator->rank() != last()) {
      EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok()) << "it is only queued";
    }
    const Status status = failure_of(rank);
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
    EXPECT_EQ(status.peer(), last()) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("all_reduce #1 sum f32[1000] over ipc"));
    EXPECT_THAT(status.to_string(), HasSubstr("timed out after 5 s on the device"));
    EXPECT_EQ(rank.communicator->barrier().code(), StatusCode::kTimeout) << "the host's end too";
    expect_the_streams_run_on(rank);
  });
}

TEST_P(DeviceFailures, DeadRankFailsTheOthersLongBeforeTheDeadline) {
  for (const auto path : {DevicePathKind::kIpc, DevicePathKind::kStaging}) {
    ThreadWorld network(world());
    run_fake_ranks(network, world(), over(path), [&](FakeRank rank) {
      Ones data(rank, 1000);
      Communicator& comm = *rank.communicator;
      const bool queued = path == DevicePathKind::kIpc;
      if (queued && comm.rank() != last()) {
        EXPECT_TRUE(comm.start_all_reduce(data.buffer()).wait().ok());
      }
      tell_the_last_rank(comm);
      if (comm.rank() == last()) return network.kill(last());
      const Status status = queued ? failure_of(rank) : comm.all_reduce(data.buffer());
      EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.to_string();
      EXPECT_EQ(status.peer(), last()) << status.to_string();
      expect_the_streams_run_on(rank);
    });
  }
}

// While a thread waits for the device within the driver, all who ask for events wait for it.
TEST_P(DeviceFailures, DeadRankLetsGoAThreadThatWaitsForTheDeviceWithinTheDriver) {
  ThreadWorld network(world());
  run_fake_ranks(network, world(), over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 1000);
    const bool dies = rank.communicator->rank() == last();
    if (!dies) {
      EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
    }
    tell_the_last_rank(*rank.communicator);
    if (dies) return network.kill(last());
    EXPECT_TRUE(rank.device->synchronise_within_the_driver());
    const Status status = failure_of(rank);
    EXPECT_EQ(status.code(), StatusCode::kPeerLost) << status.to_string();
  });
}

TEST_P(DeviceFailures, DeadlineLetsGoAThreadThatWaitsForTheDeviceWithinTheDriver) {
  run_fake_ranks(world(), over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 1000);
    EXPECT_TRUE(rank.communicator->barrier().ok());  // now they are not far apart
    rank.communicator->set_timeout(2s);
    if (rank.communicator->rank() != last()) {
      EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
      EXPECT_TRUE(rank.device->synchronise_within_the_driver());
    }
    const Status status = failure_of(rank);
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
    EXPECT_EQ(status.peer(), last()) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("timed out after 2 s on the device"));
  });
}

TEST_P(DeviceFailures, AbortLetsGoAThreadThatWaitsForTheDeviceWithinTheDriver) {
  run_fake_ranks(world(), over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 1000);
    const bool aborts = rank.communicator->rank() == last();
    if (!aborts) {
      EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
    }
    tell_the_last_rank(*rank.communicator);
    if (aborts) rank.communicator->abort(Status(StatusCode::kIo, "the disk is full"));
    EXPECT_TRUE(rank.device->synchronise_within_the_driver());
    EXPECT_EQ(failure_of(rank).code(), StatusCode::kIo);
  });
}

TEST_P(DeviceFailures, RankThatLeavesEarlyIsNamed) {
  run_fake_ranks(world(), over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 10);
    const bool leaves = rank.communicator->rank() == last();
    if (!leaves) {
      EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
    }
    tell_the_last_rank(*rank.communicator);
    if (leaves) return;
    const Status status = failure_of(rank);
    EXPECT_EQ(status.code(), StatusCode::kPeerLeft) << status.to_string();
    expect_the_streams_run_on(rank);
  });
}

TEST_P(DeviceFailures, RankThatAbortsTellsTheOthersWhy) {
  run_fake_ranks(world(), over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 10);
    const bool aborts = rank.communicator->rank() == last();
    if (!aborts) {
      EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
    }
    tell_the_last_rank(*rank.communicator);
    if (aborts) rank.communicator->abort(Status(StatusCode::kIo, "the disk is full"));
    const Status status = failure_of(rank);
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("the disk is full"));
    expect_the_streams_run_on(rank);
  });
}

TEST_P(DeviceFailures, StagedCallThatTheDeviceHasNotComeToEndsWithTheCommunicator) {
  run_fake_ranks(world(), over(DevicePathKind::kStaging), [&](FakeRank rank) {
    Ones data(rank, 10);
    const auto released = std::make_shared<std::latch>(1);
    EXPECT_TRUE(rank.device->compute().call([released] { released->wait(); }).ok());
    Work work = rank.communicator->start_all_reduce(data.buffer());
    rank.communicator.reset();
    const Status status = work.wait();
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("the communicator was destroyed"));
    released->count_down();
  });
}

TEST_P(DeviceFailures, OfAStagedCallIsThatOfAllFurtherCalls) {
  run_fake_ranks(world(), over(DevicePathKind::kStaging), [&](FakeRank rank) {
    Ones data(rank, 10);
    Communicator& comm = *rank.communicator;
    Work work = comm.rank() == last() ? comm.start_broadcast(data.buffer(), 0)
                                      : comm.start_all_reduce(data.buffer());
    const Status status = work.wait();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(comm.start_all_reduce(data.buffer()).wait().code(), status.code());
    EXPECT_EQ(comm.all_reduce(data.buffer()).code(), status.code());
  });
}

TEST_P(DeviceFailures, FailureOnTheHostIsOneOnTheDevice) {
  std::latch connected(world());  // else the failure may come to a rank that is still connecting
  run_fake_ranks(world(), over(DevicePathKind::kIpc), [&](FakeRank rank) {
    connected.arrive_and_wait();
    std::vector<float> data(10);
    Communicator& comm = *rank.communicator;
    const Status mismatch = comm.rank() == last() ? comm.broadcast(data, 0) : comm.all_reduce(data);
    EXPECT_EQ(mismatch.code(), StatusCode::kMismatch) << mismatch.to_string();
    EXPECT_EQ(failure_of(rank).code(), StatusCode::kMismatch);
  });
}

TEST_P(DeviceFailures, RankThatLeavesEarlyWaitsForTheOthersToCloseItsMemoryAndNoLonger) {
  std::latch gone(1);
  run_fake_ranks(world(), over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 40'000);
    EXPECT_TRUE(rank.communicator->start_all_reduce(data.buffer()).wait().ok());
    EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
    if (rank.communicator->rank() == last()) {
      rank.communicator.reset();
      EXPECT_EQ(rank.device->freed_while_open(), 0);
      gone.count_down();
      return;
    }
    gone.wait();  // with a communicator that is still there
    ASSERT_TRUE(rank.device->synchronise());
    EXPECT_EQ(data.values()[39'999], static_cast<float>(world() * world()));
    const Status status = rank.communicator->all_reduce(data.buffer());
    EXPECT_EQ(status.code(), StatusCode::kPeerLeft) << status.to_string();
    EXPECT_EQ(status.peer(), last()) << status.to_string();
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, DeviceFailures, ::testing::Values(2, 3, 5));

// Where only this rank of `comm` starts something, which is staged.
void expect_a_timeout(FakeRank& rank, Communicator& comm, const char* words) {
  Ones data(rank, 10);
  const Status status = comm.start_all_reduce(data.buffer()).wait();
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
  EXPECT_THAT(status.to_string(), HasSubstr(words));
}

TEST(DeviceCommunicator, EndsWhatIsStagedAtTheDeadlineThatWasSetLast) {
  std::latch ended(2);
  run_fake_ranks(2, over(DevicePathKind::kStaging), [&](FakeRank rank) {
    rank.communicator->set_timeout(500ms);
    if (rank.communicator->rank() == 0) {
      expect_a_timeout(rank, *rank.communicator, "timed out after 0.5 s waiting for rank 1");
    }
    ended.arrive_and_wait();
  });
}

TEST(DeviceCommunicator, HandsTheDeadlineThatWasSetLastOnToItsParts) {
  std::latch ended(2);
  run_fake_ranks(2, over(DevicePathKind::kStaging), [&](FakeRank rank) {
    rank.communicator->set_timeout(5s);
    const auto part = rank.communicator->split(0, 0).value_or_throw();
    if (part->rank() == 0) {
      expect_a_timeout(rank, *part, "timed out after 5 s waiting for rank 1");
    }
    ended.arrive_and_wait();
  });
}

// Some have left theirs, and others noticed that, when the slowest is still connecting its own.
TEST(DeviceCommunicator, MayBeLeftAsSoonAsItIsThere) {
  for (int number = 0; number < 100; ++number) {
    EXPECT_NO_THROW(run_fake_ranks(8, over(DevicePathKind::kIpc), [](const FakeRank&) {}));
  }
}

TEST(DeviceCommunicator, FreesItsMemoryWhenNobodyHasItOpenAnyMore) {
  for (int i = 0; i < 10; ++i) {
    run_fake_ranks(3, over(DevicePathKind::kIpc), [&](FakeRank rank) {
      Ones data(rank, 10);
      EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
      rank.communicator.reset();
      EXPECT_EQ(rank.device->freed_while_open(), 0);
    });
  }
}

TEST(DeviceCommunicator, FreesItsMemoryNoSoonerWhenARankCouldNotOpenIt) {
  run_fake_ranks(3, over(DevicePathKind::kStaging), [&](FakeRank rank) {
    const bool opens = rank.communicator->rank() != 1;
    const auto device = std::make_shared<FakeDevice>(FakeDeviceOptions{.opens_memory = opens});
    auto host = rank.communicator->split(0, 0).value_or_throw();
    const Status status =
        make_device_communicator(std::move(host), device, over(DevicePathKind::kIpc)).status();
    EXPECT_THAT(status.to_string(), HasSubstr("a fake device that opens no memory"));
    EXPECT_EQ(device->freed_while_open(), 0);
  });
}

TEST(DeviceCommunicator, DoesWhatCanBeRepeatedFromARecording) {
  run_fake_ranks(3, over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones small(rank, 10);      // one shot
    Ones large(rank, 40'000);  // in slices, several rounds
    rank.device->begin_capture();
    EXPECT_TRUE(rank.communicator->all_reduce(small.buffer()).ok());
    EXPECT_TRUE(rank.communicator->all_reduce(large.buffer()).ok());
    const auto recording = rank.device->end_capture();
    for (int i = 0; i < 4; ++i) rank.device->replay(*recording);
    EXPECT_TRUE(rank.communicator->all_reduce(small.buffer()).ok()) << "others may follow";
    ASSERT_TRUE(rank.device->synchronise());
    EXPECT_EQ(small.values()[9], 243.0F);
    for (std::size_t i = 0; i < 40'000; ++i) ASSERT_EQ(large.values()[i], 81.0F);
  });
}

// Of odd numbers of rounds: one may begin with the slot in which the one before has ended.
TEST(DeviceCommunicator, RepeatsRecordingsInAnyOrderThatAllRanksHave) {
  run_fake_ranks(3, over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones small(rank, 10);      // one round
    Ones large(rank, 40'000);  // three
    std::vector<std::shared_ptr<FakeRecording>> recordings;
    for (Ones* const data : {&small, &large}) {
      rank.device->begin_capture();
      EXPECT_TRUE(rank.communicator->all_reduce(data->buffer()).ok());
      recordings.push_back(rank.device->end_capture());
    }
    for (const std::size_t next : {0U, 0U, 1U, 1U, 1U, 0U, 1U, 0U}) {
      rank.device->replay(*recordings[next]);
      if (next == 0) {
        EXPECT_TRUE(rank.communicator->all_reduce(small.buffer()).ok());
      }
    }
    ASSERT_TRUE(rank.device->synchronise());
    EXPECT_EQ(small.values()[9], 6561.0F);
    for (std::size_t i = 0; i < 40'000; ++i) ASSERT_EQ(large.values()[i], 81.0F);
  });
}

TEST(DeviceCommunicator, RecordsWhatIsStartedBesideTheComputation) {
  run_fake_ranks(3, over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones first(rank, 10);
    Ones second(rank, 5000);
    rank.device->begin_capture();
    Work one = rank.communicator->start_all_reduce(first.buffer());
    Work two = rank.communicator->start_all_reduce(second.buffer());
    EXPECT_FALSE(two.done()) << "it was only recorded";
    EXPECT_TRUE(one.wait().ok());
    EXPECT_TRUE(two.wait().ok());
    const auto recording = rank.device->end_capture();
    EXPECT_EQ(second.values()[0], 1.0F);
    for (int i = 0; i < 2; ++i) rank.device->replay(*recording);
    EXPECT_TRUE(rank.communicator->start_all_reduce(first.buffer()).wait().ok());
    ASSERT_TRUE(rank.device->synchronise());
    EXPECT_EQ(first.values()[9], 27.0F);
    EXPECT_EQ(second.values()[4999], 9.0F);
  });
}

// With what is computed in between: what repeats it starts one thing after the other.
TEST(DeviceCommunicator, RecordsCallsOfOneStreamAsAStraightLine) {
  run_fake_ranks(3, over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 10);
    Ones other(rank, 10);
    DeviceStream& compute = rank.device->compute();
    rank.device->begin_capture();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
      EXPECT_TRUE(compute.copy(other.values(), data.values(), 10 * sizeof(float)).ok());
    }
    const auto recording = rank.device->end_capture();
    EXPECT_TRUE(recording->is_straight_line());
    EXPECT_TRUE(rank.communicator->repeat([&] { rank.device->replay(*recording); }).ok());
    ASSERT_TRUE(rank.device->synchronise());
    EXPECT_EQ(other.values()[9], 27.0F);
  });
}

// Parts of a recording that do not depend on each other are done in another order on each rank.
TEST(DeviceCommunicator, RecordsCallsOfAllLanesInOneOrder) {
  run_fake_ranks(3, over(DevicePathKind::kIpc), [&](FakeRank rank) {
    EXPECT_EQ(rank.communicator->why_not_recorded(), "");
    Ones started(rank, 5000);
    Ones urgent(rank, 50);
    Ones blocking(rank, 10);
    rank.device->begin_capture();
    std::vector<Work> works;
    for (int i = 0; i < 3; ++i) {
      works.push_back(rank.communicator->start_all_reduce(started.buffer()));
      works.push_back(rank.communicator->start_all_reduce(urgent.buffer(), ReduceOp::kSum,
                                                          Algorithm::kAuto, Priority::kHigh));
      EXPECT_TRUE(rank.communicator->all_reduce(blocking.buffer()).ok());
    }
    for (Work& work : works) EXPECT_TRUE(work.wait().ok());
    const auto recording = rank.device->end_capture();
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(rank.communicator->repeat([&] { rank.device->replay(*recording); }).ok());
    }
    ASSERT_TRUE(rank.device->synchronise());
    for (Ones* const data : {&started, &urgent, &blocking}) EXPECT_EQ(data->values()[9], 729.0F);
  });
}

TEST(DeviceCommunicator, RepeatedRecordingHasTheTimeOfACallAndNamesWhoIsMissing) {
  run_fake_ranks(3, over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 10);
    rank.device->begin_capture();
    Work work = rank.communicator->start_all_reduce(data.buffer());
    EXPECT_TRUE(work.wait().ok());
    const auto recording = rank.device->end_capture();
    EXPECT_TRUE(rank.communicator->barrier().ok());  // now they are not far apart
    rank.communicator->set_timeout(5s);
    if (rank.communicator->rank() != 2) {
      EXPECT_TRUE(rank.communicator->repeat([&] { rank.device->replay(*recording); }).ok());
    }
    const Status status = failure_of(rank);
    EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.to_string();
    EXPECT_EQ(status.peer(), 2) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("recorded calls, repeat #1 over ipc"));
    expect_the_streams_run_on(rank);
    const auto never = [] { FAIL() << "it has failed"; };
    EXPECT_FALSE(rank.communicator->repeat(never).ok());
  });
}

TEST(DeviceCommunicator, LetsGoOfALeaversMemoryWhenWhatWasRecordedIsForgotten) {
  std::latch gone(1);
  run_fake_ranks(3, over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 10);
    rank.device->begin_capture();
    EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok());
    {
      const auto recording = rank.device->end_capture();
      EXPECT_TRUE(rank.communicator->repeat([&] { rank.device->replay(*recording); }).ok());
      ASSERT_TRUE(rank.device->synchronise());
    }
    if (rank.communicator->rank() == 2) {
      rank.communicator.reset();  // not before the others have closed its memory
      EXPECT_EQ(rank.device->freed_while_open(), 0);
      gone.count_down();
      return;
    }
    rank.communicator->forget_recordings();
    gone.wait();
    EXPECT_EQ(data.values()[9], 3.0F);
  });
}

TEST(DeviceCommunicator, SaysWhyCallsAreNotRecordedIfOneDeviceCannot) {
  ThreadWorld network(3);
  run_fake_ranks(
      network, 3, over(DevicePathKind::kIpc),
      [&](FakeRank rank) {
        EXPECT_THAT(rank.communicator->why_not_recorded(),
                    AllOf(HasSubstr("does not record the flags, "),
                          HasSubstr("rank 1: flags are not recorded")));
      },
      [](int rank) { return FakeDeviceOptions{.records_flags = rank != 1}; });
}

// The device does not call the host back then.
TEST(DeviceCommunicator, DeviceThatFailsEndsWhatWasStartedByWayOfTheHostOnAllRanks) {
  run_fake_ranks(3, over(DevicePathKind::kStaging), [&](FakeRank rank) {
    Ones data(rank, 10);
    std::uint32_t never = 0;
    const bool fails = rank.communicator->rank() == 1;
    if (fails) {
      const FlagAction wait{.kind = FlagAction::Kind::kWaitUntilEqual, .flag = &never, .value = 1};
      EXPECT_TRUE(rank.device->compute().flags({&wait, 1}).ok());
    }
    Work work = rank.communicator->start_all_reduce(data.buffer());
    if (fails) rank.device->fail();
    const auto begin = std::chrono::steady_clock::now();
    const Status status = work.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPromptly);
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.to_string();
    EXPECT_THAT(status.to_string(), HasSubstr("all_reduce: the fake device has failed"));
    EXPECT_THAT(failure_of(rank).to_string(), HasSubstr("the fake device has failed"));
  });
}

TEST(DeviceCommunicator, RefusesToRecordWhatGoesThroughTheHost) {
  run_fake_ranks(2, over(DevicePathKind::kStaging), [&](FakeRank rank) {
    EXPECT_THAT(rank.communicator->why_not_recorded(), HasSubstr("staging"));
    Ones data(rank, 10);
    rank.device->begin_capture();
    EXPECT_EQ(rank.communicator->all_reduce(data.buffer()).code(), StatusCode::kUnavailable);
    (void)rank.device->end_capture();
    EXPECT_TRUE(rank.communicator->all_reduce(data.buffer()).ok()) << "that was harmless";
  });
}

TEST(DeviceCommunicator, RefusesBuffersInDifferentMemoryInOneLine) {
  run_fake_ranks(2, over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 10);
    std::vector<float> output(20);
    const Status status = rank.communicator->all_gather(data.buffer(), output);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.to_string(),
              "all_gather: one buffer is in device memory, another in the host's");
  });
}

TEST(DeviceCommunicator, TakesTheNextPathWhenOneCannotBeConnected) {
  run_fake_ranks(2, over(DevicePathKind::kAuto), [&](FakeRank rank) {
    // Slots do not fit.
    const auto small = std::make_shared<FakeDevice>(FakeDeviceOptions{.memory = 1 << 14});
    auto host = rank.communicator->split(0, 0);
    ASSERT_TRUE(host.ok());
    auto made = make_device_communicator(*std::move(host), small, over(DevicePathKind::kAuto));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_THAT((*made)->reason(),
                AllOf(HasSubstr("ipc could not be connected ("), HasSubstr("out of device memory"),
                      HasSubstr("it always works")));
    const auto memory = small->allocate(100).value_or_throw();
    EXPECT_TRUE((*made)->all_reduce(Buffer(memory.get(), 10, DType::kF32)).ok());
    auto again = rank.communicator->split(0, 0);
    const Status forced =
        make_device_communicator(*std::move(again), small, over(DevicePathKind::kIpc)).status();
    EXPECT_THAT(forced.to_string(), HasSubstr("out of device memory"));
  });
}

TEST(DeviceCommunicator, TakesTheNextPathWhenStreamsOfOneRankDoNotWaitForFlags) {
  run_fake_ranks(2, over(DevicePathKind::kStaging), [&](FakeRank rank) {
    const bool passes = rank.communicator->rank() == 0;
    const auto device = std::make_shared<FakeDevice>(FakeDeviceOptions{.passes_flags = passes});
    const auto connect = [&](DevicePathKind path) {
      auto host = rank.communicator->split(0, 0).value_or_throw();
      return make_device_communicator(std::move(host), device, over(path, 10s));
    };
    const auto any = connect(DevicePathKind::kAuto).value_or_throw();
    EXPECT_EQ(any->path(), DevicePathKind::kStaging);
    EXPECT_EQ(device->pinned(), passes ? 0 : 1) << "where a stream still waits it must stay";
    const auto memory = device->allocate(100).value_or_throw();
    EXPECT_TRUE(any->all_reduce(Buffer(memory.get(), 10, DType::kF32)).ok());
    const Status forced = connect(DevicePathKind::kIpc).status();
    EXPECT_EQ(forced.code(), StatusCode::kUnavailable) << forced.to_string();
    EXPECT_THAT(forced.to_string(), HasSubstr("streams do not wait for flags"));
  });
}

TEST(DeviceCommunicator, MovesMessagesBetweenTheMemoriesOfDeviceAndHost) {
  run_fake_ranks(2, over(DevicePathKind::kIpc), [&](FakeRank rank) {
    Ones data(rank, 10);
    std::vector<float> received(10);
    if (rank.communicator->rank() == 0) {
      EXPECT_TRUE(rank.communicator->send(data.buffer(), 1, 4).ok());
    } else {
      EXPECT_TRUE(rank.communicator->recv(received, 0, 4).ok());
      EXPECT_EQ(received, std::vector<float>(10, 1.0F));
    }
  });
}

}  // namespace
}  // namespace dlaunch::testing
