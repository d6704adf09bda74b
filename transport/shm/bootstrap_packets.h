// The packets of shm/bootstrap.h, as they lie in memory: both sides are on one host and, as the
// version says, of one build. Internal to the bootstrap.
#pragma once

#include <cstdint>

#include "runtime/base/token.h"

namespace dlaunch {

inline constexpr std::uint32_t kBootstrapVersion = 1;

struct BootstrapResponse {
  Nonce nonce;
  Mac proof;
  std::uint32_t version;
  std::int32_t rank;
  std::int32_t world_size;
  std::int32_t lanes;
  std::uint64_t job;
};

struct BootstrapAnswer {
  Mac proof;
  Nonce segment;
  std::uint64_t heap_bytes;
  std::uint64_t total_bytes;
};

struct BootstrapDoorbells {
  std::uint32_t count;
};

struct BootstrapJoined {
  std::int32_t slot;
};

struct BootstrapVerdict {
  std::uint32_t readable;
};

}  // namespace dlaunch
