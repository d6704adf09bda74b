#include "runtime/parallel/state_broadcast.h"

#include <array>
#include <cstdint>

#include <spdlog/fmt/fmt.h>

namespace dlaunch {
namespace {

constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // odd, with bits all over

}  // namespace

Status broadcast_state(Communicator& world, std::span<const Buffer> state) {
  if (world.size() == 1) return {};
  // Counts go first, so that ranks with different models find out instead of waiting for each
  // other.
  std::array<std::int64_t, 3> sizes{static_cast<std::int64_t>(state.size()), 0, 0};
  std::uint64_t shapes = 0;
  for (const Buffer& buffer : state) {
    sizes[1] += static_cast<std::int64_t>(buffer.bytes());
    shapes = (shapes + buffer.count) * kMultiplier + static_cast<std::uint64_t>(buffer.dtype);
  }
  sizes[2] = static_cast<std::int64_t>(shapes >> 1);
  std::array<std::int64_t, 3> most = sizes;
  std::array<std::int64_t, 3> least = sizes;
  DLAUNCH_RETURN_IF_ERROR(world.all_reduce(most, ReduceOp::kMax));
  DLAUNCH_RETURN_IF_ERROR(world.all_reduce(least, ReduceOp::kMin));
  if (most != least)
    return Status(
        StatusCode::kMismatch,
        fmt::format(
            "broadcast_state: rank {} has {} buffers of {} bytes together, other "
            "ranks have between {} and {} of {} to {} bytes{}",
            world.rank(), sizes[0], sizes[1], least[0], most[0], least[1], most[1],
            least[0] == most[0] && least[1] == most[1] ? ", of other sizes or types each" : ""));
  for (const Buffer& buffer : state) DLAUNCH_RETURN_IF_ERROR(world.broadcast(buffer, 0));
  return {};
}

}  // namespace dlaunch
