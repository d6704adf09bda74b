// OutputRelay: carries what the ranks write to dlaunch's stdout and stderr, keeps it in files if
// the user wants that, and each rank's last lines for the report.
//
// stderr, and with --output prefix stdout too, goes out as whole lines with the rank in front. A
// stdout that only passes through (--log-dir) is relayed as it is. On a terminal the first rank
// shown may leave a line unfinished, or rewrite it (a progress bar): it stays visible below
// everybody's whole lines.
//
// Belongs to the event loop's thread and never blocks it: if the reader of dlaunch's output is
// slow, lines gather up to a limit, and then the ranks' pipes are not read until it has caught up.
// If it has gone, ranks that write for nobody else learn it as they would from a pipe of their own.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/event_loop.h"
#include "launcher/options/output_options.h"
#include "launcher/output/output_sink.h"
#include "launcher/output/rank_logs.h"
#include "runtime/base/descriptor.h"

namespace dlaunch {

class OutputRelay {
 public:
  /// Writes to stdout and stderr. `options` outlives it.
  OutputRelay(EventLoop& loop, const OutputOptions& options);
  ~OutputRelay();
  OutputRelay(const OutputRelay&) = delete;
  OutputRelay& operator=(const OutputRelay&) = delete;

  /// Before the ranks of an attempt are added, whose numbers may be others than before.
  void begin_attempt() { first_shown_ = -1; }

  /// Opens the rank's files in --log-dir, if there is one. Before add().
  Status keep_logs(int attempt, int rank) { return logs_.open(attempt, rank); }

  /// Starts to read a rank's pipes, which are non-blocking. `output` is none if the rank writes to
  /// dlaunch's stdout itself; `error` is the caller's, who keeps it until release().
  void add(int rank, Descriptor output, int error);

  /// Relays all that the rank's pipes hold now, a last line without newline included. For when the
  /// rank has ended; its children may still hold a pipe open, and what they write comes later.
  void drain(int rank);

  /// Reads the rank's pipes no more. What was kept of it stays until the next add().
  void release(int rank);

  /// Writes a line of dlaunch's own to stderr.
  void write_line(std::string_view line);
  /// Whether that is where lines appear.
  bool writes_to_terminal() const { return error_.is_terminal(); }

  /// The rank has failed: if --only hid it, its last lines are shown now.
  void reveal(int rank);

  /// The last lines of a rank on stderr, oldest first; before them, from wherever it was, the line
  /// with which a sanitizer's report began.
  std::vector<std::string> last_lines(int rank) const;
  /// True if those are also the very last lines that were written, so that the user sees them.
  bool shown_last(int rank) const;

  /// For the end: tells what could not be kept, and serves the event loop until all is written;
  /// with a `patience`, only as long as something is written in each such time; and until
  /// `give_up`, asked after each event. Tells how much is dropped then. False if some of the output
  /// could not be written, other than for want of a reader.
  bool finish(std::optional<std::chrono::milliseconds> patience,
              const std::function<bool()>& give_up);

 private:
  struct Line {
    std::uint64_t number;  // among the lines of its sink; 0: hidden
    std::string text;
  };
  struct Source {
    int rank;
    Stream stream;
    int pipe;          // -1: read no more
    Descriptor owned;  // the same, of stdout
    bool shown;
    bool in_lines;
    bool cut;             // the last piece that was emitted was not the line's end
    std::string partial;  // a line that has not ended yet
    std::deque<Line> last;
    std::string report;  // of what came before: how a sanitizer's report began
  };
  using Sources = std::map<std::pair<int, Stream>, Source>;

  Source& add_source(int rank, Stream stream, int pipe);
  void read_available(Source& source);
  bool read_once(Source& source);
  void take(Source& source, std::string_view bytes);
  void split_into_lines(Source& source, std::string_view bytes);
  void emit(Source& source, std::string_view line);
  void show_unfinished(Source& source);
  void forget_unfinished(const Source& source);
  void stop_reading(Source& source);
  void on_written();
  void tell_write_error(const OutputSink& sink, const char* name);
  void stop_writers();
  void pause_if_full();
  void resume_if_room();
  bool serve_until_written(std::optional<std::chrono::milliseconds> patience,
                           const std::function<bool()>& give_up);
  OutputSink& sink(Stream stream) {
    return stream == Stream::kOutput && output_ ? *output_ : error_;
  }
  std::size_t pending() const { return error_.pending() + (output_ ? output_->pending() : 0); }

  EventLoop& loop_;
  const OutputOptions& options_;
  OutputSink error_;
  std::unique_ptr<OutputSink> output_;  // none: stdout and stderr are the same, and share error_
  RankLogs logs_;
  Sources sources_;
  int first_shown_ = -1;                // the lowest rank of the attempt that is shown
  const Source* unfinished_ = nullptr;  // whose unfinished line is shown
  bool paused_ = false;
  bool told_write_error_ = false;
};

}  // namespace dlaunch
