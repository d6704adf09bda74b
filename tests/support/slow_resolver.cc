#include "tests/support/slow_resolver.h"

#include <condition_variable>
#include <mutex>
#include <string_view>

#include <dlfcn.h>
#include <netdb.h>

namespace {

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  bool answers = true;
  int waiting = 0;
};

State& state() {
  static State one;
  return one;
}

}  // namespace

// In place of the C library's.
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints,
                           addrinfo** found) {
  const bool asks = (hints->ai_flags & AI_NUMERICHOST) == 0;
  if (asks && std::string_view(host).ends_with("slow.test")) {
    std::unique_lock lock(state().mutex);
    ++state().waiting;
    state().changed.wait(lock, [] { return state().answers; });
    --state().waiting;
    state().changed.notify_all();
    return EAI_NONAME;
  }
  using Lookup = int(const char*, const char*, const addrinfo*, addrinfo**);
  static auto* const usual = reinterpret_cast<Lookup*>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return usual(host, port, hints, found);
}

namespace dlaunch::testing {

SlowResolver::SlowResolver() {
  const std::lock_guard lock(state().mutex);
  state().answers = false;
}

SlowResolver::~SlowResolver() {
  std::unique_lock lock(state().mutex);
  state().answers = true;
  state().changed.notify_all();
  state().changed.wait(lock, [] { return state().waiting == 0; });
}

}  // namespace dlaunch::testing
