// Writing to what others have open too, without making that non-blocking for them.
#pragma once

#include <string_view>

#include "runtime/base/descriptor.h"

namespace dlaunch {

/// The pipe or terminal behind `descriptor`, opened once more, for writing that does not wait. None
/// if it is something else, or may not be opened (by another user, after su). Any thread.
Descriptor reopen_non_blocking(int descriptor);

/// Writes a line for people, at most 4096 bytes, if there is room for it now; else it is lost. Any
/// thread.
void write_without_waiting(int descriptor, std::string_view line);

}  // namespace dlaunch
