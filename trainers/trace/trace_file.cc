#include "trainers/trace/trace_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include <spdlog/fmt/fmt.h>
#include <nlohmann/json.hpp>

namespace dlaunch {
namespace {

constexpr int kTrainingLine = 1;
constexpr int kNormalLines = 100;  // and following
constexpr int kHighLines = 200;
constexpr std::uint64_t kTraceTag = 0x7472616365U;  // "trace"

bool in_background(const TraceEvent& event) {
  return event.kind == TraceKind::kNormal || event.kind == TraceKind::kHigh;
}

const char* category(TraceKind kind) {
  switch (kind) {
    case TraceKind::kPhase:
      return "phase";
    case TraceKind::kForward:
      return "forward";
    case TraceKind::kBackward:
      return "backward";
    default:
      return "collective";
  }
}

const char* lane_name(TraceKind kind) {
  return kind == TraceKind::kBlocking ? "blocking" : kind == TraceKind::kHigh ? "high" : "normal";
}

/// Lines for what is in flight at the same time: what is on one line does not overlap.
class Lines {
 public:
  explicit Lines(int first) : first_(first) {}

  /// The line of an event; events come in the order of their begin.
  int place(const TraceEvent& event) {
    auto line = std::ranges::find_if(ends_, [&](const auto& end) { return end <= event.begin; });
    if (line == ends_.end()) line = ends_.insert(line, event.end);
    *line = event.end;
    return first_ + static_cast<int>(line - ends_.begin());
  }
  std::size_t count() const { return ends_.size(); }

 private:
  const int first_;
  std::vector<std::chrono::steady_clock::time_point> ends_;
};

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump();
}

/// {"name": ...}: of a process or a thread.
std::string metadata(const char* kind, int rank, int line, const std::string& arguments) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{{}}}}})", kind, rank,
                     line, arguments);
}

std::string line_name(int rank, int line, const std::string& name) {
  return ",\n" + metadata("thread_name", rank, line, "\"name\":" + quoted(name));
}

class Writer {
 public:
  Writer(const Tracer& tracer, const TraceTimes& times, int rank)
      : tracer_(tracer), times_(times), rank_(rank) {}

  std::string text() {
    std::string labels = quoted("rank " + std::to_string(rank_));
    text_ = metadata("process_name", rank_, 0, "\"name\":" + labels) + ",\n" +
            metadata("process_sort_index", rank_, 0, fmt::format("\"sort_index\":{}", rank_));
    text_ += ",\n" + metadata("clock_error", rank_, 0,
                              fmt::format("\"microseconds\":{:.3f}",
                                          static_cast<double>(times_.alignment.error()) / 1e3));
    if (tracer_.dropped() > 0)
      text_ += ",\n" +
               metadata("process_labels", rank_, 0,
                        fmt::format(R"("labels":"{} events more, not kept")", tracer_.dropped()));
    text_ += line_name(rank_, kTrainingLine, "training");
    std::vector<TraceEvent> background;
    for (const TraceEvent& event : tracer_.events()) {
      if (in_background(event))
        background.push_back(event);
      else
        append(event, kTrainingLine);
    }
    std::ranges::sort(background, {}, &TraceEvent::begin);
    for (const TraceEvent& event : background)
      append(event, (event.kind == TraceKind::kHigh ? high_ : normal_).place(event));
    for (std::size_t i = 0; i < normal_.count(); ++i)
      text_ += line_name(rank_, kNormalLines + static_cast<int>(i), "collectives");
    for (std::size_t i = 0; i < high_.count(); ++i)
      text_ += line_name(rank_, kHighLines + static_cast<int>(i), "high-priority collectives");
    return std::move(text_);
  }

 private:
  double microseconds(std::chrono::steady_clock::time_point time) const {
    const auto here =
        std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
    return static_cast<double>(times_.alignment.to_rank_zero(here) - times_.origin) / 1e3;
  }

  void append(const TraceEvent& event, int line) {
    const double begin = microseconds(event.begin);
    text_ += fmt::format(
        ",\n{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},"
        "\"dur\":{:.3f},\"args\":{{{}}}}}",
        quoted(tracer_.text(event.name)), category(event.kind), rank_, line, begin,
        microseconds(event.end) - begin, arguments(event));
  }

  static std::string arguments(const TraceEvent& event) {
    if (event.kind == TraceKind::kBlocking || in_background(event))
      return fmt::format(R"("bytes":{},"sequence":{},"lane":"{}")", event.bytes, event.sequence,
                         lane_name(event.kind));
    if (event.sequence > 0) return fmt::format("\"step\":{}", event.sequence);
    return "";
  }

  const Tracer& tracer_;
  const TraceTimes& times_;
  const int rank_;
  std::string text_;
  Lines normal_{kNormalLines};
  Lines high_{kHighLines};
};

constexpr const char* kHead = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
constexpr const char* kTail = "\n]}\n";

}  // namespace

std::string trace_events(const Tracer& tracer, const TraceTimes& times, int rank) {
  return Writer(tracer, times, rank).text();
}

void write_trace(Communicator& world, RecordFile* file, const std::string& events) {
  std::array<std::int64_t, 1> size{static_cast<std::int64_t>(events.size())};
  if (world.rank() > 0) {
    throw_if_error(world.send(size, 0, kTraceTag).within("trace"));
    throw_if_error(world.send(ConstBuffer(events.data(), events.size(), DType::kU8), 0, kTraceTag)
                       .within("trace"));
    return;
  }
  file->clear();
  file->append(kHead + events);
  std::string others;
  for (int rank = 1; rank < world.size(); ++rank) {
    throw_if_error(world.recv(size, rank, kTraceTag).within("trace"));
    others.resize(static_cast<std::size_t>(size[0]));
    throw_if_error(world.recv(Buffer(others.data(), others.size(), DType::kU8), rank, kTraceTag)
                       .within("trace"));
    file->append(",\n" + others);
  }
  file->append(kTail);
  file->finish();
}

void write_trace(RecordFile& file, const std::string& events) {
  file.clear();
  file.append(kHead + events + kTail);
  file.finish();
}

std::string path_of_rank(const std::string& path, int rank) {
  if (rank == 0) return path;
  std::filesystem::path own(path);
  own.replace_extension(fmt::format("rank{}{}", rank, own.extension().string()));
  return own.string();
}

}  // namespace dlaunch
