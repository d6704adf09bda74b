// A process that prints its stack when asked, for hang reports on machines without a debugger.
#pragma once

namespace dlaunch {

/// From now on the process prints the stack of its main thread to stderr at the signal that is
/// returned. That is SIGURG, which by default is ignored; 0 if the program has a handler for it or
/// ignores it itself. To be called again without harm.
///
/// The handler calls glibc's backtrace(), which is not safe in every signal handler: a process that
/// is interrupted while it loads a library may hang. It is asked only when it hangs already.
int print_stack_on_signal();

}  // namespace dlaunch
