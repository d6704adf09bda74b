// copy_memory(): memcpy() at the same speed whatever the addresses are.
//
// From 2 to 8 KiB on glibc copies by `rep movsb` where CPUs say that they do it fast. Intel's do;
// AMD's Zen 3 and 4 say so, but take many times as long for some distances between the two
// addresses, and write past the caches, where whoever reads next does not find it (glibc's bug
// 30994, mended in 2.39). Collectives through slots were up to five times slower by it.
#pragma once

#include <cstddef>

namespace dlaunch {

/// The ranges do not overlap.
void copy_memory(void* into, const void* from, std::size_t bytes);

/// The same by vector instructions: what copy_memory() does on AMD's CPUs.
void copy_by_vectors(void* into, const void* from, std::size_t bytes);

}  // namespace dlaunch
