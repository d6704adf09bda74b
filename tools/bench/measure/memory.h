// Resident memory of this process.
#pragma once

namespace dlaunch::bench {

/// Forgets the peak so far, so that peak_mib() is the greatest from now on. False where the kernel
/// does not allow it.
bool reset_peak();

/// The greatest resident set (VmHWM) in MiB, all pages counted: program, libraries, shared memory.
double peak_mib();

}  // namespace dlaunch::bench
