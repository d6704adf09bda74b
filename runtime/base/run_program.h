// What every main() does: run the program, and turn an exception into one line and an exit code.
#pragma once

#include <cerrno>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace dlaunch {

inline constexpr const char* kLostOutput = "cannot write to standard output";

/// For texts that stdout's buffer does not hold. Throws std::system_error.
inline void print_long(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw std::system_error(errno, std::generic_category(), kLostOutput);
}

/// Throws std::runtime_error if something written to stdout is lost.
inline void flush_output() {
  if (std::fflush(stdout) != 0)
    throw std::system_error(errno, std::generic_category(), kLostOutput);
  if (std::ferror(stdout) != 0) throw std::runtime_error(kLostOutput);  // nobody knows any more why
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
  } catch (...) {
    std::fprintf(stderr, "%s: an exception of an unknown type\n", name);
  }
  return failure;
}

}  // namespace dlaunch
