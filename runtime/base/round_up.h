// round_up: to a multiple of something, a page say, as allocations and layouts of memory need it.
#pragma once

#include <cstddef>

namespace dlaunch {

/// Bytes of a page of memory, the unit in which mappings are laid out.
inline constexpr std::size_t kPage = 4096;

/// The smallest multiple of `unit` that is not below `bytes`.
constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace dlaunch
