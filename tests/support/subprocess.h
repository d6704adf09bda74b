// Subprocess: runs a program for a test, with its stdin, stdout and stderr as pipes, and a
// deadline. Used by one thread. What is still running when a Subprocess is destroyed is killed.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/deadline.h"
#include "tests/support/soon.h"

namespace dlaunch::testing {

struct Command {
  std::vector<std::string> arguments;  // the program's path first
  /// Set in addition to this process's environment.
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::vector<std::string> unset = {};  // variables of this process that it does not get
  std::string input = {};               // its stdin
  bool close_output = false;            // start it without a stdout
};

struct CompletedProcess {
  int exit_code = -1;  // 128 + signal if a signal ended it
  bool timed_out = false;
  std::string out;
  std::string error;
};

class Subprocess {
 public:
  /// Aborts if the process cannot be started.
  explicit Subprocess(const Command& command);
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  pid_t pid() const { return pid_; }
  void send_signal(int signal) const;
  /// True once stdout (stderr) holds `text`; false if the deadline passed or the process ended.
  bool wait_for_output(std::string_view text, Deadline deadline);
  bool wait_for_error(std::string_view text, Deadline deadline);
  /// What has been read of its stdout so far.
  const std::string& output() const { return result_.out; }
  /// The same of its stderr.
  const std::string& error() const { return result_.error; }
  /// Waits until it has ended and nobody holds its stdout and stderr any more. After the deadline
  /// it is killed and `timed_out` set.
  CompletedProcess finish(Deadline deadline);

 private:
  bool read_more(Deadline deadline);
  void feed_input();

  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  int error_ = -1;
  std::string unsent_;
  CompletedProcess result_;
};

/// Starts a command and waits for its end.
CompletedProcess run_command(const Command& command, Deadline deadline = soon());

/// The path of a program that the build made: build/bin/NAME or build/bin/tests/NAME.
std::string built_program(const std::string& name);

}  // namespace dlaunch::testing
