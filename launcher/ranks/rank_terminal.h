// A rank's stderr on a terminal: a pseudo-terminal of its own, so that the rank's progress bar
// finds one (isatty, its width), while dlaunch still gets every byte and can keep lines whole.
// Its size follows that of dlaunch's own.
#pragma once

#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// `reading` is dlaunch's end, which does not block and ends with an error (EIO) once nobody has
/// the other one open; `writing` is the rank's. It passes bytes on as they are, and has the size
/// that the terminal `like` has now. An error where the system has no pseudo-terminals.
Status make_rank_terminal(int like, Descriptor& reading, Descriptor& writing);

/// Gives the terminal `to` (either end) the size of `from`; false if one of them is none.
bool copy_terminal_size(int from, int to);

}  // namespace dlaunch
