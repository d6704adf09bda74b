// A rank's stderr on a terminal: a pseudo-terminal of its own, so that the rank's progress bar
// finds one (isatty, its width), while dlaunch still gets every byte and can keep lines whole.
// Its size follows that of dlaunch's own.
#pragma once

#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// `reading` is dlaunch's end, which does not block and ends with an error (EIO) once nobody has
/// the other one open; `writing` is the rank's. It passes bytes on as they are. An error where the
/// system has no pseudo-terminals.
Status make_rank_terminal(Descriptor& reading, Descriptor& writing);

/// Gives the terminal `to` (either end) of a rank the size of `from`, as far as its lines have it
/// there: without the columns of what stands in front of them, and the last one, which dlaunch
/// leaves free. False if one of them is none.
bool set_terminal_size(int rank, int from, int to);

}  // namespace dlaunch
