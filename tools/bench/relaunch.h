// Programs that dbench becomes: a benchmark that was started without dlaunch starts itself again
// under it, and the part that needs nn is a program of its own.
#pragma once

namespace dlaunch::bench {

/// Replaces this process by `dlaunch --nproc N` with the same command line. dlaunch is looked for
/// beside this program, then in PATH. Returns only if that fails, with errno.
void relaunch_under_dlaunch(int nproc, int argc, char** argv);

/// Whether this command line is for dbench_training, by its first word.
bool is_for_training_program(int argc, char** argv);
/// Replaces this process by dbench_training, from beside this program, with the same command line.
/// Returns only if that fails, with errno.
void become_training_program(int argc, char** argv);

}  // namespace dlaunch::bench
