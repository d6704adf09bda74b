// The packets of shm/bootstrap.h, as they lie in memory: both sides are on one host and, as the
// version says, of one build. Internal to the bootstrap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

template <typename Packet>
std::span<const std::byte> bytes_of(const Packet& packet) {
  return std::as_bytes(std::span(&packet, 1));
}
template <typename Packet>
std::span<std::byte> bytes_of(Packet& packet) {
  return std::as_writable_bytes(std::span(&packet, 1));
}

}  // namespace dlaunch
