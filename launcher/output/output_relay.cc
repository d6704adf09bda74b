#include "launcher/output/output_relay.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "launcher/base/rank_prefix.h"
#include "launcher/base/same_file.h"
#include "launcher/base/sanitizer_report.h"
#include "runtime/base/whole_characters.h"

namespace dlaunch {
namespace {

constexpr std::size_t kLongestLine = 16 << 10;  // a longer one is relayed in pieces
constexpr std::size_t kKeptLines = 20;
constexpr std::size_t kKeptBytesPerLine = 1000;
constexpr std::size_t kMostPending = 1 << 20;

// What a terminal shows of a line in the end: what follows the last carriage return.
std::string_view visible(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line.substr(line.rfind('\r') + 1);
}

std::string with_rank(int rank, std::string_view line) {
  return rank_prefix(rank).append(line);
}

// What is kept of a line: both ends, of which one may say where, the other what.
std::string kept(std::string_view line) {
  if (line.size() <= kKeptBytesPerLine) return std::string(line);
  constexpr std::string_view kBetween = " ... ";
  constexpr std::size_t kTail = kKeptBytesPerLine / 2;
  const std::string_view head = line.substr(0, kKeptBytesPerLine - kTail - kBetween.size());
  std::string_view tail = line.substr(line.size() - kTail);
  while ((static_cast<unsigned char>(tail.front()) & 0xC0U) == 0x80) tail.remove_prefix(1);
  return std::string(head.substr(0, whole_characters(head))).append(kBetween).append(tail);
}

}  // namespace

OutputRelay::OutputRelay(EventLoop& loop, const OutputOptions& options)
    : loop_(loop),
      options_(options),
      error_(loop, STDERR_FILENO, [this] { on_written(); }),
      logs_(options.log_dir) {
  // Lines for one place must not be written by two sinks: one could fall into the other's.
  if (same_file(STDOUT_FILENO, STDERR_FILENO)) return;
  output_ = std::make_unique<OutputSink>(loop, STDOUT_FILENO, [this] { on_written(); });
}

OutputRelay::~OutputRelay() {
  for (auto& [key, source] : sources_) stop_reading(source);
}

void OutputRelay::add(int rank, Descriptor output, int error) {
  if (options_.shows(rank) && (first_shown_ < 0 || rank < first_shown_)) first_shown_ = rank;
  add_source(rank, Stream::kOutput, output.get()).owned = std::move(output);
  add_source(rank, Stream::kError, error);
}

OutputRelay::Source& OutputRelay::add_source(int rank, Stream stream, int pipe) {
  const bool shown = options_.shows(rank);
  const bool passes_through =
      stream == Stream::kOutput && shown && options_.mode == OutputOptions::Mode::kPlain;
  Source& source = sources_[{rank, stream}];
  source = {.rank = rank,
            .stream = stream,
            .pipe = pipe,
            .owned = {},
            .shown = shown,
            .in_lines = !passes_through,
            .cut = false,
            .partial = {},
            .last = {},
            .report = {}};
  if (pipe >= 0 && !paused_) {
    loop_.add(pipe, EPOLLIN, [this, &source] { read_available(source); });
  }
  return source;
}

void OutputRelay::stop_reading(Source& source) {
  if (source.pipe >= 0) loop_.remove(std::exchange(source.pipe, -1));
  source.owned.close();
}

void OutputRelay::on_written() {
  tell_write_error(error_, "stderr");
  if (output_) tell_write_error(*output_, "stdout");
  if (sink(Stream::kOutput).unread() && options_.log_dir.empty()) stop_writers();
  resume_if_room();
}

// Once, since a full disk concerns both.
void OutputRelay::tell_write_error(const OutputSink& sink, const char* name) {
  if (sink.error() == 0 || std::exchange(told_write_error_, true)) return;
  write_line("dlaunch: " + std::string(name) + ": " +
             std::generic_category().message(sink.error()) +
             "; the job goes on, what cannot be written is lost");
}

// Nobody reads stdout any more. A rank whose stdout is shown then writes to a pipe without a
// reader, and is ended by SIGPIPE as it would be if it wrote to dlaunch's stdout itself.
void OutputRelay::stop_writers() {
  for (auto& [key, source] : sources_) {
    if (source.stream == Stream::kOutput && source.shown) stop_reading(source);
  }
}

void OutputRelay::read_available(Source& source) {
  if (!read_once(source)) stop_reading(source);
  show_unfinished(source);
  sink(source.stream).write();
  pause_if_full();
}

void OutputRelay::pause_if_full() {
  const std::size_t most = std::max(error_.pending(), output_ ? output_->pending() : 0);
  if (most < kMostPending || paused_) return;
  paused_ = true;
  for (const auto& [key, source] : sources_) {
    if (source.pipe >= 0) loop_.remove(source.pipe);
  }
}

void OutputRelay::resume_if_room() {
  const std::size_t most = std::max(error_.pending(), output_ ? output_->pending() : 0);
  if (most >= kMostPending / 2 || !paused_) return;
  paused_ = false;
  for (auto& [key, source] : sources_) {
    if (source.pipe < 0) continue;
    loop_.add(source.pipe, EPOLLIN, [this, &source = source] { read_available(source); });
  }
}

// Reads one piece; false at the end of the file.
bool OutputRelay::read_once(Source& source) {
  std::array<char, 64 << 10> buffer;
  const ssize_t count = read(source.pipe, buffer.data(), buffer.size());
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  take(source, {buffer.data(), static_cast<std::size_t>(count)});
  return count > 0;
}

void OutputRelay::take(Source& source, std::string_view bytes) {
  if (const auto complaint = logs_.write(source.rank, source.stream, bytes)) {
    write_line("dlaunch: " + *complaint);
  }
  if (source.in_lines) {
    split_into_lines(source, bytes);
  } else if (!bytes.empty()) {
    sink(source.stream).add_bytes(bytes);
  }
}

void OutputRelay::split_into_lines(Source& source, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    const auto room = kLongestLine - source.partial.size();
    const auto length = std::min({newline, room, bytes.size()});
    source.partial += bytes.substr(0, length);
    bytes.remove_prefix(length);
    if (length == newline) {
      bytes.remove_prefix(1);
      const bool ended = source.cut && source.partial.empty();  // its pieces have been emitted
      source.cut = false;
      if (!ended) emit(source, std::exchange(source.partial, {}));
    } else if (source.partial.size() == kLongestLine) {
      source.cut = true;
      std::string rest = source.partial.substr(whole_characters(source.partial));
      source.partial.resize(source.partial.size() - rest.size());
      emit(source, std::exchange(source.partial, std::move(rest)));
    }
  }
}

