// A name server that does not answer, for programs that are linked with slow_resolver.cc: this
// process's getaddrinfo() waits for names under "slow.test", as long as the one below exists, then
// says that there is no such host. All other names it leaves to the system's.
#pragma once

namespace dlaunch::testing {

class SlowResolver {
 public:
  SlowResolver();
  /// Lets all that wait go on, and waits until they have.
  ~SlowResolver();
  SlowResolver(const SlowResolver&) = delete;
  SlowResolver& operator=(const SlowResolver&) = delete;
};

}  // namespace dlaunch::testing
