// Which way collectives on device memory take: a pure function of what all ranks told each other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/memory_path.h"

namespace dlaunch {

enum class DevicePathKind : std::uint8_t {
  kAuto = 0,     // the best that works
  kNccl = 1,     // NCCL: every rank has a GPU of its own
  kIpc = 2,      // ranks of one host read each other's device memory
  kStaging = 3,  // over the host's memory and communicator: always works
};

/// "auto", "nccl", "ipc", "staging".
std::string_view to_string(DevicePathKind kind);
/// The inverse; nothing for a name that is none.
std::optional<DevicePathKind> device_path_from_name(std::string_view name);

/// What a rank tells about itself. Sent as it is.
struct DeviceFacts {
  std::uint64_t host = 0;  // the same number on ranks of one host that can see each other's files
  DeviceUuid uuid{};
  DevicePathKind wanted = DevicePathKind::kAuto;
  std::uint8_t has_nccl = 0;
  std::uint8_t shares_memory = 0;
  std::uint8_t reaches_all = 0;  // the devices of all ranks
};

struct PathCandidate {
  DevicePathKind kind = DevicePathKind::kStaging;
  std::string reason;  // why it is this one
};

/// What is to be tried, in this order; all but the last may still turn out not to work. All ranks
/// get the same. kInvalidArgument if what was asked for cannot be, kMismatch if ranks asked for
/// different things.
Result<std::vector<PathCandidate>> choose_device_path(std::span<const DeviceFacts> ranks);

/// What suits the path kIpc between these ranks. All get the same.
MemoryPathOptions memory_options_for(std::span<const DeviceFacts> ranks);

/// The facts of all ranks of `host`. A collective.
Result<std::vector<DeviceFacts>> exchange_facts(Communicator& host, const Device& device,
                                                DevicePathKind wanted);

}  // namespace dlaunch
