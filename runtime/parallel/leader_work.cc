#include "runtime/parallel/leader_work.h"

#include <array>
#include <chrono>
#include <cstdint>

namespace dlaunch {

Status await_leader(Communicator& world, const std::future<void>& work) {
  constexpr std::chrono::milliseconds kTurn(200);
  std::array<std::uint8_t, 1> goes_on{1};
  while (goes_on[0] != 0) {
    // Work that got no thread of its own is done in get(): it does not go on.
    const bool mine = world.rank() == 0 && work.valid();
    goes_on[0] = mine && work.wait_for(kTurn) == std::future_status::timeout ? 1 : 0;
    DLAUNCH_RETURN_IF_ERROR(world.broadcast(goes_on, 0));
  }
  return {};
}

}  // namespace dlaunch
