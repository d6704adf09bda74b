#include "runtime/parallel/long_work.h"

#include <array>
#include <chrono>
#include <cstdint>

namespace dlaunch {

Status await_work(Communicator& world, const std::future<void>& work) {
  constexpr std::chrono::milliseconds kTurn(200);
  std::array<std::uint8_t, 1> goes_on{1};
  while (goes_on[0] != 0) {
    // Work that got no thread of its own is done in get(): it does not go on.
    goes_on[0] = work.valid() && work.wait_for(kTurn) == std::future_status::timeout ? 1 : 0;
    DLAUNCH_RETURN_IF_ERROR(world.all_reduce(goes_on, ReduceOp::kMax));
  }
  return {};
}

}  // namespace dlaunch
