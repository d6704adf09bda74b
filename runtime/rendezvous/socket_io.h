// Blocking socket calls with a deadline, for the store's client. The socket is non-blocking. No
// function is tied to a thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "runtime/base/deadline.h"
#include "runtime/base/status.h"

namespace dlaunch {

/// Connects to "host:port" or "[host]:port"; the caller owns the descriptor. kUnavailable if that
/// fails, kTimeout after the deadline, kInvalidArgument for an address of another form.
Result<int> connect_socket(std::string_view address, Deadline deadline);

/// What is lost on its way is sent again every second at least, instead of after ever longer
/// pauses: a short break of the network is not to pass for the loss of a node. From Linux 6.15 on;
/// before, nothing changes.
void retransmit_every_second(int socket);

/// Sends all bytes. kTimeout, kPeerLost or kIo.
Status send_all(int socket, std::string_view bytes, Deadline deadline);

/// Receives between 1 and `capacity` bytes; 0 if the deadline passed. kPeerLost if the other side
/// has closed the connection.
Result<std::size_t> receive_some(int socket, char* buffer, std::size_t capacity, Deadline deadline);

/// Receives exactly `bytes`. kTimeout, kPeerLost or kIo.
Status receive_exactly(int socket, char* buffer, std::size_t bytes, Deadline deadline);

}  // namespace dlaunch
