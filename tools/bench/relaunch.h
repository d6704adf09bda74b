// A benchmark that was started without dlaunch starts itself again under it.
#pragma once

namespace dlaunch::bench {

/// Replaces this process by `dlaunch --nproc N` with the same command line. dlaunch is looked for
/// beside this program, then in PATH. Returns only if that fails, with errno.
void relaunch_under_dlaunch(int nproc, int argc, char** argv);

}  // namespace dlaunch::bench
