// RecordFile: a file that grows by whole records, each of which is in it when append() returns.
//
// To open it changes nothing: what an earlier run wrote stays until clear(), and a file that was
// made here is removed again if nothing came into it. A record that cannot be written (the disk is
// full) ends no training: a line says so, the file is cut back to its last whole record, and what
// is missing is tried again with the next one. A FIFO must have a reader when it is opened; one
// that reads nothing, or goes, is a full disk. What this process has open (/dev/stdout, /dev/fd/3)
// is written on, after what others have written there. One thread.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "runtime/base/descriptor.h"
#include "runtime/base/logging.h"

namespace dlaunch {

class RecordFile {
 public:
  /// What an error says: "PATH: cannot write CONTENT: REASON; ADVICE".
  struct Words {
    std::string content;
    std::string advice;  // empty: none
  };

  /// Opens the file or makes it. Throws ConfigError: whoever named it can name another.
  RecordFile(std::string path, Words words);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  /// Of a device, a pipe or what is open already always.
  bool is_empty() const;
  void clear();
  /// Begins a new file; what was in this one is then in another (set_aside.h). Returns the name of
  /// that; empty: there was nothing. Throws std::runtime_error.
  std::string set_aside();
  void append(std::string_view record);
  /// Throws std::runtime_error if something is still not in the file.
  void finish();

  const std::string& path() const { return path_; }

 private:
  bool open(int flags);
  bool share_descriptor();
  void follow_link();
  int write_missing(bool patient);
  int write_whole(std::string& record, bool patient);
  std::string complaint(int error_number) const;

  std::string path_;
  Words words_;
  Descriptor file_;
  bool made_here_ = false;
  bool shared_ = false;  // with those who write to the same open file
  bool warned_ = false;
  std::deque<std::string> missing_;  // records that are not in the file
  Logger logger_ = make_logger("output");
};

}  // namespace dlaunch
