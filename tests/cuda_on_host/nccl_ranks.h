// Ranks as threads, each with a fake device of its own, over the stand-in for NCCL.
#pragma once

#include <chrono>
#include <functional>

#include "runtime/cuda/nccl_path.h"
#include "tests/device/fake_ranks.h"

namespace dlaunch::testing {

inline void run_nccl_ranks(int world, std::chrono::nanoseconds timeout,
                           const std::function<void(FakeRank)>& body) {
  ThreadWorld network(world);
  run_fake_ranks(
      network, world, {.path = DevicePathKind::kNccl, .timeout = timeout}, body, [](int rank) {
        return FakeDeviceOptions{.number = static_cast<std::uint8_t>(rank),
                                 .has_nccl = true,
                                 .connect_native = [](Device& device, Communicator& host,
                                                      std::chrono::nanoseconds patience) {
                                   return connect_nccl_path(host, device, 0, patience);
                                 }};
      });
}

}  // namespace dlaunch::testing
