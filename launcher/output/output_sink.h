// OutputSink: dlaunch's own stdout or stderr, written in whole lines where lines are given.
//
// Belongs to the event loop's thread and never blocks it: what the reader is too slow for gathers
// here, and whoever fills the sink looks at pending(). On a terminal it can keep one unfinished
// line, such as a progress bar, below everything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "launcher/base/event_loop.h"
#include "runtime/base/descriptor.h"

namespace dlaunch {

class OutputSink {
 public:
  /// Neither owns `descriptor` nor makes it non-blocking. `on_written` is called whenever pending()
  /// has become less.
  OutputSink(EventLoop& loop, int descriptor, std::function<void()> on_written);
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  /// These three gather what write() then writes.
  /// A line, to which this adds the newline. What others write to the same place falls between
  /// lines.
  void add_line(std::string_view line);
  /// Bytes as they are.
  void add_bytes(std::string_view bytes);
  /// On a terminal: `text` is the last line, unfinished, until it is replaced; empty: nothing.
  void show_unfinished(std::string_view text);

  /// Writes as much as the reader takes without waiting; the rest follows from the event loop when
  /// it can. Once a write has failed, everything is dropped.
  void write();

  /// True once nobody reads any more: a pipe without a reader, a terminal that was closed.
  bool unread() const;
  /// The errno of a write that failed for another reason (a full disk); 0: none did.
  int error() const { return unread() ? 0 : error_; }

  bool is_terminal() const { return terminal_; }
  std::size_t pending() const { return pending_.size(); }
  /// How many lines were added, to tell whether something is still the last on the screen.
  std::uint64_t lines() const { return lines_; }

 private:
  std::size_t write_some();
  ssize_t write_once(std::string_view bytes) const;
  void wait_for_room(bool wanted);
  void erase_unfinished();
  void draw_unfinished();

  EventLoop& loop_;
  const Descriptor reopened_;
  const int descriptor_;
  const bool terminal_;
  const bool socket_;
  std::function<void()> on_written_;
  std::string pending_;
  std::string unfinished_;
  bool drawn_ = false;    // unfinished_ is the last thing in what was written and pending_
  bool waiting_ = false;  // in the event loop, for room
  // What polls writable may take nothing (a terminal with room for half a newline): only time tells
  // when it does.
  bool refused_ = false;
  std::optional<EventLoop::TimerId> retry_;
  int error_ = 0;
  std::uint64_t lines_ = 0;
};

/// The part of `text`, UTF-8, that fits into `columns` of a terminal; escape sequences take none.
std::string_view fitting(std::string_view text, std::size_t columns);

}  // namespace dlaunch
