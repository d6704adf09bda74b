#include "runtime/device/call_buffers.h"

#include <algorithm>

#include "runtime/comm/call_signature.h"

namespace dlaunch {
namespace {

std::vector<ConstBuffer> used_buffers(const CollectiveCall& call, int rank) {
  std::vector<ConstBuffer> buffers(call.pieces.begin(), call.pieces.end());
  if (!buffers.empty()) return buffers;
  if (uses_input(call, rank)) buffers.push_back(call.input);
  if (uses_output(call, rank)) buffers.emplace_back(call.output);
  return buffers;
}

}  // namespace

bool uses_input(const CollectiveCall& call, int rank) {
  switch (call.kind) {
    case CollectiveKind::kBarrier:
      return false;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return rank == call.root;
    default:
      return true;
  }
}

bool uses_output(const CollectiveCall& call, int rank) {
  switch (call.kind) {
    case CollectiveKind::kBarrier:
      return false;
    case CollectiveKind::kGather:
    case CollectiveKind::kReduce:
      return rank == call.root;
    default:
      return true;
  }
}

Result<bool> on_device(const CollectiveCall& call, int rank, int size, const Device& device) {
  const bool unequal_exchange = call.kind == CollectiveKind::kAllToAll && !call.counts.empty();
  if (!unequal_exchange && total_count(call, size) == 0) return false;
  std::vector<ConstBuffer> buffers = used_buffers(call, rank);
  const auto full = [](const ConstBuffer& buffer) { return buffer.count > 0; };
  if (std::ranges::any_of(buffers, full)) std::erase_if(buffers, std::not_fn(full));
  bool found = false;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const MemoryPlace place = device.place_of(buffers[i].data);
    if (place == MemoryPlace::kOtherDevice) {
      return Status(StatusCode::kInvalidArgument, "a buffer is in the memory of another GPU");
    }
    const bool here = place == MemoryPlace::kThisDevice;
    if (i > 0 && here != found) {
      return Status(StatusCode::kInvalidArgument,
                    "one buffer is in device memory, another in the host's");
    }
    found = here;
  }
  return found;
}

}  // namespace dlaunch
