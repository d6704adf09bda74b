// Starts a thread, or says that it is a thread that could not be started: "Resource temporarily
// unavailable", which is all that std::thread says, may be anything.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

namespace dlaunch {

/// Throws std::system_error. No exception may leave `body`.
template <typename Body>
std::thread start_thread(Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw std::system_error(error.code(), "no thread could be started");
  }
}

}  // namespace dlaunch
