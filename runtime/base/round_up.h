// round_up: to a multiple of something, as allocations and layouts of memory need it.
#pragma once

#include <cstddef>

namespace dlaunch {

/// The smallest multiple of `unit` that is not below `bytes`.
constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace dlaunch
