// A rank, a process, that is killed while the others' devices wait for it.
#include <csignal>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/device/device_communicator.h"
#include "tests/device/fake_device.h"
#include "tests/support/forked_ranks.h"

namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kWorld = 3;
constexpr int kVictim = 1;

/// The status that calls return as soon as the communicator has failed.
Status next_failure(Communicator& world) {
  const Deadline deadline = Deadline::after(15s);
  std::vector<float> own(1);
  while (!deadline.expired()) {
    // A message to oneself needs no other rank.
    Status status = world.send(own, world.rank());
    if (status.ok()) status = world.recv(own, world.rank());
    if (!status.ok()) return status;
    std::this_thread::sleep_for(1ms);
  }
  return Status();
}

/// Queues collectives that the victim never joins, and says what comes of them.
std::string wait_for_the_victim(DeviceWorld& world, FakeDevice& device, LineChannel& test) {
  constexpr std::size_t kCount = 1000;
  const auto bucket = device.allocate(kCount * sizeof(float)).value_or_throw();
  const auto statistics = device.allocate(kCount * sizeof(double)).value_or_throw();
  Work work = world.start_all_reduce(Buffer(bucket.get(), kCount, DType::kF32));
  const bool staged = world.path() == DevicePathKind::kStaging;
  test.write_line("ready");
  // By staging the host waits here; else everything is only queued.
  const Status blocking = world.all_reduce(Buffer(statistics.get(), kCount, DType::kF64));
  const Status waited = work.wait();
  for (const Status& status : {blocking, waited, next_failure(world)}) {
    if (status.ok() && !staged) continue;
    if (status.code() != StatusCode::kPeerLost || status.peer() != kVictim)
      return status.to_string();
  }
  return device.synchronise() ? "as expected" : "the streams still wait";
}

class KilledRanks : public ::testing::TestWithParam<DevicePathKind> {};

TEST_P(KilledRanks, FailTheOthersLongBeforeTheDeadlineAndTheirStreamsRunOn) {
  ForkedRanks ranks({.hosts = std::vector<int>(kWorld, 0), .timeout = 300s},
                    [](Communicator& world, LineChannel& test) -> std::string {
                      const auto device = std::make_shared<FakeDevice>();
                      const auto on_device =
                          make_device_communicator(
                              world.split(0, world.rank()).value_or_throw(), device,
                              {.path = GetParam(),
                               .timeout = 300s,
                               .memory = MemoryPathOptions{.slot_bytes = 1 << 16}})
                              .value_or_throw();
                      if (world.rank() != kVictim)
                        return wait_for_the_victim(*on_device, *device, test);
                      test.write_line("ready");
                      (void)test.read_line(Deadline::after(60s));
                      return "not killed";
                    });
  for (int rank = 0; rank < kWorld; ++rank)
    ASSERT_EQ(ranks[rank].read_line(Deadline::after(30s)), "ready") << "rank " << rank;
  ranks.send_signal(kVictim, SIGKILL);
  for (int rank = 0; rank < kWorld; ++rank) {
    if (rank == kVictim) continue;
    EXPECT_EQ(ranks[rank].read_line(Deadline::after(40s)), "as expected") << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, KilledRanks,
                         ::testing::Values(DevicePathKind::kIpc, DevicePathKind::kStaging),
                         [](const auto& path) { return std::string(to_string(path.param)); });

}  // namespace
}  // namespace dlaunch::testing
