// pause_briefly: tells the CPU that this thread looks at memory over and over, so that it leaves
// more to a thread on the same core. Tens of nanoseconds; any thread.
#pragma once

namespace dlaunch {

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" : : : "memory");  // `yield` does nothing on most of them
#endif
}

}  // namespace dlaunch
