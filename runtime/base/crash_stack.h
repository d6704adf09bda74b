// A process that prints the stack of a thread that crashes. The kernel's log, where anybody may
// read it, has the place alone, and core dumps are mostly off.
#pragma once

namespace dlaunch {

/// From now on the process prints to stderr, at a SIGSEGV, SIGBUS, SIGILL or SIGFPE, the address
/// that was accessed and the innermost frames of the thread's stack, and then ends by the signal as
/// it would have without (with a core dump, if those are on). Signals for which the program, or a
/// sanitizer, has a handler or that it ignores are left alone. To be called again without harm; the
/// thread that calls it first can print its stack also when that is used up. Any thread.
void print_stack_on_crash();

}  // namespace dlaunch
