// EventSet: the descriptors on which an endpoint sleeps (epoll). One thread at a time.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

#include "runtime/base/deadline.h"
#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

class EventSet {
 public:
  /// What an event is about: its owner's kind and number.
  struct Token {
    std::uint32_t kind = 0;
    std::int32_t number = 0;
  };
  struct Event {
    Token token;
    std::uint32_t what = 0;  // EPOLLIN ...
  };

  /// kIo without descriptors for it.
  static Result<EventSet> make();

  /// Watches `descriptor` for `what`; it stays the caller's.
  Status add(int descriptor, std::uint32_t what, Token token);
  /// Changes what is watched for.
  void change(int descriptor, std::uint32_t what, Token token);
  void remove(int descriptor);

  /// What has happened, waiting for it until the deadline. Good until the next call.
  std::span<const Event> wait(Deadline deadline);
  /// The same without waiting.
  std::span<const Event> look() { return collect(0); }

 private:
  std::span<const Event> collect(int milliseconds);

  Descriptor epoll_;
  std::array<Event, 32> events_;
};

}  // namespace dlaunch
