// Messages between two ranks: a token goes once around the ring and collects the ranks' numbers.
#include <cstdio>
#include <vector>

#include <dlaunch/runtime/base/run_rank.h>
#include <dlaunch/runtime/comm/communicator.h>

namespace {

// Functions that can fail return a Status (or a Result<T>), which names the operation, the peer and
// the cause; nothing in them throws.
dlaunch::Status pass_around(dlaunch::Communicator& world, std::vector<int>& token) {
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  const auto own = static_cast<std::size_t>(world.rank());
  if (world.rank() > 0) DLAUNCH_RETURN_IF_ERROR(world.recv(token, previous));
  token[own] = world.rank();
  DLAUNCH_RETURN_IF_ERROR(world.send(token, next));  // with one rank to itself
  if (world.rank() == 0) DLAUNCH_RETURN_IF_ERROR(world.recv(token, previous));
  return {};
}

}  // namespace

int main() {
  return dlaunch::run_rank("ring", [] {
    const auto world = dlaunch::connect_world().value_or_throw();
    std::vector<int> token(static_cast<std::size_t>(world->size()), -1);
    const dlaunch::Status status = pass_around(*world, token);
    if (!status.ok()) {
      std::fprintf(stderr, "ring: rank %d gives up: %s\n", world->rank(),
                   status.to_string().c_str());
      return dlaunch::exit_code_of(status);
    }
    if (world->rank() == 0) {
      std::printf("the token has seen");
      for (std::size_t i = 0; i < token.size(); ++i) {
        std::printf("%s %d", i == 0 ? "" : ",", token[i]);
      }
      std::printf("\n");
    }
    return dlaunch::kExitOk;
  });
}
