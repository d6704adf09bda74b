// The system's memory as a MemorySource: mappings that begin at huge pages. Freed memory is
// poisoned under AddressSanitizer.
#pragma once

#include <memory>

#include "nn/core/memory_source.h"

namespace dlaunch::nn::cpu {

std::unique_ptr<MemorySource> make_system_memory();

}  // namespace dlaunch::nn::cpu
