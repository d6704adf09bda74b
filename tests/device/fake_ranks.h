// Ranks as threads, each with a FakeDevice and a communicator over its memory.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "runtime/device/device_communicator.h"
#include "tests/device/fake_device.h"
#include "tests/support/thread_ranks.h"

namespace dlaunch::testing {

struct FakeRank {
  std::shared_ptr<FakeDevice> device;
  std::unique_ptr<DeviceWorld> communicator;  // goes first
};

/// Runs `body` on `world` threads, all ranks on one fake device, or on those that `device_of` makes
/// for them, and waits for all.
inline void run_fake_ranks(
    ThreadWorld& network, int world, DeviceCommunicatorOptions options,
    const std::function<void(FakeRank)>& body,
    const std::function<FakeDeviceOptions(int)>& device_of = [](int) {
      return FakeDeviceOptions();
    }) {
  std::vector<std::unique_ptr<Communicator>> hosts;
  for (int rank = 0; rank < world; ++rank) {
    hosts.push_back(network.communicator(rank, {.timeout = options.timeout}));
  }
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (auto& host : hosts) {
    threads.emplace_back([&, host = std::move(host)]() mutable {
      try {
        FakeRank rank{.device = std::make_shared<FakeDevice>(device_of(host->rank()))};
        rank.communicator =
            make_device_communicator(std::move(host), rank.device, options).value_or_throw();
        body(std::move(rank));
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (first == nullptr) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first != nullptr) std::rethrow_exception(first);
}

inline void run_fake_ranks(int world, const DeviceCommunicatorOptions& options,
                           const std::function<void(FakeRank)>& body) {
  ThreadWorld network(world);
  run_fake_ranks(network, world, options, body);
}

}  // namespace dlaunch::testing
