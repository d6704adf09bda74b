// How much memory there is to be had.
#pragma once

#include <cstddef>

namespace dlaunch {

/// What the kernel thinks can be had now without swapping, and free swap, in bytes; 0: unknown. A
/// container may have less.
std::size_t available_memory();

}  // namespace dlaunch
