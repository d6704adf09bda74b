// Hello: who a connection belongs to, said by both sides right after the token handshake.
//
//    0  u32 magic "DLHI"   4  u32 protocol version   8  u32 rank      12  u32 world size
//   16  u32 lane          20  u32 lanes             24  u64 job (a hash of its name)
//
// Pure functions, from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/status.h"

namespace dlaunch {

inline constexpr std::size_t kHelloBytes = 32;

struct Hello {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 0;
  std::uint32_t lane = 0;
  std::uint32_t lanes = 0;
  std::uint64_t job = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};

/// A hash of the job's name (FNV-1a), the same on every machine. Not a secret: the token is.
std::uint64_t hash_job(std::string_view job_id);

std::array<std::byte, kHelloBytes> encode_hello(const Hello& hello);
/// kProtocol, with what is wrong, for anything that cannot come from a rank of the job that
/// `expected` describes (its rank and lane are not looked at).
Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> encoded, const Hello& expected);

}  // namespace dlaunch
