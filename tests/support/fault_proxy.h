// FaultProxy: a TCP relay for tests that does to a connection what bad networks do: delay,
// throttle, short reads and writes, stall, cut off, reset, half-close. It needs no privileges and
// no kernel module (tc netem), and its faults are exact: a cut comes after the byte that was asked
// for.
//
// It listens on a loopback port of the system's choice and connects on to a fixed target. One
// thread of its own does all the work; the members may be called from any thread and return when
// what they ask for is in force. Faults are chosen per connection and direction and may be changed
// at any time. Descriptors and memory go with the proxy; connections that still stand then are
// reset.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

namespace dlaunch::testing {

/// Forward is from the one who connected to the target.
enum class Direction { kForward, kBackward };

/// How a connection ends once its cut has been reached.
enum class Ending {
  kReset,     // RST to both sides
  kClose,     // an orderly end (FIN) to both sides
  kHalfClose  // an orderly end to the receiver of this direction; the other direction goes on
};

/// What happens to the bytes of one direction of one connection. The default passes them on.
struct Faults {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  std::chrono::nanoseconds delay{0};  // between a byte's arrival and its departure
  std::size_t bytes_per_second = 0;   // 0: as fast as it goes
  std::size_t bytes_per_write = 0;    // most bytes sent on at a time; 0: any number
  bool stalled = false;               // nothing is read or written, and nothing closed
  std::size_t cut_after = kNever;     // bytes still passed on, from when this is set
  Ending ending = Ending::kReset;     // what comes after them
};

/// Both directions of one connection.
struct ConnectionFaults {
  Faults forward;
  Faults backward;
};

class FaultProxy {
 public:
  /// The faults of connection number `index` (from 0, in the order accepted). Called on the proxy's
  /// thread.
  using Choice = std::function<ConnectionFaults(int index)>;

  /// Throws std::system_error without a port to listen on.
  explicit FaultProxy(std::uint16_t target_port, Choice choose = {});
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  std::uint16_t port() const;

  /// Sets the faults of a direction of all connections, those that stand and those to come.
  void set(Direction direction, const Faults& faults);
  /// Of one connection that stands. Does nothing if there is none of that number.
  void set(int index, Direction direction, const Faults& faults);

  /// Connections accepted so far, also those that have ended.
  int connections() const;
  /// Bytes passed on in a direction by all connections so far.
  std::size_t forwarded(Direction direction) const;

 private:
  class Relay;
  std::unique_ptr<Relay> relay_;
};

}  // namespace dlaunch::testing
