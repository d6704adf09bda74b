// What the kernel's log says of faults in programs (x86, where /proc/sys/debug/exception-trace is
// 1, as it is unless somebody changes it).
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace dlaunch {

/// "a null pointer (address 0x10), in libfoo.so+0x11c6" of a line of the kernel's log about a fault
/// of the thread `pid`; "in train+0x1257" of one that was not for an address. The place is as
/// addr2line -e wants it. Empty: the line is of something else. A pure function.
std::string kernel_fault(std::string_view line, pid_t pid);

}  // namespace dlaunch
