#include "launcher/failure/probable_cause.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>
#include <string_view>

#include <sys/wait.h>

#include "launcher/base/sanitizer_report.h"
#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

using Lines = std::vector<std::string>;

constexpr std::size_t kLongestQuote = 300;

std::string in_quotes(std::string_view text) {
  const auto end = text.find_last_not_of(" \r\t");
  text = end == std::string_view::npos ? std::string_view() : text.substr(0, end + 1);
  if (text.size() <= kLongestQuote) return std::string(text);
  return std::string(text.substr(0, kLongestQuote)) + "...";
}

// The last line that holds `text`.
std::optional<std::string_view> line_with(const Lines& lines, std::string_view text) {
  const auto found = std::find_if(lines.rbegin(), lines.rend(), [&](const std::string& line) {
    return line.find(text) != std::string::npos;
  });
  if (found == lines.rend()) return std::nullopt;
  return *found;
}

std::string_view after(std::string_view line, std::string_view text) {
  return line.substr(line.find(text) + text.size());
}

// glibc's assert(): "prog: file.cc:12: int f(): Assertion `x > 0' failed."
std::string assertion(const Lines& lines) {
  const auto line = line_with(lines, ": Assertion `");
  return line ? "an assertion failed: " + in_quotes(*line) : "";
}

// libstdc++ and libc++: "terminate called after throwing an instance of 'std::runtime_error'", then
// "  what():  text".
std::string cpp_exception(const Lines& lines) {
  constexpr std::string_view kThrown = "throwing an instance of '";
  constexpr std::string_view kWhat = "what():  ";
  const auto thrown = line_with(lines, kThrown);
  if (!thrown) return "";
  std::string_view type = after(*thrown, kThrown);
  type = type.substr(0, type.rfind('\''));
  const auto what = line_with(lines, kWhat);
  std::string text = "an exception that nobody caught: " + in_quotes(type);
  if (what) text += ": " + in_quotes(after(*what, kWhat));
  if (type == "std::bad_alloc") text = "out of memory: an allocation was refused (std::bad_alloc)";
  return text;
}

// Perhaps only because an interpreter left in disorder after what it says above.
std::string termination(const Lines& lines) {
  return line_with(lines, "terminate called") ? "std::terminate was called" : "";
}

// PyTorch puts "[rank1]: " in front of every line of a traceback.
Lines without_rank(Lines lines) {
  for (std::string& line : lines) {
    if (!line.starts_with("[rank")) continue;
    const auto digits_end = line.find_first_not_of("0123456789", 5);
    if (digits_end != std::string::npos && line.compare(digits_end, 3, "]: ") == 0) {
      line.erase(0, digits_end + 3);
    }
  }
  return lines;
}

std::string named_exception(std::string_view raised) {
  if (raised.starts_with("MemoryError")) return "out of memory: Python's MemoryError";
  return "a Python exception: " + in_quotes(raised);
}

// "Traceback (most recent call last):", indented lines, and then what was raised.
std::string python_exception(const Lines& written) {
  const Lines lines = without_rank(written);
  const auto traceback = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) {
    return line.find("Traceback (most recent call last):") != std::string::npos;
  });
  // The beginning of a long traceback may have gone; its frames are unmistakable too.
  const auto frame = std::find_if(lines.rbegin(), lines.rend(), [](const std::string& line) {
    return line.starts_with("  File \"");
  });
  if (traceback == lines.rend() && frame == lines.rend()) return "";
  const auto start = std::min(traceback, frame).base();
  const auto raised = std::find_if(start, lines.end(), [](const std::string& line) {
    return !line.empty() && line.front() != ' ' && line.front() != '\t';
  });
  if (raised == lines.end()) return "";
  return named_exception(*raised);
}