void OutputRelay::emit(Source& source, std::string_view line) {
  OutputSink& to = sink(source.stream);
  if (source.shown) {
    forget_unfinished(source);
    to.add_line(with_rank(source.rank, to.is_terminal() ? visible(line) : line));
  }
  const std::uint64_t number = source.shown ? to.lines() : 0;
  // What stands behind a progress bar that was never ended, and not the bar's beginnings.
  source.last.push_back({number, kept(visible(line))});
  if (source.last.size() <= kKeptLines) return;
  // That is longer than what is kept.
  std::string& oldest = source.last.front().text;
  if (begins_sanitizer_report(oldest)) source.report = std::move(oldest);
  source.last.pop_front();
}

// Of what rewrites its line the latest version is enough to keep, and to show.
void OutputRelay::show_unfinished(Source& source) {
  OutputSink& to = sink(source.stream);
  if (!source.in_lines || source.rank != first_shown_ || !to.is_terminal()) return;
  const std::string_view text = visible(source.partial);
  if (text.empty()) return forget_unfinished(source);
  unfinished_ = &source;
  to.show_unfinished(with_rank(source.rank, text));
  source.partial.erase(0, static_cast<std::size_t>(text.data() - source.partial.data()));
}

void OutputRelay::forget_unfinished(const Source& source) {
  if (unfinished_ != &source) return;
  unfinished_ = nullptr;
  sink(source.stream).show_unfinished({});
}

void OutputRelay::drain(int rank) {
  for (const Stream stream : {Stream::kOutput, Stream::kError}) {
    const auto found = sources_.find({rank, stream});
    if (found == sources_.end()) continue;
    Source& source = found->second;
    pollfd waiting{.fd = source.pipe, .events = POLLIN, .revents = 0};
    // Bounded: a surviving child of the rank may write without end. A pipe of -1 polls as silent.
    for (int i = 0; i < 64 && poll(&waiting, 1, 0) > 0; ++i) {
      if (!read_once(source)) {
        stop_reading(source);
        break;
      }
    }
    if (!source.partial.empty()) emit(source, std::exchange(source.partial, {}));
    sink(source.stream).write();
  }
}

void OutputRelay::release(int rank) {
  for (const Stream stream : {Stream::kOutput, Stream::kError}) {
    const auto found = sources_.find({rank, stream});
    if (found != sources_.end()) stop_reading(found->second);
  }
}

void OutputRelay::reveal(int rank) {
  if (options_.shows(rank)) return;
  for (const Stream stream : {Stream::kOutput, Stream::kError}) {
    const auto found = sources_.find({rank, stream});
    if (found == sources_.end()) continue;
    for (Line& line : found->second.last) {
      error_.add_line(with_rank(rank, line.text));
      line.number = error_.lines();
    }
  }
  error_.write();
}

std::vector<std::string> OutputRelay::last_lines(int rank) const {
  std::vector<std::string> lines;
  const auto found = sources_.find({rank, Stream::kError});
  if (found == sources_.end()) return lines;
  if (!found->second.report.empty()) lines.push_back(found->second.report);
  for (const Line& line : found->second.last) lines.push_back(line.text);
  return lines;
}

// Others may have written between them: what counts is that nobody has after them.
bool OutputRelay::shown_last(int rank) const {
  const auto found = sources_.find({rank, Stream::kError});
  if (found == sources_.end() || found->second.last.empty()) return false;
  const auto first = found->second.last.front().number;
  return first > 0 && error_.lines() - first < 2 * kKeptLines &&
         found->second.last.back().number == error_.lines();
}

void OutputRelay::write_line(std::string_view line) {
  error_.add_line(line);
  error_.write();
}

bool OutputRelay::finish(std::optional<std::chrono::milliseconds> patience,
                         const std::function<bool()>& give_up) {
  if (const auto summary = logs_.summary()) write_line("dlaunch: " + *summary);
  const bool all = serve_until_written(patience, give_up);
  if (!all) {
    write_line("dlaunch: " + std::to_string(pending()) +
               " bytes of output are dropped: nobody reads them");
  }
  return all && !told_write_error_;
}

bool OutputRelay::serve_until_written(std::optional<std::chrono::milliseconds> patience,
                                      const std::function<bool()>& give_up) {
  std::size_t left = pending();
  auto last_moved = EventLoop::Clock::now();
  while (left > 0) {
    if (give_up() || (patience && EventLoop::Clock::now() >= last_moved + *patience)) return false;
    std::optional<EventLoop::TimerId> timer;
    if (patience) timer = loop_.call_at(last_moved + *patience, [] {});
    loop_.run_once();
    if (timer) loop_.cancel(*timer);
    if (pending() < left) last_moved = EventLoop::Clock::now();
    left = pending();
  }
  return true;
}

}  // namespace dlaunch
