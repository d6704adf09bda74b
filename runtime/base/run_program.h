// What every main() does: run the program, and turn an exception into one line and an exit code.
#pragma once

#include <cstdio>
#include <exception>
#include <utility>

namespace dlaunch {

/// Returns what `body` does; `failure` if it throws, and then stderr says why under `name`.
template <typename Body>
int run_program(const char* name, int failure, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return failure;
  }
}

}  // namespace dlaunch
