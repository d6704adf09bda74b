#include "runtime/device/path_choice.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <utility>

namespace dlaunch {
namespace {

constexpr DevicePathKind kAllDevicePathKinds[] = {DevicePathKind::kAuto, DevicePathKind::kNccl,
                                                  DevicePathKind::kIpc, DevicePathKind::kStaging};

// Ranks that share a device meet as rarely as they can, for each meeting costs turns of the device
// (memory_plan.h): nothing is reduced in slices, and a bucket of gradients is one round. Between
// devices slices save traffic on links; here they would save memory's: of two ranks none (behind
// the load 3 times the vector is read and written in one shot, 3.5 times in slices), of three
// little (4 times and 3.3 times).
constexpr std::size_t kFewRanks = 3;
constexpr MemoryPathOptions kFewRanksOfOneDevice{.slot_bytes = std::size_t{25} << 20,
                                                 .one_shot_bytes = std::size_t{25} << 20};

/// Empty if it can be, or why not.
using Obstacle = std::string;

std::string both(std::size_t a, std::size_t b) {
  return "ranks " + std::to_string(a) + " and " + std::to_string(b);
}

// The first two ranks with the same GPU.
std::optional<std::pair<std::size_t, std::size_t>> sharing(std::span<const DeviceFacts> ranks) {
  for (std::size_t b = 1; b < ranks.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (ranks[a].uuid == ranks[b].uuid) return std::pair(a, b);
    }
  }
  return std::nullopt;
}

Obstacle against_nccl(std::span<const DeviceFacts> ranks) {
  const auto without = std::ranges::find(ranks, 0, &DeviceFacts::has_nccl);
  if (without != ranks.end()) {
    return "rank " + std::to_string(without - ranks.begin()) + " was built without NCCL";
  }
  const auto pair = sharing(ranks);
  if (!pair.has_value()) return "";
  return both(pair->first, pair->second) + " share " + to_string(ranks[pair->first].uuid) +
         ", and NCCL needs a GPU for every rank";
}

Obstacle against_ipc(std::span<const DeviceFacts> ranks) {
  if (ranks.size() == 1) return "";
  if (ranks.size() > kMostOperands) {
    return std::to_string(ranks.size()) + " ranks are more than the " +
           std::to_string(kMostOperands) + " whose memory one kernel reads";
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].host != ranks[0].host) return both(0, i) + " are on different hosts";
    if (ranks[i].shares_memory == 0) {
      return "the GPU of rank " + std::to_string(i) + " cannot share memory between processes";
    }
    if (ranks[i].reaches_all == 0) {
      return "the GPU of rank " + std::to_string(i) + " cannot read all the others' memory";
    }
  }
  return "";
}

Obstacle against(DevicePathKind kind, std::span<const DeviceFacts> ranks) {
  if (kind == DevicePathKind::kNccl) return against_nccl(ranks);
  if (kind == DevicePathKind::kIpc) return against_ipc(ranks);
  return "";
}

// Names the running kernel. Ranks in containers that cannot see each other find that out later.
std::uint64_t host_number() {
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(boot, text);
  return std::hash<std::string>{}(text);
}

Status exchange(Communicator& host, std::vector<DeviceFacts>& all) {
  const DeviceFacts own = all[static_cast<std::size_t>(host.rank())];
  return host.all_gather(ConstBuffer(&own, sizeof own, DType::kU8),
                         Buffer(all.data(), all.size() * sizeof own, DType::kU8));
}

}  // namespace

std::string_view to_string(DevicePathKind kind) {
  switch (kind) {
    case DevicePathKind::kAuto:
      return "auto";
    case DevicePathKind::kNccl:
      return "nccl";
    case DevicePathKind::kIpc:
      return "ipc";
    case DevicePathKind::kStaging:
      return "staging";
  }
  return "?";
}

std::optional<DevicePathKind> device_path_from_name(std::string_view name) {
  for (const DevicePathKind kind : kAllDevicePathKinds) {
    if (to_string(kind) == name) return kind;
  }
  return std::nullopt;
}

std::string to_string(const DeviceUuid& uuid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[uuid[i] >> 4];
    text += kDigits[uuid[i] & 15U];
  }
  return text;
}

Result<std::vector<PathCandidate>> choose_device_path(std::span<const DeviceFacts> ranks) {
  const DevicePathKind wanted = ranks[0].wanted;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i].wanted == wanted) continue;
    return Status(StatusCode::kMismatch, "rank 0 wants the path " + std::string(to_string(wanted)) +
                                             " for device memory, rank " + std::to_string(i) +
                                             " wants " + std::string(to_string(ranks[i].wanted)));
  }
  if (wanted != DevicePathKind::kAuto) {
    if (const Obstacle obstacle = against(wanted, ranks); !obstacle.empty()) {
      return Status(StatusCode::kInvalidArgument, "the path " + std::string(to_string(wanted)) +
                                                      " was asked for, but " + obstacle);
    }
    return std::vector<PathCandidate>{{wanted, "as asked for"}};
  }
  std::vector<PathCandidate> candidates;
  if (ranks.size() == 1) {
    candidates.push_back({DevicePathKind::kIpc, "there is one rank"});
    return candidates;
  }
  std::string obstacles;
  for (const DevicePathKind kind : {DevicePathKind::kNccl, DevicePathKind::kIpc}) {
    const Obstacle obstacle = against(kind, ranks);
    if (obstacle.empty()) {
      const std::string works = kind == DevicePathKind::kNccl
                                    ? "every rank has a GPU of its own"
                                    : "all GPUs can read each other's memory";
      candidates.push_back({kind, obstacles + works});
    } else {
      obstacles += obstacle + "; ";
    }
  }
  candidates.push_back({DevicePathKind::kStaging, obstacles + "it always works"});
  return candidates;
}

MemoryPathOptions memory_options_for(std::span<const DeviceFacts> ranks) {
  const bool one_device = std::ranges::all_of(
      ranks, [&](const DeviceFacts& facts) { return facts.uuid == ranks[0].uuid; });
  return one_device && ranks.size() <= kFewRanks ? kFewRanksOfOneDevice : MemoryPathOptions{};
}

Result<std::vector<DeviceFacts>> exchange_facts(Communicator& host, const Device& device,
                                                DevicePathKind wanted) {
  std::vector<DeviceFacts> all(static_cast<std::size_t>(host.size()));
  DeviceFacts& own = all[static_cast<std::size_t>(host.rank())];
  own = {.host = host_number(),
         .uuid = device.uuid(),
         .wanted = wanted,
         .has_nccl = static_cast<std::uint8_t>(device.has_native_path()),
         .shares_memory = static_cast<std::uint8_t>(device.shares_memory())};
  DLAUNCH_RETURN_IF_ERROR(exchange(host, all));
  const bool reaches_all = std::ranges::all_of(
      all, [&](const DeviceFacts& facts) { return device.reaches(facts.uuid); });
  own.reaches_all = static_cast<std::uint8_t>(reaches_all);
  DLAUNCH_RETURN_IF_ERROR(exchange(host, all));
  return all;
}

}  // namespace dlaunch