// What other tools and the C library say on stderr before they end a process.
std::string told_on_stderr(const Lines& lines) {
  static constexpr std::array<std::string_view, 5> kMessages{
      "runtime error: ", "*** stack smashing detected ***",
      "free(): ", "malloc(): ", "panicked at "};
  const auto report = std::find_if(lines.rbegin(), lines.rend(), begins_sanitizer_report);
  if (report != lines.rend()) return in_quotes(*report);
  for (const std::string_view message : kMessages) {
    if (const auto line = line_with(lines, message)) return in_quotes(*line);
  }
  return "";
}

std::string in_brackets(const std::string& text) {
  return text.empty() ? "" : " (" + text + ")";
}

std::string first_of(std::initializer_list<std::string> causes) {
  for (const std::string& cause : causes) {
    if (!cause.empty()) return cause;
  }
  return "";
}

std::string cause_of_signal(int signal, const FailureEvidence& evidence) {
  const Lines& lines = evidence.last_lines;
  const std::string& fault = evidence.kernel.fault;
  switch (signal) {
    case SIGKILL:
      if (!evidence.kernel.out_of_memory.empty())
        return "out of memory: " + evidence.kernel.out_of_memory;
      if (evidence.near_processor_limit)
        return "killed by the kernel, as its limit of processor time (ulimit -t) was used up, or "
               "by someone's kill -9";
      return "killed from outside: by someone's kill -9, or by the kernel for want of memory";
    case SIGSEGV:
      return first_of(
          {told_on_stderr(lines),
           "a segmentation fault: " + first_of({fault, "a bad pointer, or the stack is used up"})});
    case SIGBUS:
      return first_of(
          {told_on_stderr(lines),
           "a bus error: a mapped file was cut short, or its device (/dev/shm?) is full"});
    case SIGILL:
      return "an illegal instruction: was it built for another processor?" + in_brackets(fault);
    case SIGFPE:
      return "an arithmetic error, such as an integer division by zero" + in_brackets(fault);
    case SIGABRT:
      return first_of({assertion(lines), cpp_exception(lines), told_on_stderr(lines),
                       python_exception(lines), termination(lines), "it called abort()"});
    case SIGXCPU:
      return "its limit of processor time (ulimit -t) was used up";
    case SIGXFSZ:
      return "its limit of file size (ulimit -f) was exceeded";
    case SIGPIPE:
      return "it wrote to a pipe or socket that nobody reads any more";
    default:
      return "";
  }
}

// Programs that use our runtime say why in their last line. The code alone tells nothing: others
// that use it mean other things by theirs.
std::string cause_of_our_code(int code, const Lines& lines) {
  const bool ours = code == kExitUsage || code == kExitBadData || code == kExitCommunication;
  return ours && !lines.empty() ? in_quotes(lines.back()) : "";
}

}  // namespace

std::string python_error(const RecordedError& error) {
  return named_exception(error.message) + in_brackets(error.place);
}

std::string probable_cause(const FailureEvidence& evidence) {
  const int signal = WIFSIGNALED(evidence.wait_status) ? WTERMSIG(evidence.wait_status) : 0;
  // A process in which an exception was raised may still end in any way. But the kernel knows why
  // it has killed one.
  const bool out_of_memory = signal == SIGKILL && !evidence.kernel.out_of_memory.empty();
  if (evidence.recorded && !out_of_memory) return python_error(*evidence.recorded);
  if (signal != 0) return cause_of_signal(signal, evidence);
  const int code = WEXITSTATUS(evidence.wait_status);
  const Lines& lines = evidence.last_lines;
  // A shell between dlaunch and the program tells of a signal so.
  const int signal_in_shell = code > 128 && code < 128 + 32 ? code - 128 : 0;
  return first_of({python_exception(lines), told_on_stderr(lines),
                   evidence.speaks_our_protocol ? cause_of_our_code(code, lines) : "",
                   signal_in_shell != 0 ? cause_of_signal(signal_in_shell, evidence) : ""});
}

}  // namespace dlaunch
