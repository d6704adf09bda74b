// OutputRelay: carries the ranks' stderr to dlaunch's, as whole lines with the rank in front, and
// keeps each rank's last lines for the report.
//
// Belongs to the event loop's thread and never blocks it: if the reader of dlaunch's stderr is
// slow, lines gather up to a limit, and then the ranks' pipes are not read until it has caught up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/event_loop.h"

namespace dlaunch {

class OutputRelay {
 public:
  /// Writes to the descriptor `output`, which it neither owns nor makes non-blocking.
  OutputRelay(EventLoop& loop, int output) : loop_(loop), output_(output) {}
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  /// Starts to read a rank's pipe (non-blocking, owned by the caller, who keeps it until
  /// release()).
  void add(int rank, int pipe);

  /// Relays all that the rank's pipe holds now, a last line without newline included. For when the
  /// rank has ended; its children may still hold the pipe open, and what they write comes later.
  void drain(int rank);

  /// Reads the rank's pipe no more. What was kept of it stays until the next add().
  void release(int rank);

  /// Writes a line of dlaunch's own.
  void write_line(std::string_view line);

  /// The last lines of a rank, oldest first.
  std::vector<std::string> last_lines(int rank) const;
  /// True if those are also the very last lines that were written, so that the user sees them.
  bool shown_last(int rank) const;

  /// Waits until all is written, at most until `limit` has passed.
  void flush(std::chrono::milliseconds limit);

 private:
  struct Line {
    std::uint64_t number;  // counts the lines of all ranks
    std::string text;
  };
  struct Source {
    int pipe = -1;
    std::string partial;  // a line that has not ended yet
    std::deque<Line> last;
  };

  void read_available(int rank);
  bool read_once(int rank, Source& source);
  void emit(int rank, Source& source, std::string_view line);
  void write_pending();
  void resume_reading();

  EventLoop& loop_;
  int output_;
  std::map<int, Source> sources_;
  std::string pending_;  // whole lines not yet written
  bool awaiting_output_ = false;
  bool paused_ = false;
  std::uint64_t lines_ = 0;
};

}  // namespace dlaunch
