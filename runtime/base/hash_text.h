// A hash of a text that is the same in all processes: FNV-1a (Fowler, Noll & Vo), 64 bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace dlaunch {

inline std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3U;
  }
  return hash;
}

}  // namespace dlaunch
