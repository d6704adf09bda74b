// MemoryPath: collectives of ranks of one host that can read each other's device memory (CUDA IPC),
// also if they share a device. Streams wait for each other by flags in host memory, so no kernel
// spins and the host waits for nothing. Results have the bits of ReduceOrder::kRanks.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/device_path.h"

namespace dlaunch {

struct MemoryPathOptions {
  /// Each rank shows the others two slots for each of the three lanes, so six times as much memory
  /// of its device. A longer operation goes in rounds.
  std::size_t slot_bytes = std::size_t{16} << 20;
  /// Up to which every rank reduces the whole vector by itself, and ranks meet once only.
  std::size_t one_shot_bytes = std::size_t{256} << 10;
};

/// A collective of `host`, whose ranks are on one host and pass the same options; all ranks succeed
/// or none. The path does not use `host` afterwards; `device` must outlive it. When the path goes
/// it waits, some seconds at most, until the others' have let go of its memory.
Result<std::unique_ptr<DevicePath>> connect_memory_path(Communicator& host, Device& device,
                                                        const MemoryPathOptions& options);

}  // namespace dlaunch
