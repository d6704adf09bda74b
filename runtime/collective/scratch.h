// at_least: memory of an execution that is kept from run to run and only grows.
#pragma once

#include <cstddef>
#include <vector>

namespace dlaunch {

/// The beginning of `memory`, which has at least `bytes` bytes then. What it held stays.
inline std::byte* at_least(std::vector<std::byte>& memory, std::size_t bytes) {
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}

}  // namespace dlaunch
