// What every main() does: run the program, and turn an exception into one line and an exit code.
#pragma once

#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

namespace dlaunch {

/// Throws std::system_error if something written to stdout is lost.
inline void flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw std::system_error(errno == 0 ? EIO : errno, std::generic_category(),
                          "cannot write to standard output");
}

/// Returns what `body` does; `failure` if it throws, or something it wrote to stdout is lost, and
/// then stderr says why under `name`.
template <typename Body>
int run_program(const char* name, int failure, Body&& body) {
  try {
    const int code = std::forward<Body>(body)();
    if (code == 0) flush_output();
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return failure;
  }
}

}  // namespace dlaunch
